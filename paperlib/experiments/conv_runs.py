"""The trained runs of the paper's convolutional networks: VGGs and ResNets (§3.2, §4, App. C)."""

import re
from collections.abc import Sequence

from paperlib import devices, paths
from paperlib.choices import check_choice
from paperlib.networks import resnet
from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec

# The rows of the early figures, beside ReRnd and the last epoch. All notebooks keep the same, to
# share runs.
CHECKPOINTS = (0, 1, 10)

# Training configurations (App. C): weight decay, batch norm. All else is without both.
CONFIGURATIONS = {
    "plain": (False, False),
    "wd": (True, False),
    "bn": (False, True),
    "wd+bn": (True, True),
}
WEIGHT_DECAY = 5e-4  # the paper's is unknown; this is the usual one for such networks
# Ours: without batch norm these networks train with bounded gradients only.
CLIP_NORM = 1.0

# What is done to all but the first residual block of each stage (§4, Table 1).
TREATMENTS = ("full", "frozen", "removed")

# PyTorch's default, but for VGGs: its weights have a third of the variance that keeps the size of
# a signal behind a ReLU's halving, so that sixteen layers without skips let none through.
INITIALISERS = {"vgg": "he", "resnet": "torch"}

# Of photos in ImageNet's layout, and what says where they are; the first that is said is "auto".
PHOTOS = {"imagenet": "IMAGENET", "imagenette": "IMAGENETTE"}
STANDIN = "imagenet-standin"  # CIFAR-10 enlarged, where there are no photos

DEEP = 50  # ResNets deeper than that have half the batch on ImageNet, as in the paper


def spec(
    network: str,
    *,
    base_width: int,
    lr: float,
    epochs: int,
    train_images: int | None,
    seed: int,
    precision: str,
    device: str = "cpu",
    dataset: str = "cifar10",
    configuration: str = "plain",
    treatment: str = "full",
    version: int = 2,
    branch_scale: float = 1.0,
    warmup: int = 0,
    augment: bool = True,
) -> Spec:
    """One run of a network that `vgg.VGGS` or `resnet.RESNETS` names.

    The recipe is the paper's, but for what it does not say: initial learning rate, weight decay,
    warm-up, clipping, initialiser and precision.

    Args:
        base_width: channels of stage 1; 64 is the published width.
        train_images: the first ones; None takes all.
        precision: "float32", "bfloat16", or "auto", whichever is faster on `device`.
        dataset: "cifar10", or an ImageNet-like one, for which a ResNet has its other stem; see
            `resolved`.
        configuration: a key of CONFIGURATIONS.
        treatment: one of TREATMENTS; a ResNet's only, if not "full".
        version: of a ResNet.
        branch_scale: of a ResNet, see `resnet.resnet`; to be shown, not for results.
        warmup: epochs.
        augment: random crops and flips, as the paper has them. A training of a few epochs learns
            less with them.

    Raises ValueError for a name or a number that is not allowed.
    """
    check_choice("configuration", configuration, CONFIGURATIONS)
    check_choice("treatment", treatment, TREATMENTS)
    dataset = resolved(dataset)
    decayed, batch_norm = CONFIGURATIONS[configuration]
    family = re.sub(r"\d.*", "", network)
    check_choice("family of networks", family, INITIALISERS)
    options: dict[str, object] = {
        "base_width": base_width,
        "batch_norm": batch_norm,
        "initialiser": INITIALISERS[family],
    }
    imagenet = dataset != "cifar10"
    frozen: list[str] = []
    if family == "resnet":
        options |= {"version": version, "stem": "imagenet" if imagenet else "cifar"}
        if branch_scale != 1:
            options["branch_scale"] = branch_scale
        if treatment == "removed":
            options["blocks"] = resnet.REMOVED
        elif treatment == "frozen":
            frozen = later_blocks(network)
    elif treatment != "full" or branch_scale != 1:
        what = "scaled" if treatment == "full" else treatment
        raise ValueError(f"{network} has no residual blocks to be {what}.")
    if precision == "auto":
        precision = devices.fastest_precision(devices.resolve(device))
    recipe = Recipe(
        epochs=epochs,
        lr=lr,
        batch_size=64 if imagenet and depth(network) > DEEP else 128,
        weight_decay=WEIGHT_DECAY if decayed else 0.0,
        clip_norm=CLIP_NORM,
        precision=precision,
        frozen=tuple(frozen),
        augment=augment,
        warmup=warmup,
    )
    return Spec(
        network=network,
        options=options,
        recipe=recipe,
        data=dataset,
        train_images=train_images,
        seed=seed,
        keep_epochs=tuple(epoch for epoch in CHECKPOINTS if epoch <= epochs),
    )


def resolved(dataset: str) -> str:
    """`dataset` itself, but for "auto" the first of PHOTOS that is at hand, or STANDIN."""
    if dataset != "auto":
        return dataset
    return next((name for name, where in PHOTOS.items() if paths.photos_dir(where)), STANDIN)


def depth(network: str) -> int:
    """Layers with weights on the longest path, by the network's name: 50 for "resnet50"."""
    return int("".join(re.findall(r"\d+", network)))


def title(network: str) -> str:
    """A network's name as one writes it: "VGG-16", "ResNet-26b"."""
    family, number = re.fullmatch(r"([a-z]+)(.*)", network).groups()
    return f"{'VGG' if family == 'vgg' else 'ResNet'}-{number}"


def later_blocks(network: str) -> list[str]:
    """All but the first residual block of each stage of a ResNet, by the paper's names (§4)."""
    numbers = resnet.RESNETS[check_choice("ResNet", network, resnet.RESNETS)]["blocks"]
    return [
        f"stage{stage}.resblk{block}"
        for stage, number in enumerate(numbers, start=1)
        for block in range(2, number + 1)
    ]


def specs(
    names: Sequence[str],
    *,
    configurations: Sequence[str] = ("plain",),
    treatments: Sequence[str] = ("full",),
    seeds: int,
    **common: object,
) -> list[Spec]:
    """Every network in every configuration and treatment, from every seed; see `spec`."""
    return [
        spec(
            name,
            configuration=configuration,
            treatment=treatment,
            seed=seed,
            **common,
        )
        for name in names
        for configuration in configurations
        for treatment in treatments
        for seed in range(seeds)
    ]
