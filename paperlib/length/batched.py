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
    halves.
    """
    t, z = positions, points
    dead = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for weight, bias, gated in layers:
        z = torch.baddbmm(bias[:, None], z, weight.transpose(1, 2))  # (nets, points, n_ℓ)
        if not gated:
            continue
        nets, _, width = z.shape
        most = exact.points_after(z)
        if nets > 1 and nets * most * width * z.element_size() * _COPIES > max_bytes:
            # what was done for the whole batch is done again: a batch is cut a few times at most
            halves = (slice(nets // 2), slice(nets // 2, None))
            return torch.cat(
                [
                    measure(
                        [Layer(w[half], b[half], gated) for w, b, gated in layers],
                        points[half],
                        positions[half],
                        slope,
                        max_bytes,
                    )
                    for half in halves
                ]
            )
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
