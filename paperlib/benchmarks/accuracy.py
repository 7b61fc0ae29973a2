"""How many sample points the plain way needs, and how much work the exact way cannot avoid.

Source: derived here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from paperlib.length import ensemble, exact

BIAS = 1e-4  # of the mean, relative


@dataclass(frozen=True)
class Needed:
    """`points` on the curve leave the relative bias `bias` of the mean length."""

    points: int
    bias: float


def points_needed(widths: Sequence[int], seed: int = 0) -> Needed:
    """The fewest equidistant points, to about a tenth, that keep the bias within `BIAS`.

    Exact and sampled lengths are those of the same networks, both in float64; in float32 the
    rounding of so many short steps would add a bias of its own.
    """
    weights = sum(a * b for a, b in pairwise(widths))
    nets = min(200, max(8, 300_000 // weights))
    members = [ensemble.member(widths, seed, index) for index in range(nets)]
    total = ensemble.sample_lengths(widths, nets, seed).sum().item()
    steps, found = 100, None
    for _ in range(8):
        sampled = sum(_sampled(net, curve, steps) for net, curve in members)
        bias = max(1 - sampled / total, 1e-12)
        if bias <= BIAS and (found is None or steps < found.points - 1):
            found = Needed(steps + 1, bias)
        if 0.9 * BIAS <= bias <= BIAS:
            break
        # each breakpoint costs a share of one step: the bias falls as 1/steps
        steps = max(1, math.ceil(steps * min(bias / (0.95 * BIAS), 100.0)))
    if found is None:
        raise RuntimeError(f"no number of points up to {steps + 1} brings the bias to {BIAS:g}.")
    return found


def products(widths: Sequence[int], nets: int = 8, seed: int = 0) -> float:
    """Floating-point operations of the exact way's matrix products, mean over `nets` networks.

    2 Σ_ℓ P_ℓ n_{ℓ-1} n_ℓ, with P_ℓ the points that layer ℓ gets.
    """
    total = 0
    for index in range(nets):
        net, curve = ensemble.member(widths, seed, index)
        t, z = exact.arc_length(curve)[None], curve[None]
        for module in net:
            if isinstance(module, nn.Linear):
                total += 2 * z.shape[1] * module.weight.numel()
                z = (z @ module.weight.T + module.bias).detach()
            else:
                t, z = exact.rectify(t, z)
    return total / nets


def _sampled(net: nn.Module, curve: Tensor, steps: int) -> float:
    """Length distortion of a segment by the images of `steps` + 1 points."""
    t = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[:, None]
    with torch.no_grad():
        image = net(curve[0] + t * (curve[1] - curve[0]))
    return (exact.polygon_steps(image).sum() / (curve[1] - curve[0]).norm()).item()
