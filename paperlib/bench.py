"""`make bench`: exact lengths against the plain way, with the targets and whether they are met.

    python -m paperlib.bench [--only length|memory] [--quick]

Tables go to the terminal and to build/bench/. A missed target is reported, not an error.
"""

import argparse
import os
from collections.abc import Sequence

import pandas as pd
import torch

from paperlib.benchmarks.memory import peak_growth
from paperlib.benchmarks.speed import Cell, Effort, compare
from paperlib.benchmarks.workers import CORES
from paperlib.paths import Project

GRID = [Cell(width, hidden) for width in (5, 20, 50, 100) for hidden in (1, 5, 10, 20, 50)]
QUICK_GRID = [Cell(5, 5), Cell(20, 10), Cell(50, 5)]
MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m paperlib.bench", description=__doc__)
    parser.add_argument("--only", choices=("length", "memory"), help="run this one alone")
    parser.add_argument("--quick", action="store_true", help="a few small cells, within a minute")
    chosen = parser.parse_args(arguments)
    print(f"torch {torch.__version__}, {CORES} cores for each side")
    if chosen.only != "memory":
        length(QUICK_GRID, Effort(3, 0.1)) if chosen.quick else length(GRID, Effort(9, 0.15))
    if chosen.only != "length":
        memory([5, *[100] * 50, 5], (50, 200) if chosen.quick else (2000, 8000))


def length(cells: Sequence[Cell], effort: Effort) -> None:
    """Compare times; on a GPU too where there is one."""
    if torch.cuda.is_available():
        cells = [*cells, *(Cell(cell.width, cell.hidden, "cuda") for cell in cells)]
    table = pd.DataFrame(compare(cells, effort))
    _save(table, "length")
    shown = table.drop(columns=["equal_bias", "products_us"])
    print("\nTime for one network (µs), at 1,000 points and at a bias of the mean within 1e-4:")
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="-"))
    for what, prefix in (("at 1,000 points", ""), ("at equal accuracy", "equal_")):
        judged = table.dropna(subset=[f"{prefix}target"])
        missed = judged[judged[f"{prefix}speedup"] < judged[f"{prefix}target"]]
        print(f"{what}: {len(judged) - len(missed)} of {len(judged)} targets met")
        for row in missed.itertuples():
            print(f"  missed: {row.device}, width {row.width}, {row.hidden} hidden layers")


def memory(widths: Sequence[int], sizes: tuple[int, int], max_bytes: int = 2**30) -> None:
    """Compare the peak memory of a small and a large sample with each other and with the cap."""
    growth = [peak_growth(widths, nets, max_bytes) for nets in sizes]
    table = pd.DataFrame({"nets": sizes, "peak_bytes": growth, "max_bytes": max_bytes})
    _save(table, "memory")
    print(
        f"\nPeak memory of a sample of 5-[{widths[1]}]×{len(widths) - 2}-5, beside the libraries:"
    )
    for nets, peak in zip(sizes, growth, strict=True):
        print(f"  {nets} networks: {peak / MIB:.0f} MiB")
    same = abs(growth[1] - growth[0]) <= max(0.1 * growth[0], 16 * MIB)
    print(f"  the same for both: {'met' if same else 'missed'}")
    under = max(growth) <= max_bytes
    print(f"  within the cap of {max_bytes / MIB:.0f} MiB: {'met' if under else 'missed'}")


def _save(table: pd.DataFrame, name: str) -> None:
    folder = Project.here().build("bench")
    os.makedirs(folder, exist_ok=True)
    table.to_csv(folder / f"bench_{name}.csv", index=False)


if __name__ == "__main__":
    main()
