"""The algorithm of `exact` for many networks at once, as batched tensor operations for a GPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

from paperlib.length import exact
from paperlib.length.blocks import Layer

# Tensors of the size of a layer's points that are alive at the worst moment of `exact.rectify`.
_COPIES = 6


def measure(
    layers: Sequence[Layer],
    points: Tensor,
    positions: Tensor,
    slope: float,
    max_bytes: int,
) -> Tensor:
    """Trace one curve through each of a batch of networks; float64 `(nets, 4)` as in `kernel`.

    `points` `(nets, K, n_0)` have the layers' dtype and device; `positions` `(nets, K)` are
    float64. Where the points found so far would take more than `max_bytes`, the batch goes on in
    halves. As in `kernel`, a bias of the last layer is left out where no activation follows.
    """

    def too_many(count: int, width: int) -> bool:
        needed = len(points) * count * width * points.element_size() * _COPIES
        return len(points) > 1 and needed > max_bytes

    t, z = positions, points
    dead = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for weight, bias, gated in layers:
        width = weight.shape[1]
        if too_many(z.shape[1], width):
            return _by_halves(layers, points, positions, slope, max_bytes)
        if not gated:
            z = torch.bmm(z, weight.transpose(1, 2))  # (nets, points, n_L)
            continue
        z = torch.baddbmm(bias[:, None], z, weight.transpose(1, 2))  # (nets, points, n_ℓ)
        if too_many(exact.points_after(z), width):
            return _by_halves(layers, points, positions, slope, max_bytes)
        t, z = exact.rectify(t, z, slope)
        dead |= ~z.any(dim=(1, 2))

    # after a layer that is off all along only rounding tells one output from another
    z = torch.where(dead[:, None, None], 0.0, z.double())
    squares = z.diff(dim=1).square().sum(dim=2)  # (nets, points - 1)
    gaps = t.diff(dim=1)
    apart = gaps > 0
    energies = torch.where(apart, squares / gaps, 0.0).sum(dim=1)
    spans = z[..., 0].amax(dim=1) - z[..., 0].amin(dim=1)
    columns = [squares.sqrt().sum(dim=1), energies, apart.sum(dim=1).double(), spans]
    return torch.stack(columns, dim=1)


def _by_halves(
    layers: Sequence[Layer],
    points: Tensor,
    positions: Tensor,
    slope: float,
    max_bytes: int,
) -> Tensor:
    """What `measure` gives, from one half of the batch after the other."""
    # what was done for the whole batch is done again: a batch is cut a few times at most
    middle = len(points) // 2
    return torch.cat(
        [
            measure(
                [Layer(w[half], b[half], gated) for w, b, gated in layers],
                points[half],
                positions[half],
                slope,
                max_bytes,
            )
            for half in (slice(middle), slice(middle, None))
        ]
    )
