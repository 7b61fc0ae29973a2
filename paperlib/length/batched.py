"""The algorithm of `exact` for many networks at once, as batched tensor operations for a GPU."""

import torch
from torch import Tensor

from paperlib.length import exact

# Tensors of the size of a layer's points that are alive at the worst moment of `exact.rectify`.
_COPIES = 6


def measure(
    weights: list[Tensor],
    biases: list[Tensor],
    points: Tensor,
    positions: Tensor,
    slope: float,
    rectify_output: bool,
    max_bytes: int,
) -> Tensor:
    """Trace one curve through each of a batch of networks; float64 `(nets, 4)` as in `kernel`.

    `weights` `(nets, n_{ℓ-1}, n_ℓ)` and `biases` `(nets, n_ℓ)` by layer, `points` `(nets, K, n_0)`,
    all of one dtype and device; `positions` `(nets, K)` float64. Where the points found so far
    would take more than `max_bytes`, the batch goes on in halves.
    """
    t, z = positions, points
    dead = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        z = torch.baddbmm(bias[:, None], z, weight)  # (nets, points, n_ℓ)
        if layer == len(weights) - 1 and not rectify_output:
            break
        nets, _, width = z.shape
        most = exact.points_after(z)
        if nets > 1 and nets * most * width * z.element_size() * _COPIES > max_bytes:
            # the layer's map is undone, not its cost: a batch is cut a few times at most
            half = nets // 2
            return torch.cat(
                [
                    measure(
                        [w[part] for w in weights],
                        [b[part] for b in biases],
                        points[part],
                        positions[part],
                        slope,
                        rectify_output,
                        max_bytes,
                    )
                    for part in (slice(half), slice(half, None))
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
