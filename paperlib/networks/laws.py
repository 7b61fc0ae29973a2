"""The random initialisation as data: widths, variances by layer, and the laws of the weights.

A network has `widths = [n_0, …, n_L]`: L weight layers, L-1 hidden layers. Hidden weights have
variance 2/((1+a²) fan-in) with leaky slope a, so that a layer keeps E‖·‖²; the last layer's
variance is set by `output`.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
import torch

from paperlib.choices import check_choice

LAWS = ("gaussian", "uniform", "rademacher", "laplace", "sparse", "torch-default")
OUTPUTS = ("linear", "linear-he", "relu")
SPARSE_DENSITY = 0.1
_LARGEST = 1e75
# between these, float32 entries neither overflow nor lose digits
_SMALLEST_SD, _LARGEST_SD = 1e-30, 1e30


def check_int(what: str, value: object, low: int) -> int:
    """Return `value` as a Python int; ValueError unless it is an integer ≥ `low` (no bools)."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise ValueError(f"{what} must be an integer of at least {low}; got {value!r}.")
    return int(value)


def check_real(what: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value` as a float; ValueError unless finite and in [`low`, `high`] (no bools)."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        limit = "" if low == -math.inf else f" of at least {low:g}"
        limit += "" if high == math.inf else f" {'and ' if limit else ''}at most {high:g}"
        raise ValueError(f"{what} must be a finite number{limit}; got {value!r}.")
    return float(value)


def check_slope(slope: object) -> float:
    """Return a leaky ReLU's slope as a float; ValueError unless float64 can hold its square."""
    return check_real("slope", slope, -_LARGEST, _LARGEST)


def check_scale(scale: object) -> float:
    """Return the scale c ≥ 0 as a float; ValueError unless float64 can hold its square."""
    return check_real("scale", scale, 0.0, _LARGEST)


def check_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Return the widths [n_0, …, n_L] as Python ints.

    Raises ValueError for fewer than two widths, a width below 1, or anything but integers.
    """
    if isinstance(widths, (str, bytes)) or not hasattr(widths, "__iter__"):
        raise ValueError(f"widths must be a sequence [n_0, …, n_L] of integers; got {widths!r}.")
    checked = tuple(check_int("every width", n, 1) for n in widths)
    if len(checked) < 2:
        raise ValueError(
            f"widths must hold at least two integers, input and output; got {list(checked)}."
        )
    return checked


def layer_variances(
    widths: Sequence[int],
    *,
    output: str = "linear",
    slope: float = 0.0,
    scale: float = 1.0,
    law: str = "gaussian",
) -> list[float]:
    """Variance of one weight in each of the L layers (§3.1, our reading of the last layer).

    `output`: "linear" has variance 1/fan-in and no activation, "linear-he" the hidden layers'
    variance and no activation, "relu" the hidden layers' variance and their activation.
    `scale` multiplies the weights (§3.3), hence the variances by its square. The law
    "torch-default" has 1/(3 fan-in) in every layer, whatever `output` and `slope` are.
    """
    widths = check_widths(widths)
    check_choice("weight law", law, LAWS)
    check_choice("output", output, OUTPUTS)
    slope, scale = check_slope(slope), check_scale(scale)
    fans = widths[:-1]
    if law == "torch-default":
        return [scale**2 / (3 * fan) for fan in fans]
    hidden = 2 / (1 + slope**2)
    gains = [hidden] * (len(fans) - 1) + [1.0 if output == "linear" else hidden]
    return [scale**2 * gain / fan for gain, fan in zip(gains, fans, strict=True)]


def bias_variances(
    widths: Sequence[int], *, bias_var: float = 0.01, scale: float = 1.0, law: str = "gaussian"
) -> list[float]:
    """Variance of one bias in each of the L layers: c² C_b, the output layer included.

    The law "torch-default" ignores `bias_var` and has c²/(3 fan-in).
    """
    widths = check_widths(widths)
    check_choice("weight law", law, LAWS)
    bias_var, scale = check_real("bias_var", bias_var, 0.0), check_scale(scale)
    if law == "torch-default":
        return [scale**2 / (3 * fan) for fan in widths[:-1]]
    return [scale**2 * bias_var] * (len(widths) - 1)


def bias_law(law: str) -> str:
    """The law of the biases that goes with a weight law: Gaussian, or PyTorch's uniform one."""
    return "uniform" if check_choice("weight law", law, LAWS) == "torch-default" else "gaussian"


def generator(seed: int, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for (seed, key…), e.g. one a batch of networks; on `device`.

    Neighbouring seeds or keys give unrelated streams. Raises ValueError for a negative seed.
    """
    sequence = np.random.SeedSequence(check_int("seed", seed, 0), spawn_key=key)
    state = sequence.generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(state[0] >> 1))


def draw(rng: torch.Generator, law: str, shape: Sequence[int], variance: float) -> torch.Tensor:
    """Independent symmetric float32 entries, mean 0 and the given variance, on `rng`'s device.

    "sparse" is a Gaussian kept with probability 1/10, at ten times the variance;
    "torch-default" is uniform (its U(±1/√fan-in) has variance 1/(3 fan-in)). Raises ValueError
    for a variance that float32 entries cannot have.
    """
    check_choice("weight law", law, LAWS)
    sd = math.sqrt(check_real("variance", variance, 0.0))
    if sd and not _SMALLEST_SD < sd < _LARGEST_SD:
        raise ValueError(
            f"a standard deviation of {sd:.3g} is beyond the range of float32, in which weights "
            "are drawn: choose a scale or bias variance nearer to 1."
        )
    values = torch.empty(tuple(shape), dtype=torch.float32, device=rng.device)
    if law == "gaussian":
        return values.normal_(0.0, sd, generator=rng)
    if law in ("uniform", "torch-default"):
        return values.uniform_(-math.sqrt(3) * sd, math.sqrt(3) * sd, generator=rng)
    signs = values.bernoulli_(0.5, generator=rng).mul_(2.0).sub_(1.0)
    if law == "rademacher":
        return signs.mul_(sd)
    if law == "laplace":
        exponential = torch.empty_like(values).exponential_(generator=rng)
        return signs.mul_(exponential).mul_(sd / math.sqrt(2))
    kept = torch.empty_like(values).bernoulli_(SPARSE_DENSITY, generator=rng)
    return kept.mul_(values.normal_(0.0, sd / math.sqrt(SPARSE_DENSITY), generator=rng))
