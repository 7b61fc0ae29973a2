"""The trained runs of the paper's fully connected networks, FCN a×b (§3.1)."""

from collections.abc import Sequence

from paperlib.networks.laws import check_int, check_real
from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec

# The columns of Fig. 1, beside the last epoch. All notebooks keep the same, to share runs.
CHECKPOINTS = (0, 1, 2, 3, 8, 40, 90)
INITIALISER = "lecun-truncated"
MOST_HIDDEN = 1000
MOST_WEIGHTS = 10**9


def specs(
    hidden: int,
    width: int,
    *,
    dataset: str,
    lr: float,
    epochs: int,
    train_images: int,
    seeds: Sequence[int],
    initialiser: str = INITIALISER,
) -> list[Spec]:
    """One run a seed of FCN hidden×width on the first `train_images` of "mnist" or "cifar10".

    The recipe is the paper's, but for its unknown initial learning rate; CIFAR-10 is augmented
    as in App. A.

    Raises ValueError where nothing would be learned, and for a network too large to be built:
    more than MOST_HIDDEN layers, or about MOST_WEIGHTS weights.
    """
    check_int("hidden", hidden, 1)
    check_int("width", width, 1)
    weights = width * (1000 + (hidden - 1) * width)  # of about 1,000 inputs
    if hidden > MOST_HIDDEN or weights > MOST_WEIGHTS:
        raise ValueError(
            f"FCN {hidden}×{width} is too large: at most {MOST_HIDDEN:,} hidden layers, and about "
            f"{MOST_WEIGHTS:,} weights, can be trained."
        )
    if check_real("lr", lr, 0.0) == 0:
        raise ValueError("lr must be above 0, or nothing is learned.")
    recipe = Recipe(epochs=epochs, lr=lr, augment=dataset == "cifar10")
    return [
        Spec(
            network="mlp",
            options={"hidden": hidden, "width": width, "initialiser": initialiser},
            recipe=recipe,
            data=dataset,
            train_images=train_images,
            seed=seed,
            keep_epochs=tuple(epoch for epoch in CHECKPOINTS if epoch <= epochs),
        )
        for seed in seeds
    ]
