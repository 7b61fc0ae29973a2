"""The trained runs of the paper's fully connected networks, FCN a×b (§3.1)."""

from collections.abc import Sequence

from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec

# The columns of Fig. 1, beside the last epoch. All notebooks keep the same, to share runs.
CHECKPOINTS = (0, 1, 2, 3, 8, 40, 90)
INITIALISER = "lecun-truncated"


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
    """
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
