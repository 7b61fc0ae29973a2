"""Time for one network: exact lengths against the plain way, cell by cell.

The two sides take turns, in rounds, and the quickest round of each counts: whatever else runs on
the machine only adds time. Both use the same cores and float32 (ours: precision "single", lengths
summed in float64); our default, float64 throughout, is reported beside.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import torch

from paperlib.benchmarks import accuracy
from paperlib.benchmarks.plain import sampled_lengths
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import CORES, worker
from paperlib.length.ensemble import sample_lengths
from paperlib.networks import laws
from paperlib.progress import track

POINTS = 1000


@dataclass(frozen=True)
class Cell:
    """The architecture 5-[width] × hidden-5, on a device."""

    width: int
    hidden: int
    device: str = "cpu"

    @property
    def widths(self) -> list[int]:
        return [5, *[self.width] * self.hidden, 5]

    @property
    def weights(self) -> int:
        return self.width * (10 + self.width * (self.hidden - 1))

    @property
    def target(self) -> float | None:
        """The speed-up aimed at, at 1,000 points; None where the cell is only reported."""
        if self.device != "cpu":
            return 100.0
        if self.width <= 20:
            return 10.0
        if self.width <= 50:
            return 4.0
        return 2.5 if self.hidden <= 20 else None

    @property
    def target_at_equal_accuracy(self) -> float:
        return 50.0 if self.weights <= 10_000 else 10.0


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds a side, and seconds a round at least."""

    rounds: int
    seconds: float


def compare(cells: Sequence[Cell], effort: Effort) -> list[dict[str, object]]:
    """One row a cell: microseconds a network for both sides, speed-ups, targets and bounds.

    `bound_us` is what the products would take at the machine's rate for a large float32 matrix,
    plus the drawing of the weights. Rows of a GPU hold the comparison at 1,000 points alone.
    """
    with worker() as ours, worker() as plain:
        rate = ours.submit(matrix_rate).result()
        return [_row(cell, effort, ours, plain, rate) for cell in track(cells, "cells")]


def _row(
    cell: Cell, effort: Effort, ours: Executor, plain: Executor, rate: float
) -> dict[str, object]:
    exactly, in_double = (
        _Side(ours, time_exact, (cell.widths, cell.device, precision))
        for precision in ("single", "double")
    )
    sampling = _Side(plain, time_plain, (cell.widths, cell.device, POINTS))
    exact_us, double_us, plain_us = _microseconds([exactly, in_double, sampling], effort)
    row: dict[str, object] = {
        "device": cell.device,
        "width": cell.width,
        "hidden": cell.hidden,
        "plain_us": plain_us,
        "exact_us": exact_us,
        "double_us": double_us,
        "speedup": plain_us / exact_us,
        "target": cell.target,
    }
    if cell.device == "cpu":
        needed = plain.submit(accuracy.points_needed, cell.widths).result()
        finer = _Side(plain, time_plain, (cell.widths, cell.device, needed.points))
        (finer_us,) = _microseconds([finer], effort)
        products_us = 1e6 * ours.submit(accuracy.products, cell.widths).result() / rate
        draw_us = ours.submit(time_drawing, cell.weights).result()
        row |= {
            "equal_points": needed.points,
            "equal_bias": needed.bias,
            "equal_plain_us": finer_us,
            "equal_speedup": finer_us / exact_us,
            "equal_target": cell.target_at_equal_accuracy,
            "products_us": products_us,
            "draw_us": draw_us,
            "bound_us": products_us + draw_us,
        }
    return row


@dataclass(frozen=True)
class _Side:
    """A way to measure networks: `run(*arguments, nets)` gives seconds, in its own process."""

    process: Executor
    run: Callable[..., float]
    arguments: tuple[object, ...]

    def seconds(self, nets: int) -> float:
        return self.process.submit(self.run, *self.arguments, nets).result()

    def nets_for(self, seconds: float) -> int:
        """A number of networks that takes at least about that long."""
        self.seconds(2)  # loads libraries and compiled code
        nets, taken = 2, self.seconds(2)
        while taken < seconds:
            nets = math.ceil(nets * min(1.2 * seconds / taken, 50.0))
            taken = self.seconds(nets)
        return nets


def _microseconds(sides: Sequence[_Side], effort: Effort) -> list[float]:
    """Microseconds a network in the quickest round, for each side."""
    nets = [side.nets_for(effort.seconds) for side in sides]
    rounds = [partial(side.seconds, n) for side, n in zip(sides, nets, strict=True)]
    quickest = take_turns(rounds, effort.rounds)
    return [1e6 * seconds / n for seconds, n in zip(quickest, nets, strict=True)]


def time_exact(widths: Sequence[int], device: str, precision: str, nets: int) -> float:
    """Seconds that `nets` exact lengths take."""
    start = time.perf_counter()
    sample_lengths(widths, nets, 0, device=device, precision=precision)
    return time.perf_counter() - start


def time_plain(widths: Sequence[int], device: str, points: int, nets: int) -> float:
    """Seconds that `nets` lengths by sampling take."""
    start = time.perf_counter()
    sampled_lengths(widths, nets, points, device)
    return time.perf_counter() - start


def time_drawing(weights: int) -> float:
    """Microseconds to draw one network's weights, with each core drawing another network's."""
    nets = max(1, 500_000 // weights)
    rng = laws.generator(0)
    return 1e6 * _quickest(lambda: laws.draw(rng, "gaussian", (nets, weights), 1.0)) / nets / CORES


def matrix_rate(size: int = 2048) -> float:
    """Floating-point operations a second of one large float32 product."""
    matrix = torch.randn(size, size)
    return 2 * size**3 / _quickest(lambda: matrix @ matrix)


def _quickest(work: Callable[[], object], times: int = 4) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)
