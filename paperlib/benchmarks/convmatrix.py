"""Seconds of a convolutional network's robustness matrix: ours, the plain way, and the floor.

The plain way loads every cell's state and runs all images, out of a DataLoader over tensors that
are normalised already, contiguous and in float32. The floor is what no sharing of layers can
avoid: the final network once, and from each reset layer on the rest of the network, once a column
that differs; run as plain forward passes on the same batches and in the same layout as ours.

The networks are not trained: states of other seeds stand for checkpoints. Neither time nor the
difference between the two tables of errors depends on what a state was trained for.
"""

import math
import time
from functools import partial

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paperlib import devices, networks
from paperlib.benchmarks import plain_classifier, subject
from paperlib.benchmarks.conv_subject import MEAN, STD, Subject
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import worker
from paperlib.networks.normalise import Normalise
from paperlib.robustness import evaluate
from paperlib.robustness.chain import Chain
from paperlib.robustness.resets import fresh
from paperlib.training import data
from paperlib.training.data import Images

TARGET = 4.0  # times as quick as the plain way
FLOOR_TARGET = 1.3  # times the floor, at most
EPOCHS = (0, 1, 10, 12)
DRAWS = 1  # of the column ReRnd
PLAIN_BATCH = 128


def compare(what: Subject, test: Images, cores: int, rounds: int) -> dict[str, object]:
    """Seconds of each way, the two ratios with their targets, and the difference of the tables.

    Ours in bfloat16 is reported beside where the CPU has it natively, else NaN.
    """
    half = devices.fastest_precision(torch.device("cpu")) == "bfloat16"
    tables: dict[str, pd.DataFrame] = {}
    with worker(cores) as ours, worker(cores) as plain, worker(cores) as floor:

        def ours_took(given: Images, precision: str) -> float:
            task = ours.submit(time_ours, what, given, precision)
            seconds, tables[precision] = task.result()
            return seconds

        def plain_took(given: Images) -> float:
            seconds, tables["plain"] = plain.submit(time_plain, what, given).result()
            return seconds

        def floor_took(given: Images) -> float:
            return floor.submit(time_floor, what, given).result()

        sides = [partial(ours_took, precision="float32"), plain_took, floor_took]
        if half:
            sides.append(partial(ours_took, precision="bfloat16"))
        for side in sides:
            side(subject.first(test, 2))  # loads libraries
        took = take_turns([partial(side, test) for side in sides], rounds)
    ours_s, plain_s, floor_s = took[:3]
    return {
        "subject": what.title,
        "cores": cores,
        "images": len(test),
        "ours_s": ours_s,
        "plain_s": plain_s,
        "floor_s": floor_s,
        "speedup": plain_s / ours_s,
        "target": TARGET,
        "over_floor": ours_s / floor_s,
        "floor_target": FLOOR_TARGET,
        "difference": _difference(tables["float32"], tables["plain"]),
        "bfloat16_s": took[3] if half else math.nan,
        "bfloat16_difference": (
            _difference(tables["bfloat16"], tables["plain"]) if half else math.nan
        ),
    }


def time_ours(what: Subject, test: Images, precision: str) -> tuple[float, pd.DataFrame]:
    """Seconds that `evaluate.matrix` takes, and the table."""
    spec = what.spec()
    states = _states(what)
    start = time.perf_counter()
    table = evaluate.matrix(
        spec.build(),
        states,
        data.as_input(test.images),
        test.labels,
        build=spec.build,
        rerandomise=DRAWS,
        precision=precision,
    )
    return time.perf_counter() - start, table


def time_plain(what: Subject, test: Images) -> tuple[float, pd.DataFrame]:
    """Seconds that the plain way takes, and the table.

    Re-randomised networks are built and images are normalised before the clock starts.
    """
    spec = what.spec()
    states = {epoch: [state] for epoch, state in _states(what).items()}
    columns = {evaluate.RERANDOMISED: [fresh(spec.build, 0, i) for i in range(DRAWS)], **states}
    (final,) = states[max(EPOCHS)]
    model = spec.build()[1:]  # without the normalisation, which has no tensors of its own
    rows = {**networks.layers(model), evaluate.FULL_MODEL: list(final)}
    images = Normalise(MEAN, STD)(data.as_input(test.images))
    batches = DataLoader(TensorDataset(images, test.labels), batch_size=PLAIN_BATCH)
    start = time.perf_counter()
    table = plain_classifier.matrix(model, columns, rows, final, batches)
    return time.perf_counter() - start, table


def time_floor(what: Subject, test: Images) -> float:
    """Seconds of the forward passes that the matrix cannot do without."""
    model = what.spec().build().to(memory_format=torch.channels_last)
    chain = Chain(model)
    rows = [*networks.layers(model).values(), list(chain.slots)]
    starts = [min(chain.position[name] for name in names) for names in rows]
    columns = DRAWS + len(EPOCHS) - 1
    images = data.as_input(test.images).to(memory_format=torch.channels_last)
    start = time.perf_counter()
    with torch.inference_mode():
        for inputs in images.split(evaluate.BATCH):
            for i, element in enumerate(chain.elements):
                for _ in range(columns * starts.count(i)):
                    nn.Sequential(*chain.elements[i:])(inputs)
                inputs = element(inputs)
    return time.perf_counter() - start


def _states(what: Subject) -> dict[int, dict[str, torch.Tensor]]:
    return {epoch: what.spec().build(1 + epoch).state_dict() for epoch in EPOCHS}


def _difference(a: pd.DataFrame, b: pd.DataFrame) -> float:
    """Largest between two tables of errors."""
    return float((a - b).abs().to_numpy().max())
