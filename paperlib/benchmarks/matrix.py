"""Seconds of a robustness matrix: ours against the plain way, which loads and runs every cell.

The plain way loads images in its own process, or in one worker process a core beside it; the
faster of the two counts. Checkpoints and re-randomised networks are the same, and so are the
errors: the largest difference between the two tables is reported.
"""

import time
from functools import partial

import pandas as pd
import torch

from paperlib import networks
from paperlib.benchmarks import plain_classifier, subject
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import worker
from paperlib.robustness import evaluate
from paperlib.robustness.resets import fresh
from paperlib.training import data, loop
from paperlib.training.data import Images
from paperlib.training.loop import Checkpoint
from paperlib.training.recipe import Recipe

TARGET = 5.0  # times as quick
EPOCHS = 8  # hence columns 0 … 8
DRAWS = 5  # of the column ReRnd
BATCH = 2000


def compare(train: Images, test: Images, cores: int, rounds: int) -> dict[str, float]:
    """Seconds of the matrix on `test` for each way, the speed-up, its target, and the difference.

    The networks are trained on `train`, outside of what is timed.
    """
    tables: dict[str, pd.DataFrame] = {}
    with worker(cores) as ours, worker(cores) as plain, worker(cores) as helped:

        def ours_took(given: Images) -> float:
            seconds, tables["ours"] = ours.submit(time_ours, train, given).result()
            return seconds

        def plain_took(given: Images) -> float:
            seconds, tables["plain"] = plain.submit(time_plain, train, given, 0).result()
            return seconds

        def helped_took(given: Images) -> float:
            seconds, _ = helped.submit(time_plain, train, given, cores).result()
            return seconds

        sides = [ours_took, plain_took, helped_took]
        for side in sides:
            side(subject.first(test, 100))  # loads libraries
        ours_s, plain_s, helped_s = take_turns([partial(side, test) for side in sides], rounds)
    return {
        "cores": cores,
        "images": len(test),
        "ours_s": ours_s,
        "plain_s": plain_s,
        "plain_workers_s": helped_s,
        "speedup": min(plain_s, helped_s) / ours_s,
        "target": TARGET,
        "difference": (tables["ours"] - tables["plain"]).abs().to_numpy().max(),
    }


def time_ours(train: Images, test: Images) -> tuple[float, pd.DataFrame]:
    """Seconds that `evaluate.matrix` takes, and the table."""
    model = subject.build(train)
    states = {point.epoch: point.model for point in checkpoints(train)}
    start = time.perf_counter()
    table = evaluate.matrix(
        model,
        states,
        data.as_input(test.images),
        test.labels,
        build=partial(subject.build, train),
        rerandomise=DRAWS,
        batch=BATCH,
    )
    return time.perf_counter() - start, table


def time_plain(train: Images, test: Images, workers: int) -> tuple[float, pd.DataFrame]:
    """Seconds that the plain way takes with so many worker processes, and the table.

    Re-randomised networks are built before the clock starts; ours are built within the time.
    """
    states = {point.epoch: [point.model] for point in checkpoints(train)}
    draws = [fresh(partial(subject.build, train), 0, draw) for draw in range(DRAWS)]
    (final,) = states[EPOCHS]
    rows = {**networks.layers(subject.build(train)), evaluate.FULL_MODEL: list(final)}
    model = plain_classifier.network(subject.widths(train))
    batches = plain_classifier.loader(test, BATCH, subject.MEAN, subject.STD, workers=workers)
    start = time.perf_counter()
    columns = {evaluate.RERANDOMISED: draws, **states}
    table = plain_classifier.matrix(model, columns, rows, final, batches)
    return time.perf_counter() - start, table


def checkpoints(train: Images) -> list[Checkpoint]:
    """A short training's states after 0 … `EPOCHS` epochs, the same in every process."""
    kept: list[Checkpoint] = []
    recipe = Recipe(EPOCHS, subject.LR, threads=torch.get_num_threads())
    loop.train(subject.build(train), train, recipe, seed=0, on_epoch=kept.append)
    return kept
