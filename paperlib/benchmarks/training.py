"""Seconds of an epoch's training: ours against the plain way, on the same cores and threads.

The plain way loads images in its own process, or in one worker process a core beside it; the
faster of the two counts. Both ways do the same number of steps, on batches of the same size.
"""

import time
from functools import partial

import torch

from paperlib.benchmarks import plain_classifier, subject
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import worker
from paperlib.training import loop
from paperlib.training.data import Images
from paperlib.training.recipe import Recipe

TARGET = 3.0  # times as many epochs a second


def compare(images: Images, cores: int, rounds: int) -> dict[str, float]:
    """Seconds of one epoch for each way, and the speed-up with its target."""
    with worker(cores) as ours, worker(cores) as plain, worker(cores) as helped:
        sides = [
            lambda given: ours.submit(time_ours, given).result(),
            lambda given: plain.submit(time_plain, given, 0).result(),
            lambda given: helped.submit(time_plain, given, cores).result(),
        ]
        for side in sides:
            side(subject.first(images, 256))  # loads libraries
        ours_s, plain_s, helped_s = take_turns([partial(side, images) for side in sides], rounds)
    return {
        "cores": cores,
        "images": len(images),
        "ours_s": ours_s,
        "plain_s": plain_s,
        "plain_workers_s": helped_s,
        "speedup": min(plain_s, helped_s) / ours_s,
        "target": TARGET,
    }


def time_ours(images: Images) -> float:
    """Seconds that `loop.train` takes for one epoch, with the threads of this process."""
    recipe = Recipe(1, subject.LR, milestones=(), threads=torch.get_num_threads())
    model = subject.build(images)
    start = time.perf_counter()
    loop.train(model, images, recipe, seed=0)
    return time.perf_counter() - start


def time_plain(images: Images, workers: int) -> float:
    """Seconds that the plain way takes for one epoch, loading with so many worker processes."""
    recipe = Recipe(1, subject.LR)
    model = plain_classifier.network(subject.widths(images))
    batches = plain_classifier.loader(
        images, recipe.batch_size, subject.MEAN, subject.STD, workers=workers, shuffle=True
    )
    start = time.perf_counter()
    plain_classifier.train(model, batches, 1, recipe.lr, recipe.momentum)
    return time.perf_counter() - start
