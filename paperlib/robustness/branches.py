"""How much a residual block adds to what its skip carries: ‖branch‖/‖skip‖.

A block with a small branch is hardly more than its skip, and then resetting it does no harm for no
interesting reason. Source: derived here.
"""

import copy
import math
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor, nn

from paperlib.networks.resnet import ResidualBlock, residual_blocks


@torch.no_grad()
def norms(model: nn.Module, images: Tensor, *, batch: int = 500) -> pd.DataFrame:
    """Root mean square over `images` of ‖branch‖₂ and ‖skip‖₂ of every residual block.

    A row a block, named as by `residual_blocks`; columns `branch`, `skip` and their `ratio`, NaN
    where the skip is 0. Computed on a copy in eval mode; the model and its hooks stay as they are.

    Args:
        model: a network with residual blocks.
        images: `(N, C, H, W)`, in [0, 1] if the model normalises them itself.
        batch: images at a time; only the last digits depend on it.

    Raises ValueError for a model without residual blocks, or for no images.
    """
    model = copy.deepcopy(model).eval()
    blocks = residual_blocks(model)
    if not blocks or not len(images):
        raise ValueError("give a model with residual blocks, and at least one image.")
    squares = {name: [0.0, 0.0] for name in blocks}
    for name, block in blocks.items():
        block.register_forward_hook(_adder(squares[name]))
    where = next(model.parameters())
    for part in images.split(batch):
        model(part.to(where))
    rows = {
        name: [math.sqrt(total / len(images)) for total in totals]
        for name, totals in squares.items()
    }
    found = pd.DataFrame.from_dict(rows, orient="index", columns=["branch", "skip"])
    found["ratio"] = (found.branch / found.skip).where(found.skip > 0)
    return found.rename_axis("layer")


def _adder(totals: list[float]) -> Callable[..., None]:
    """A hook that adds the squared norms of a block's two parts to `totals`."""

    def add(block: ResidualBlock, inputs: tuple[Tensor], _: Tensor) -> None:
        for i, part in enumerate(block.parts(*inputs)):
            totals[i] += float(part.double().square().sum())

    return add
