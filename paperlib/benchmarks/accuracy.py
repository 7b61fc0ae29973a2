"""How many sample points the plain way needs, and how much work the exact way cannot avoid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from paperlib.length import ensemble, exact

BIAS = 1e-4  # of the mean, relative


MOST_STEPS = 100_000


@dataclass(frozen=True)
class Needed:
    """`points` on the curve leave the relative bias `bias` of the mean length."""

    points: int
    bias: float


def points_needed(widths: Sequence[int], seed: int = 0) -> Needed:
    """About the fewest equidistant points that keep the bias within `BIAS`.

    Exact and sampled lengths are those of the same networks, both in float64; in float32 the
    rounding of so many short steps would add a bias of its own. The estimate rests on 8 networks
    for wide cells, up to 100 for small ones; dead ones, where both lengths are 0, are left out.
    Where `MOST_STEPS` do not suffice the answer is that many, with the bias that is left.
    """
    weights = sum(a * b for a, b in pairwise(widths))
    lengths = ensemble.sample_lengths(widths, max(8, 4_000_000 // weights), seed)
    alive = lengths.nonzero()[: min(100, max(8, 20_000 // weights)), 0]
    members = [ensemble.member(widths, seed, int(index)) for index in alive]
    total = lengths[alive].sum().item()
    steps, found = 100, None
    for _ in range(8):
        bias = 1 - sum(_sampled(net, curve, steps) for net, curve in members) / total
        if bias <= BIAS and (found is None or steps < found.points - 1):
            found = Needed(steps + 1, bias)
        if 0.9 * BIAS <= bias <= BIAS or steps == MOST_STEPS:
            break
        # each breakpoint costs a share of one step: the bias falls as 1/steps
        factor = min(max(bias / (0.95 * BIAS), 0.01), 10.0)
        steps = min(math.ceil(steps * factor), MOST_STEPS)
    return found or Needed(steps + 1, bias)


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
