"""Images a second that a convolutional network is trained on: ours against the plain way.

The plain way is a DataLoader of torchvision's transforms, in its own process or in one worker
process a core beside it, whichever is faster, and the usual loop in contiguous float32. Both ways
do the same number of steps of the quick profile's recipe, gradients clipped.
"""

import time
from dataclasses import replace
from functools import partial

import torch

from paperlib import devices
from paperlib.benchmarks import plain_classifier, subject
from paperlib.benchmarks.conv_subject import MEAN, STD, Subject
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import worker
from paperlib.training import loop
from paperlib.training.data import Images

# Times as many images a second, by the precision that is fastest here.
TARGETS = {"bfloat16": 2.0, "float32": 1.3}


def compare(what: Subject, images: Images, cores: int, rounds: int) -> dict[str, object]:
    """Seconds of one epoch for each way, and the speed-up with its target."""
    precision = devices.fastest_precision(torch.device("cpu"))
    with worker(cores) as ours, worker(cores) as plain, worker(cores) as helped:
        sides = [
            lambda given: ours.submit(time_ours, what, given, precision).result(),
            lambda given: plain.submit(time_plain, what, given, 0).result(),
            lambda given: helped.submit(time_plain, what, given, cores).result(),
        ]
        for side in sides:
            side(subject.first(images, 128))  # loads libraries
        ours_s, plain_s, helped_s = take_turns([partial(side, images) for side in sides], rounds)
    return {
        "subject": what.title,
        "precision": precision,
        "cores": cores,
        "images": len(images),
        "ours_s": ours_s,
        "plain_s": plain_s,
        "plain_workers_s": helped_s,
        "ours_images_a_second": len(images) / ours_s,
        "speedup": min(plain_s, helped_s) / ours_s,
        "target": TARGETS[precision],
    }


def time_ours(what: Subject, images: Images, precision: str) -> float:
    """Seconds that `loop.train` takes for one epoch, with the threads of this process."""
    spec = what.spec(precision)
    recipe = replace(spec.recipe, threads=torch.get_num_threads())
    model = spec.build()
    start = time.perf_counter()
    loop.train(model, images, recipe, spec.seed)
    return time.perf_counter() - start


def time_plain(what: Subject, images: Images, workers: int) -> float:
    """Seconds that the plain way takes for one epoch, loading with so many worker processes."""
    spec = what.spec()
    recipe = spec.recipe
    model = spec.build()[1:]  # the transforms normalise
    batches = plain_classifier.loader(
        images, recipe.batch_size, MEAN, STD, workers=workers, shuffle=True
    )
    start = time.perf_counter()
    plain_classifier.train(
        model, batches, 1, recipe.lr, recipe.momentum, clip_norm=recipe.clip_norm
    )
    return time.perf_counter() - start
