"""Residual networks, with or without batch norm (*Are All Layers Created Equal?*, App. A, Fig. 10).

Choices of ours where the paper is silent: widths are those of the networks for ImageNet, on CIFAR
too; a skip is a projection only where the shape changes, so stage 1 of a network of basic blocks
has none; a bottleneck's stride is in its 3×3 convolution; convolutions have biases only if there
is no batch norm.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor, nn

from paperlib.choices import check_choice
from paperlib.networks import laws
from paperlib.networks.convolution import check_images, convolution, draw_, linear
from paperlib.networks.layer import Layer, Stack
from paperlib.networks.normalise import Normalise


class Shape(TypedDict):
    """Residual blocks in each stage, and whether they are bottlenecks."""

    blocks: tuple[int, ...]
    bottleneck: bool


# "resnet26b" is ours, and stands in for the deep ones where time is short.
RESNETS: dict[str, Shape] = {
    "resnet18": Shape(blocks=(2, 2, 2, 2), bottleneck=False),
    "resnet26b": Shape(blocks=(2, 2, 2, 2), bottleneck=True),
    "resnet50": Shape(blocks=(3, 4, 6, 3), bottleneck=True),
    "resnet101": Shape(blocks=(3, 4, 23, 3), bottleneck=True),
    "resnet152": Shape(blocks=(3, 8, 36, 3), bottleneck=True),
}
# All but the first residual block of each stage removed (§4, Table 1).
REMOVED = (1, 1, 1, 1)
EXPANSION = 4  # of a bottleneck's channels, by its last convolution
STEMS = ("cifar", "imagenet")

Modules = OrderedDict[str, nn.Module]


class ResidualBlock(Layer, nn.Module):
    """x ↦ after(branch(y) + skip(y)) with y = before(x); an identity skip carries x itself.

    Version 1 has before = identity and after = ReLU. Version 2, pre-activation, has before =
    (BatchNorm,) ReLU and after = identity. `skip` is None for the identity, else a 1×1
    convolution, the paper's downsample skip (Fig. 10).
    """

    def __init__(
        self,
        before: nn.Module,
        branch: nn.Sequential,
        skip: nn.Module | None,
        after: nn.Module,
    ) -> None:
        super().__init__()
        self.before, self.branch, self.skip, self.after = before, branch, skip, after

    def parts(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of branch and skip, whose sum the block makes."""
        before = self.before(inputs)
        return self.branch(before), inputs if self.skip is None else self.skip(before)

    def forward(self, inputs: Tensor) -> Tensor:
        branch, skip = self.parts(inputs)
        return self.after(branch + skip)


def resnet(
    blocks: Sequence[int],
    seed: int = 0,
    *,
    bottleneck: bool,
    base_width: int = 64,
    version: int = 2,
    batch_norm: bool = False,
    stem: str = "cifar",
    downsample_layers: bool = False,
    branch_scale: float = 1.0,
    initialiser: str = "torch",
    image_shape: Sequence[int] = (3, 32, 32),
    classes: int = 10,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> nn.Sequential:
    """A residual network: images `(N, C, H, W)` in [0, 1] to logits `(N, classes)`.

    Layers: `stage0` (the stem), `stageS.resblkB`, `final_linear`. Every stage but the first
    halves the image and doubles the channels. What a version 2 network does behind its last sum,
    (BatchNorm,) ReLU and mean over pixels, belongs to `final_linear`; its stem ends with the
    convolution or its pooling, as the first block begins with the activation. float32 on the CPU,
    fresh weights from `seed`.

    Args:
        blocks: number in each stage; RESNETS has the published ones, REMOVED the fewest.
        bottleneck: blocks of 1×1, 3×3, 1×1 convolutions, rather than of two 3×3 ones.
        base_width: channels of stage 1, before a bottleneck's expansion; 64 is the published
            width.
        version: 1 (He et al., 2016a), or 2 (pre-activation, 2016b), which the paper reports.
        batch_norm: BatchNorms where these versions have them.
        stem: "cifar" is a 3×3 convolution; "imagenet" a 7×7 one and a 3×3 max-pooling, of stride
            2 each.
        downsample_layers: have a layer `stageS.downsample`, a 3×3 convolution with its activation,
            in front of the stages where the shape changes, so that all skips are identities (the
            networks of §6; what the layer is made of is our choice).
        branch_scale: what the last weights of each branch are multiplied by at initialisation. It
            is there to be shown, not for results: at 0 a block starts as its skip, so that
            re-initialising the block only takes its branch away.
        initialiser: one of `initialisers.INITIALISERS`.
        image_shape: (C, H, W).
        mean, std: of the data's channels; the network normalises its input by them.

    Raises:
        ValueError: a number or a name that is not allowed.
    """
    blocks = [laws.check_int("every number of blocks", n, 1) for n in blocks]
    if not blocks:
        raise ValueError("blocks is empty: give the number of residual blocks in each stage.")
    base_width = laws.check_int("base_width", base_width, 1)
    classes = laws.check_int("classes", classes, 2)
    branch_scale = laws.check_real("branch_scale", branch_scale, 0.0)
    check_choice("stem", stem, STEMS)
    if version not in (1, 2):
        raise ValueError(f"version must be 1 or 2 (pre-activation); got {version!r}.")
    channels_in, _, _ = check_images(image_shape, mean)

    make = _Maker(version, batch_norm)
    network: Modules = OrderedDict(
        normalise=Normalise(mean, std), stage0=make.stem(channels_in, base_width, stem)
    )
    channels = base_width
    for i, number in enumerate(blocks):
        inner = base_width * 2**i
        outer = inner * EXPANSION if bottleneck else inner
        stride = 1 if i == 0 else 2
        stage: Modules = OrderedDict()
        if downsample_layers and (stride, channels) != (1, outer):
            stage["downsample"] = make.downsample(channels, outer, stride)
            stride, channels = 1, outer
        for j in range(1, number + 1):
            stage[f"resblk{j}"] = make.block(channels, inner, outer, stride, bottleneck)
            stride, channels = 1, outer
        network[f"stage{i + 1}"] = nn.Sequential(stage)
    network["final_linear"] = make.classifier(channels, classes)
    model = nn.Sequential(network)
    draw_(model, initialiser, seed)
    for block in residual_blocks(model).values():
        _scale_(block.branch, branch_scale)
    return model


def residual_blocks(model: nn.Module) -> dict[str, ResidualBlock]:
    """The residual blocks of a network, in order, by the paper's names `stageS.resblkB`."""
    return {n: module for n, module in model.named_modules() if isinstance(module, ResidualBlock)}


class _Maker:
    """Makes the parts of a network of one version, with or without BatchNorms."""

    def __init__(self, version: int, batch_norm: bool) -> None:
        self.preactivated = version == 2
        self.batch_norm = batch_norm

    def stem(self, channels_in: int, channels: int, stem: str) -> Stack:
        size, stride = (3, 1) if stem == "cifar" else (7, 2)
        modules: Modules = OrderedDict(conv=self._conv(channels_in, channels, size, stride))
        if not self.preactivated:
            modules.update(self._activation(channels))
        if stem == "imagenet":
            modules["pool"] = nn.MaxPool2d(3, 2, 1)
        return Stack(modules)

    def downsample(self, channels_in: int, channels: int, stride: int) -> Stack:
        conv = {"conv": self._conv(channels_in, channels, 3, stride)}
        if self.preactivated:
            return Stack(OrderedDict(**self._activation(channels_in), **conv))
        return Stack(OrderedDict(**conv, **self._activation(channels)))

    def block(
        self, channels: int, inner: int, outer: int, stride: int, bottleneck: bool
    ) -> ResidualBlock:
        # (window, channels out, stride)
        basic = [(3, inner, stride), (3, outer, 1)]
        convs = [(1, inner, 1), (3, inner, stride), (1, outer, 1)] if bottleneck else basic
        branch: Modules = OrderedDict()
        channels_in = channels
        for i, (size, channels_out, step) in enumerate(convs, start=1):
            branch[f"conv{i}"] = self._conv(channels_in, channels_out, size, step)
            if i < len(convs):
                branch.update(self._activation(channels_out, str(i)))
            elif not self.preactivated:
                branch.update(self._norm(channels_out, str(i)))
            channels_in = channels_out
        skip = None
        if (stride, channels) != (1, outer):
            modules: Modules = OrderedDict(conv=self._conv(channels, outer, 1, stride))
            if not self.preactivated:
                modules.update(self._norm(outer))
            skip = nn.Sequential(modules)
        if self.preactivated:
            before = nn.Sequential(self._activation(channels))
            return ResidualBlock(before, nn.Sequential(branch), skip, nn.Identity())
        return ResidualBlock(nn.Identity(), nn.Sequential(branch), skip, nn.ReLU())

    def classifier(self, channels: int, classes: int) -> Stack:
        modules: Modules = self._activation(channels) if self.preactivated else OrderedDict()
        modules.update(
            pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), linear=linear(channels, classes)
        )
        return Stack(modules)

    def _conv(self, channels_in: int, channels_out: int, size: int, stride: int) -> nn.Conv2d:
        return convolution(channels_in, channels_out, size, stride=stride, bias=not self.batch_norm)

    def _norm(self, channels: int, number: str = "") -> Modules:
        return OrderedDict({f"norm{number}": nn.BatchNorm2d(channels)} if self.batch_norm else {})

    def _activation(self, channels: int, number: str = "") -> Modules:
        return OrderedDict(self._norm(channels, number), **{f"relu{number}": nn.ReLU()})


def _scale_(branch: nn.Sequential, scale: float) -> None:
    """Multiply weight and bias of the branch's last module that has them, a BatchNorm included."""
    *_, last = (module for module in branch if any(True for _ in module.parameters()))
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(scale)
