"""`make bench`: ours against the plain way, with the targets and whether they are met.

    python -m paperlib.bench [PART …] [--quick]

Parts: length, memory, training, matrix, store, convtraining, convmatrix; by default all.

Tables go to the terminal and to build/bench/. A missed target is reported, not an error.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch

from paperlib.benchmarks import conv_subject, convmatrix, convtraining, subject
from paperlib.benchmarks import matrix as matrices
from paperlib.benchmarks import store as stores
from paperlib.benchmarks import training as trainings
from paperlib.benchmarks.memory import peak_growth
from paperlib.benchmarks.speed import Cell, Effort
from paperlib.benchmarks.speed import compare as compare_lengths
from paperlib.benchmarks.workers import CORES
from paperlib.choices import check_choice
from paperlib.paths import Project
from paperlib.training import data

GRID = [Cell(width, hidden) for width in (5, 20, 50, 100) for hidden in (1, 5, 10, 20, 50)]
QUICK_GRID = [Cell(5, 5), Cell(20, 10), Cell(50, 5)]
MIB = 2**20
MAX_BYTES = 2**30


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m paperlib.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", type=_part, help=f"{', '.join(PARTS)}; default all")
    parser.add_argument("--quick", action="store_true", help="small sizes, within minutes")
    chosen = parser.parse_args(arguments)
    print(f"torch {torch.__version__}, cores for each side: {CORES}")
    for part in chosen.parts or PARTS:
        try:
            PARTS[part](chosen.quick)
        except data.DataError as error:
            sys.exit(f"{part}: {error}")


def length(quick: bool) -> None:
    """Compare times of exact and sampled lengths; on a GPU too where there is one."""
    cells, effort = (QUICK_GRID, Effort(3, 0.1)) if quick else (GRID, Effort(9, 0.15))
    if torch.cuda.is_available():
        cells = [*cells, *(Cell(cell.width, cell.hidden, "cuda") for cell in cells)]
    table = pd.DataFrame(compare_lengths(cells, effort))
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


def memory(quick: bool) -> None:
    """Compare the peak memory of a small and a large sample with each other and with the cap."""
    widths, sizes = [5, *[100] * 50, 5], ((50, 200) if quick else (2000, 8000))
    growth = [peak_growth(widths, nets, MAX_BYTES) for nets in sizes]
    table = pd.DataFrame({"nets": sizes, "peak_bytes": growth, "max_bytes": MAX_BYTES})
    _save(table, "memory")
    print(
        f"\nPeak memory of a sample of 5-[{widths[1]}]×{len(widths) - 2}-5, beside the libraries:"
    )
    for nets, peak in zip(sizes, growth, strict=True):
        print(f"  {nets} networks: {peak / MIB:.0f} MiB")
    same = abs(growth[1] - growth[0]) <= max(0.1 * growth[0], 16 * MIB)
    print(f"  the same for both: {_verdict(same)}")
    under = max(growth) <= MAX_BYTES
    print(f"  within the cap of {MAX_BYTES / MIB:.0f} MiB: {_verdict(under)}")


def training(quick: bool) -> None:
    """Compare epochs of training with the plain way."""
    images = data.load("mnist", "train", limit=6000 if quick else None)
    rounds = 2 if quick else 3
    # One core is what a run gets by default, with another run on every other core.
    rows = [trainings.compare(images, cores, rounds) for cores in sorted({1, CORES})]
    _save(pd.DataFrame(rows), "training")
    print(f"\nOne epoch of {subject.NAME} on {len(images):,} images of MNIST:")
    for row in rows:
        _print_speedup(row)


def matrix(quick: bool) -> None:
    """Compare the robustness matrix with the plain way."""
    train = data.load("mnist", "train", limit=2000)
    test = data.load("mnist", "test", limit=1000 if quick else None)
    row = matrices.compare(train, test, cores=CORES, rounds=1 if quick else 2)
    _save(pd.DataFrame([row]), "matrix")
    print(
        f"\nRobustness matrix of {subject.NAME}, {matrices.EPOCHS + 1} checkpoints and "
        f"{matrices.DRAWS} draws, on {len(test):,} images:"
    )
    _print_speedup(row)
    print(f"  largest difference between the two tables of errors: {row['difference']:.1g}")


def store(quick: bool) -> None:
    """Compare a training that is stored with one that is not."""
    images = data.load("mnist", "train", limit=6000 if quick else None)
    row = stores.compare(images, epochs=8, rounds=2 if quick else 4)
    _save(pd.DataFrame([row]), "store")
    print(f"\n{row['epochs']} epochs of {subject.NAME} on {len(images):,} images, one thread:")
    print(f"  with the store {row['stored_s']:.2f} s, without {row['bare_s']:.2f} s")
    print(f"  a stored run outside its epochs, at the least: {row['outside_s']:.2f} s")
    verdict = _verdict(row["overhead"] <= row["target"])
    print(f"  overhead {row['overhead']:.1%}, at most {row['target']:.0%}: {verdict}")


def train_convolutional(quick: bool) -> None:
    """Compare epochs of training a convolutional network with the plain way."""
    images = data.load("cifar10", "train", limit=512 if quick else 5000)
    rounds = 1 if quick else 2
    rows = [
        convtraining.compare(conv_subject.RESNET, images, cores, rounds)
        for cores in sorted({1, CORES})
    ]
    _save(pd.DataFrame(rows), "convtraining")
    print(f"\nOne epoch of {rows[0]['subject']} on {len(images):,} images of CIFAR-10:")
    for row in rows:
        _print_speedup(row)
        print(f"  {row['ours_images_a_second']:.0f} images a second in {row['precision']}")


def reset_convolutional(quick: bool) -> None:
    """Compare the robustness matrix of convolutional networks with the plain way."""
    test = data.load("cifar10", "test", limit=100 if quick else 2000)
    rows = [
        convmatrix.compare(what, test, CORES, rounds=1 if quick else 2)
        for what in (conv_subject.RESNET, conv_subject.VGG)
    ]
    _save(pd.DataFrame(rows), "convmatrix")
    for row in rows:
        print(
            f"\nRobustness matrix of {row['subject']} (not trained), {len(convmatrix.EPOCHS)} "
            f"checkpoints and {convmatrix.DRAWS} draw, on {len(test):,} images, cores "
            f"{row['cores']}:"
        )
        print(
            f"  {row['ours_s']:.2f} s; the plain way {row['plain_s']:.2f} s, "
            f"the floor {row['floor_s']:.2f} s"
        )
        faster = row["speedup"] >= row["target"]
        print(f"  speed-up {row['speedup']:.1f}, at least {row['target']:g}: {_verdict(faster)}")
        near = row["over_floor"] <= row["floor_target"]
        print(
            f"  over the floor {row['over_floor']:.2f}, at most {row['floor_target']:g}: "
            f"{_verdict(near)}"
        )
        print(f"  largest difference between the two tables of errors: {row['difference']:.1g}")
        if not math.isnan(row["bfloat16_s"]):
            print(
                f"  in bfloat16 {row['bfloat16_s']:.2f} s, with a largest difference of "
                f"{row['bfloat16_difference']:.1g}"
            )


PARTS: Mapping[str, Callable[[bool], None]] = {
    "length": length,
    "memory": memory,
    "training": training,
    "matrix": matrix,
    "store": store,
    "convtraining": train_convolutional,
    "convmatrix": reset_convolutional,
}


def _part(name: str) -> str:
    try:
        return check_choice("part", name, PARTS)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _print_speedup(row: Mapping[str, float]) -> None:
    print(
        f"  cores {row['cores']}: {row['ours_s']:.2f} s; the plain way {row['plain_s']:.2f} s, "
        f"with workers {row['plain_workers_s']:.2f} s"
    )
    verdict = _verdict(row["speedup"] >= row["target"])
    print(f"  speed-up {row['speedup']:.1f}, at least {row['target']:g}: {verdict}")


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def _save(table: pd.DataFrame, name: str) -> None:
    folder = Project.here().build("bench")
    os.makedirs(folder, exist_ok=True)
    table.to_csv(folder / f"bench_{name}.csv", index=False)


if __name__ == "__main__":
    main()
