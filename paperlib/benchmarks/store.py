"""What the store of runs adds to the time of a training: `runs.get` against `loop.train`."""

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from paperlib import paths
from paperlib.benchmarks import subject
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import worker
from paperlib.training import loop, runs
from paperlib.training.data import Images
from paperlib.training.recipe import Recipe

TARGET = 0.05  # of the time of the training, at most


def compare(images: Images, epochs: int, rounds: int) -> dict[str, float]:
    """Seconds of a training with and without the store, and what the store adds, relative.

    One thread, as runs are trained by default; every epoch's state is kept.
    """
    with worker(1) as stored, worker(1) as bare:
        sides = [
            lambda given: stored.submit(time_stored, given, epochs).result(),
            lambda given: bare.submit(time_bare, given, epochs).result(),
        ]
        for side in sides:
            side(subject.first(images, 256))  # loads libraries
        stored_s, bare_s = take_turns([partial(side, images) for side in sides], rounds)
    return {
        "images": len(images),
        "epochs": epochs,
        "stored_s": stored_s,
        "bare_s": bare_s,
        "overhead": stored_s / bare_s - 1,
        "target": TARGET,
    }


def time_stored(images: Images, epochs: int) -> float:
    """Seconds that `runs.get` takes for a run that no store has yet."""
    folder = paths.store_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bench-", dir=folder) as store:
        start = time.perf_counter()
        runs.get(_spec(images, epochs), store=Path(store), images=images)
        return time.perf_counter() - start


def time_bare(images: Images, epochs: int) -> float:
    """Seconds that the same training takes where nothing of it is kept."""
    spec = _spec(images, epochs)
    start = time.perf_counter()
    loop.train(spec.build(), images, spec.recipe, spec.seed)
    return time.perf_counter() - start


def _spec(images: Images, epochs: int) -> runs.Spec:
    return runs.Spec("mlp", subject.options(images), Recipe(epochs, subject.LR), images.name)
