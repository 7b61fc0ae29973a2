"""What VGGs and ResNets have in common: convolutions, their start values, checks of images."""

from collections.abc import Sequence

from torch import nn

from paperlib.networks import laws
from paperlib.networks.initialisers import initialise_


def convolution(
    channels_in: int, channels_out: int, size: int, *, stride: int = 1, bias: bool
) -> nn.Conv2d:
    """A size×size convolution that pads by size // 2; its weights are not set yet."""
    return nn.utils.skip_init(
        nn.Conv2d, channels_in, channels_out, size, stride, size // 2, bias=bias
    )


def linear(features_in: int, features_out: int) -> nn.Linear:
    """A fully connected layer with biases; its weights are not set yet."""
    return nn.utils.skip_init(nn.Linear, features_in, features_out)


def draw_(network: nn.Module, initialiser: str, seed: int) -> None:
    """Set the weights and biases of all convolutions and linear layers in place from `seed`.

    In the network's order, and float32 on the CPU. A weight's fan-in is that of its window:
    channels × height × width. BatchNorms stay at γ = 1, β = 0. Raises ValueError for an unknown
    initialiser.
    """
    rng = laws.generator(seed)
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            initialise_(module.weight, module.bias, initialiser, rng)


def check_images(
    image_shape: Sequence[int], mean: Sequence[float], smallest: int = 1
) -> tuple[int, int, int]:
    """Return (C, H, W); ValueError unless `mean` has C values and H, W are at least `smallest`."""
    shape = tuple(laws.check_int("every size of an image", n, 1) for n in image_shape)
    if len(shape) != 3 or len(mean) != shape[0] or min(shape[1:]) < smallest:
        raise ValueError(
            f"image_shape must be (C, H, W) with C values in mean and sides of at least "
            f"{smallest} pixels; got {tuple(image_shape)} and mean {tuple(mean)}."
        )
    return shape
