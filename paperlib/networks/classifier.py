"""Fully connected classifiers of images: the paper's FCN a×b (§3.1)."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from paperlib.networks import laws
from paperlib.networks.initialisers import initialise_
from paperlib.networks.normalise import Normalise


def mlp(
    hidden: int,
    width: int,
    seed: int = 0,
    *,
    image_shape: Sequence[int] = (1, 28, 28),
    classes: int = 10,
    initialiser: str = "lecun-truncated",
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
) -> nn.Sequential:
    """The paper's FCN hidden×width: images `(N, C, H, W)` in [0, 1] to logits `(N, classes)`.

    By the paper's counting, `hidden` layers `layer1 … layer{hidden}` of `width` units with ReLU,
    then the classifier `layer{hidden + 1}`. float32 on the CPU, fresh weights from `seed`.

    Args:
        image_shape: (C, H, W).
        initialiser: one of `initialisers.INITIALISERS`.
        mean, std: of the data's channels; the network normalises its input by them.

    Raises:
        ValueError: a number or a name that is not allowed.
    """
    hidden, width = laws.check_int("hidden", hidden, 1), laws.check_int("width", width, 1)
    classes = laws.check_int("classes", classes, 2)
    channels, *_ = shape = [laws.check_int("every size of an image", n, 1) for n in image_shape]
    if len(shape) != 3 or len(mean) != channels:
        raise ValueError(
            f"image_shape must be (C, H, W) with C values in mean and std; "
            f"got {tuple(image_shape)} and mean {tuple(mean)}."
        )
    rng = laws.generator(seed)
    modules: OrderedDict[str, nn.Module] = OrderedDict(
        normalise=Normalise(mean, std), flatten=nn.Flatten()
    )
    widths = [math.prod(shape), *[width] * hidden, classes]
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths), start=1):
        linear = nn.utils.skip_init(nn.Linear, fan_in, fan_out)
        initialise_(linear.weight, linear.bias, initialiser, rng)
        modules[f"layer{layer}"] = linear
        if layer <= hidden:
            modules[f"relu{layer}"] = nn.ReLU()
    return nn.Sequential(modules)
