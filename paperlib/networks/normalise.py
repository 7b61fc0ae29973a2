"""The input normalisation as the first module of a network, so that images stay in [0, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """x ↦ (x − mean) / std per channel, for float images `(N, C, H, W)` in [0, 1].

    The two buffers are constants of the data set: they belong to no layer, so state dicts leave
    them out. ValueError unless `mean` and `std` have one value a channel and std > 0.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not len(mean) or min(std) <= 0:
            raise ValueError(
                f"mean and std need one number a channel, std above 0; got {mean} and {std}."
            )
        for name, values in (("mean", mean), ("std", std)):
            buffer = torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)  # (1, C, 1, 1)
            self.register_buffer(name, buffer, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std
