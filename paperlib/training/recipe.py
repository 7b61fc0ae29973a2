"""How a network is trained: optimiser and schedule as data (App. A)."""

import math
from dataclasses import dataclass

from paperlib.choices import check_choice
from paperlib.networks.laws import check_int, check_real

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum on the cross-entropy, with a learning rate that is lowered in steps.

    The defaults are the paper's: batches of 128, momentum 0.9, no weight decay, and a learning
    rate × 0.2 after 30, 60 and 90 of 100 epochs. It does not print its initial learning rate.

    Attributes:
        epochs: passes over the training images.
        lr: initial learning rate.
        weight_decay: coefficient on every trained parameter, biases included.
        milestones: fractions of `epochs` after which the learning rate is multiplied by `gamma`.
        clip_norm: largest 2-norm of the whole gradient; None leaves it as it is.
        warmup: epochs in which the learning rate first rises, by equal steps, from near 0.
        precision: "float32", or "bfloat16" autocast.
        frozen: layers, by the paper's names, whose parameters stay as initialised.
        threads: CPU threads; part of the recipe, since another number gives other digits.
        augment: random crops and flips.

    Raises ValueError for a number or a name that is not allowed.
    """

    epochs: int
    lr: float
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 0.0
    milestones: tuple[float, ...] = (0.3, 0.6, 0.9)
    gamma: float = 0.2
    clip_norm: float | None = None
    precision: str = "float32"
    frozen: tuple[str, ...] = ()
    threads: int = 1
    augment: bool = False
    warmup: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "threads"):
            check_int(name, getattr(self, name), 1)
        check_int("warmup", self.warmup, 0)
        for name in ("lr", "momentum", "weight_decay", "gamma"):
            # As floats, so that 0 and 0.0 are the same recipe with the same hash.
            object.__setattr__(self, name, check_real(name, getattr(self, name), 0.0))
        if self.clip_norm is not None:
            object.__setattr__(self, "clip_norm", check_real("clip_norm", self.clip_norm, 0.0))
        check_choice("precision", self.precision, PRECISIONS)
        if isinstance(self.frozen, str):
            raise ValueError(f"frozen must be a tuple of layers, not the text {self.frozen!r}.")
        object.__setattr__(self, "frozen", tuple(self.frozen))
        milestones = tuple(check_real("every milestone", m, 0.0) for m in self.milestones)
        if any(m > 1 for m in milestones) or list(milestones) != sorted(milestones):
            raise ValueError(
                f"milestones must be rising fractions of the epochs; got {milestones}."
            )
        object.__setattr__(self, "milestones", milestones)


def lr_at(recipe: Recipe, epoch: int, part: float = 1.0) -> float:
    """The learning rate in pass number `epoch` from 0, when that `part` of the pass is through.

    `part` counts during warm-up only. A milestone stands at the nearest whole epoch, an upper one
    where two are as near, but never before the first pass.
    """
    passed = sum(epoch >= max(1, math.floor(m * recipe.epochs + 0.5)) for m in recipe.milestones)
    warm = min(1.0, (epoch + part) / recipe.warmup) if recipe.warmup else 1.0
    return recipe.lr * recipe.gamma**passed * warm
