"""VGG networks on small images (*Are All Layers Created Equal?*, §3.2, App. A)."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from paperlib.networks import laws
from paperlib.networks.convolution import check_images, convolution, draw_, linear
from paperlib.networks.layer import Stack
from paperlib.networks.normalise import Normalise

# Convolutions in each of the five stages.
VGGS: dict[str, tuple[int, ...]] = {
    "vgg11": (1, 1, 2, 2, 2),
    "vgg13": (2, 2, 2, 2, 2),
    "vgg16": (2, 2, 3, 3, 3),
    "vgg19": (2, 2, 4, 4, 4),
}
CHANNELS = (1, 2, 4, 8, 8)  # of the five stages, as multiples of the base width


def vgg(
    convolutions: Sequence[int],
    seed: int = 0,
    *,
    base_width: int = 64,
    fc_width: int | None = None,
    batch_norm: bool = False,
    initialiser: str = "torch",
    image_shape: Sequence[int] = (3, 32, 32),
    classes: int = 10,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> nn.Sequential:
    """A VGG: images `(N, C, H, W)` in [0, 1] to logits `(N, classes)`.

    Layers: `stage1.block1 … stage5.blockB`, each a 3×3 convolution with ReLU, and a max-pooling
    that halves the image behind each stage; then `fc1`, `fc2` with ReLU, and `final_linear`.
    float32 on the CPU, fresh weights from `seed`. There is no dropout.

    Args:
        convolutions: number in each of the five stages; VGGS has the published ones.
        base_width: channels of stage 1; 64 is the published width.
        fc_width: of fc1 and fc2. The paper does not give it; by default 8 × base_width, the
            channels of stage 5, hence 512 at full width and not the 4096 of VGGs on ImageNet.
        batch_norm: a BatchNorm on the output of each convolution, which then has no bias.
        initialiser: one of `initialisers.INITIALISERS`.
        image_shape: (C, H, W), sides of at least 32 pixels.
        mean, std: of the data's channels; the network normalises its input by them.

    Raises:
        ValueError: a number or a name that is not allowed.
    """
    numbers = [laws.check_int("every number of convolutions", n, 1) for n in convolutions]
    if len(numbers) != len(CHANNELS):
        raise ValueError(f"give the convolutions of {len(CHANNELS)} stages; got {numbers}.")
    base_width = laws.check_int("base_width", base_width, 1)
    fc_width = laws.check_int("fc_width", 8 * base_width if fc_width is None else fc_width, 1)
    classes = laws.check_int("classes", classes, 2)
    halvings = len(CHANNELS)
    channels, height, width = check_images(image_shape, mean, 2**halvings)

    network: OrderedDict[str, nn.Module] = OrderedDict(normalise=Normalise(mean, std))
    for i, (number, multiple) in enumerate(zip(numbers, CHANNELS, strict=True), start=1):
        stage: OrderedDict[str, nn.Module] = OrderedDict()
        for j in range(1, number + 1):
            stage[f"block{j}"] = _block(channels, multiple * base_width, batch_norm)
            channels = multiple * base_width
        stage["pool"] = nn.MaxPool2d(2)
        network[f"stage{i}"] = nn.Sequential(stage)
    network["flatten"] = nn.Flatten()
    features = channels * (height >> halvings) * (width >> halvings)
    for name, features_in in (("fc1", features), ("fc2", fc_width)):
        network[name] = Stack(OrderedDict(linear=linear(features_in, fc_width), relu=nn.ReLU()))
    network["final_linear"] = Stack(OrderedDict(linear=linear(fc_width, classes)))
    model = nn.Sequential(network)
    draw_(model, initialiser, seed)
    return model


def _block(channels_in: int, channels_out: int, batch_norm: bool) -> Stack:
    block: OrderedDict[str, nn.Module] = OrderedDict(
        conv=convolution(channels_in, channels_out, 3, bias=not batch_norm)
    )
    if batch_norm:
        block["norm"] = nn.BatchNorm2d(channels_out)
    block["relu"] = nn.ReLU()
    return Stack(block)
