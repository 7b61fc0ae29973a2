"""Curves of the input space, as polygons: float64 points `(K, n_0)` in order (§3.2, §5)."""

import math

import torch
from torch import Tensor

from paperlib.networks.laws import check_int, check_real


def segment(n_0: int, length: float = 1.0) -> Tensor:
    """Straight segment of the given length, centred at the origin, along (1, …, 1)/√n_0.

    Shape (2, n_0). Raises ValueError for n_0 < 1 or a length that is not positive.
    """
    n_0 = check_int("n_0", n_0, 1)
    half = _positive("length", length) / 2 / math.sqrt(n_0)
    return torch.stack([torch.full((n_0,), s * half, dtype=torch.float64) for s in (-1, 1)])


def axis_segment(n_0: int, length: float = 1.0) -> Tensor:
    """Straight segment of the given length along e_1, centred at the origin; shape (2, n_0).

    For weights that are not Gaussian the mean distortion depends on the direction: this one is
    the extreme, as it hears a single weight of each neuron.
    """
    ends = torch.zeros(2, check_int("n_0", n_0, 1), dtype=torch.float64)
    half = _positive("length", length) / 2
    ends[0, 0], ends[1, 0] = -half, half
    return ends


def circle(n_0: int, sides: int = 64, radius: float = 1.0) -> Tensor:
    """Closed regular polygon with `sides` sides in the first two coordinates; (sides+1, n_0).

    Raises ValueError for n_0 < 2, fewer than 3 sides, or a radius that is not positive.
    """
    n_0, sides = check_int("n_0", n_0, 2), check_int("sides", sides, 3)
    angle = torch.arange(sides + 1, dtype=torch.float64) % sides * (2 * math.pi / sides)
    points = torch.zeros(sides + 1, n_0, dtype=torch.float64)
    points[:, 0], points[:, 1] = angle.cos(), angle.sin()
    return _positive("radius", radius) * points


def _positive(what: str, value: float) -> float:
    if check_real(what, value) <= 0:
        raise ValueError(f"{what} must be positive; got {value!r}.")
    return float(value)
