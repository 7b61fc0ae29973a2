"""What training, matrix and store are measured on: the paper's FCN 3×256 on MNIST (§3.1)."""

from typing import Any

from torch import nn

from paperlib import networks
from paperlib.training import data
from paperlib.training.data import Images

NAME = "FCN 3×256"
HIDDEN, WIDTH, CLASSES = 3, 256, 10
MEAN, STD = data.CONSTANTS["mnist"]
LR = 0.05


def options(images: Images) -> dict[str, Any]:
    """Options of the network "mlp" for images of this shape."""
    shape = list(images.images.shape[1:])
    return {
        "hidden": HIDDEN,
        "width": WIDTH,
        "classes": CLASSES,
        "image_shape": shape,
        "mean": MEAN,
        "std": STD,
    }


def build(images: Images, seed: int = 0) -> nn.Module:
    """The network before training, on the CPU; it normalises its input itself."""
    return networks.build("mlp", seed=seed, **options(images))


def widths(images: Images) -> list[int]:
    """n_0, …, n_L of that network."""
    return [images.images[0].numel(), *[WIDTH] * HIDDEN, CLASSES]


def first(images: Images, number: int) -> Images:
    """The first images only, e.g. to load libraries with before anything is timed."""
    pixels, labels = images.images[:number].clone(), images.labels[:number].clone()
    return Images(pixels, labels, images.name, data.checksum(pixels, labels))
