"""Closed forms for the expected length and volume of a random ReLU network's image.

`widths = [n_0, …, n_L]`: L weight layers, L-1 hidden layers, weights as in `networks.laws`
(hidden variance 2/fan-in, by default a last layer without activation and with variance 1/fan-in).
*Distortion* is the length or d-volume of the image, counted with multiplicity, over that of the
curve or manifold. Everything rests on Lemma C.2: with independent B_ℓ ~ Bin(n_ℓ, ½),

    ‖J_x u‖² = [∏_{ℓ<L} (2/n_{ℓ-1}) χ²_{B_ℓ}] · (1/n_{L-1}) χ²_{n_L}   in law.

All numbers are Python floats. Products are summed as logarithms: 10,000 layers or widths of
100,000 neither overflow nor warn; a result beyond the range of float64 is `inf` or 0.0.

Every function raises ValueError for widths that are fewer than two or not integers of at least 1,
and for any other argument outside the stated range.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from paperlib.choices import check_choice
from paperlib.networks.laws import (
    OUTPUTS,
    check_int,
    check_real,
    check_scale,
    check_slope,
    check_widths,
)

_LOG_MAX = math.log(np.finfo(np.float64).max)


class VarianceBound(NamedTuple):
    """Upper bounds of the variance of the length distortion."""

    paper: float
    """n_L/n_0 (5.2)."""
    sharp: float
    """(n_L/n_0)(1 - C² ∏ h²), attained as the length of the curve tends to 0."""


class LogNormal(NamedTuple):
    """Parameters of a log-normal law: mean and variance of the logarithm."""

    mean: float
    variance: float


# ---- length ---------------------------------------------------------------------------------


def mean_length(
    widths: Sequence[int], *, output: str = "linear", slope: float = 0.0, scale: float = 1.0
) -> float:
    """Exact mean length distortion, √(n_L/n_0) C(n_L) ∏_{ℓ<L} h(n_ℓ) (Thm 5.1).

    It depends neither on the curve nor on the biases. `output` "linear-he" multiplies it by the
    √2 of a He last layer, "relu" replaces C(n_L) by h(n_L); `slope` is that of leaky ReLU;
    `scale` c multiplies the mean by c^L (§3.3).
    """
    widths = check_widths(widths)
    check_choice("output", output, OUTPUTS)
    slope, scale = check_slope(slope), check_scale(scale)
    if scale == 0:
        return 0.0
    log_mean = _log_hidden_factors(widths, slope) + _half_log_ratio(widths)
    log_mean += (len(widths) - 1) * math.log(scale)
    if output == "relu":
        log_mean += _log_layer_factor(widths[-1], slope)
    else:
        log_mean += _log_output_moment(widths[-1], 1.0)
        if output == "linear-he":
            log_mean += 0.5 * math.log(2 / (1 + slope**2))
    return _exp(log_mean)


def truncated_mean_length(widths: Sequence[int]) -> float:
    """(5.1) without its O-term: √(n_L/n_0) C(n_L) exp(-⅝ Σ_{ℓ<L} 1/n_ℓ)."""
    widths = check_widths(widths)
    return mean_length_bound(widths) * math.exp(-0.625 * reciprocal_width_sum(widths))


def mean_length_bound(widths: Sequence[int]) -> float:
    """Upper bound C(n_L) √(n_L/n_0) of the mean length distortion (Thm 3.1)."""
    widths = check_widths(widths)
    return _exp(_half_log_ratio(widths) + _log_output_moment(widths[-1], 1.0))


def variance_bound(widths: Sequence[int]) -> VarianceBound:
    """Upper bounds of the variance of the length distortion: (5.2), and a sharper one of ours."""
    widths = check_widths(widths)
    ratio = widths[-1] / widths[0]
    log_deficit = _log_hidden_factors(widths) + _log_output_moment(widths[-1], 1.0)
    return VarianceBound(paper=ratio, sharp=-ratio * math.expm1(2 * log_deficit))


def moment_bound(widths: Sequence[int], m: float) -> float:
    """E‖J_x u‖^m for real m ≥ 1: exact, and an upper bound of E[distortion^m] (Lemma C.1, (5.3)).

    (n_L/n_0)^{m/2} C_m(n_L) ∏ h_m(n_ℓ) with h_m(n) = (2/n)^{m/2} E χ_B^m, B ~ Bin(n, ½), and
    C_m(n) = n^{-m/2} E χ_n^m; derived here, since the paper's constant is not known to us.
    """
    widths, m = check_widths(widths), check_real("the moment's order m", m, 1.0)
    log_moment = _sum_hidden(widths, lambda n: _log_gate_moment(n, m))
    return _exp(m * _half_log_ratio(widths) + log_moment + _log_output_moment(widths[-1], m))


def log_normal(widths: Sequence[int]) -> LogNormal:
    """Approximate law of log‖J_x u‖²: Gaussian, mean log(n_L/n_0) - β/2, variance β (§5).

    β = 5 Σ_{ℓ<L} 1/n_ℓ + 2/n_L, to first order in 1/width; derived here.
    """
    widths = check_widths(widths)
    beta = 5 * reciprocal_width_sum(widths) + 2 / widths[-1]
    return LogNormal(mean=2 * _half_log_ratio(widths) - beta / 2, variance=beta)


def dead_probability(widths: Sequence[int]) -> float:
    """Probability that some hidden layer is off at a point: 1 - ∏_{ℓ<L} (1 - 2^{-n_ℓ}).

    The image of a short curve then is a single point; derived here.
    """
    widths = check_widths(widths)
    return 0.0 - math.expm1(_sum_hidden(widths, lambda n: math.log1p(-(2.0**-n))))


def torch_default_mean_length(widths: Sequence[int]) -> float:
    """Leading order of the mean length distortion under PyTorch's own initialiser of `nn.Linear`.

    Its weights have variance 1/(3 fan-in), so L-1 hidden layers multiply `mean_length` by
    6^{-(L-1)/2} and the last one by 3^{-1/2}. That its law is uniform and not Gaussian is left
    out; derived here.
    """
    widths = check_widths(widths)
    log_gain = -0.5 * ((len(widths) - 2) * math.log(6) + math.log(3))
    log_mean = _log_hidden_factors(widths) + _log_output_moment(widths[-1], 1.0)
    return _exp(log_gain + log_mean + _half_log_ratio(widths))


def mean_square_norm(widths: Sequence[int], x_norm: float, bias_var: float) -> float:
    """E‖N(x)‖² = (n_L/n_0) ‖x‖² + n_L C_b (L+1)/2 at an input of norm `x_norm`.

    Exact; §5 states the first term. Derived here: each hidden layer adds C_b/2, the last one C_b.
    """
    widths = check_widths(widths)
    x_norm, bias_var = check_real("x_norm", x_norm, 0.0), check_real("bias_var", bias_var, 0.0)
    return widths[-1] * (x_norm**2 / widths[0] + bias_var * len(widths) / 2)


# ---- factors --------------------------------------------------------------------------------


def reciprocal_width_sum(widths: Sequence[int]) -> float:
    """S = Σ_{ℓ<L} 1/n_ℓ over the hidden layers."""
    return math.fsum(1 / n for n in check_widths(widths)[1:-1])


def layer_factor(n: int, slope: float = 0.0) -> float:
    """h(n) = √(2/n) E χ_B, B ~ Bin(n, ½): one hidden layer's factor of the mean length.

    With leaky `slope` a it is √(2/((1+a²) n)) E √Z, Z = Σ_i g_i² χ²_{1,i}, g_i = 1 or a.
    log h(n) = -5/(8n) - 3/(8n²) + O(n^{-3}) at slope 0.
    """
    n, slope = check_int("the width n", n, 1), check_slope(slope)
    return math.exp(_log_layer_factor(n, slope))


def output_constant(n: int) -> float:
    """C(n) = √(2/n) Γ((n+1)/2)/Γ(n/2) = E χ_n/√n: the linear last layer's factor."""
    return math.exp(_log_output_moment(check_int("the width n", n, 1), 1.0))


def leaky_decay(slope: float) -> float:
    """Decay rate of log h at leaky slope a: lim -n log h(n) = ⅛ [6(1+a⁴)/(1+a²)² - 1].

    5/8 for ReLU, 1/4 for a linear network; derived here.
    """
    square = check_slope(slope) ** 2
    return 0.125 * (6 * (1 + square**2) / (1 + square) ** 2 - 1)


# ---- volume ---------------------------------------------------------------------------------


def mean_volume(widths: Sequence[int], d: int) -> float:
    """Exact mean distortion of d-volume, 1 ≤ d ≤ n_0 (Thm 5.2, derived here).

    (n_L/n_0)^{d/2} C_d(n_L) ∏_{ℓ<L} h_d(n_ℓ), with B ~ Bin(n, ½),
    h_d(n) = (4/n)^{d/2} E[Γ((B+1)/2)/Γ((B-d+1)/2); B ≥ d] and
    C_d(n) = (2/n)^{d/2} Γ((n+1)/2)/Γ((n-d+1)/2). 0.0 if d > min(n_1, …, n_L).
    """
    widths, d = _check_volume(widths, d)
    if d > min(widths):
        return 0.0
    log_volume = _sum_hidden(widths, lambda n: _log_gate_volume(n, d))
    return _exp(d * _half_log_ratio(widths) + log_volume + _log_output_volume(widths[-1], d))


def truncated_mean_volume(widths: Sequence[int], d: int) -> float:
    """Leading order of `mean_volume` in 1/width of the hidden layers (derived here).

    (n_L/n_0)^{d/2} C_d(n_L) exp(-d(3d+2)/8 · Σ_{ℓ<L} 1/n_ℓ). 0.0 if d > min(n_1, …, n_L).
    """
    widths, d = _check_volume(widths, d)
    if d > min(widths):
        return 0.0
    log_volume = -d * (3 * d + 2) / 8 * reciprocal_width_sum(widths)
    return _exp(d * _half_log_ratio(widths) + log_volume + _log_output_volume(widths[-1], d))


def volume_second_moment(widths: Sequence[int], d: int) -> float:
    """E det of the d × d Gram matrix of J_x on a d-frame: the mean squared d-volume at a point.

    (n_L/n_0)^d ∏_{ℓ=1}^L ∏_{j<d} (1 - j/n_ℓ), exact (derived here). 0.0 if d > min(n_1, …, n_L).
    """
    widths, d = _check_volume(widths, d)
    if d > min(widths):
        return 0.0
    log_det = sum(
        count * float(np.log1p(-np.arange(d) / n).sum()) for n, count in Counter(widths[1:]).items()
    )
    return _exp(2 * d * _half_log_ratio(widths) + log_det)


def volume_bound(widths: Sequence[int], d: int) -> float:
    """Upper bound (n_L/n_0)^{d/2} exp(-½ (d choose 2) Σ_{ℓ=1}^L 1/n_ℓ) of `mean_volume`.

    By Cauchy-Schwarz from `volume_second_moment`, and 1-t ≤ e^{-t}; derived here.
    0.0 if d > min(n_1, …, n_L).
    """
    widths, d = _check_volume(widths, d)
    if d > min(widths):
        return 0.0
    total = reciprocal_width_sum(widths) + 1 / widths[-1]
    return _exp(d * _half_log_ratio(widths) - 0.5 * math.comb(d, 2) * total)


# ---- bounds of earlier papers ---------------------------------------------------------------


def price_tanner_bound(widths: Sequence[int]) -> float:
    """Price-Tanner-type lower bound √(n_L/n_0) π^{-(L-1)/2} √(2/π) of the mean length.

    Price & Tanner (arXiv 1911.10651) at dense He scale, formula from memory; the rectangular
    form with a linear last layer is derived here. 1/√π is h(1), the exact factor at width 1.
    """
    widths = check_widths(widths)
    log_layers = -0.5 * (len(widths) - 2) * math.log(math.pi)
    return _exp(_half_log_ratio(widths) + log_layers + 0.5 * math.log(2 / math.pi))


def raghu_bound(widths: Sequence[int]) -> float:
    """Raghu-type lower bound √(n_L/n_0) √(2/π) ∏_{ℓ<L} √(2/π · n_ℓ/(n_ℓ+1)) of the mean length.

    Raghu et al. (arXiv 1606.05336) leave the constant per layer open (recalled); the constant
    here is ours and rigorous. Label it so: this is not the line that any paper draws.
    """
    widths = check_widths(widths)
    log_layers = _sum_hidden(widths, lambda n: 0.5 * math.log(2 / math.pi * n / (n + 1)))
    return _exp(_half_log_ratio(widths) + log_layers + 0.5 * math.log(2 / math.pi))


# ---- angles ---------------------------------------------------------------------------------


def relu_angle(theta: np.ndarray | float) -> np.ndarray:
    """Angle between the images of two inputs at angle `theta` after one infinitely wide layer.

    cos θ' = (sin θ + (π-θ) cos θ)/π, the arc-cosine kernel of degree 1, without biases.
    `theta` in radians, in [0, π], any shape; float64 out, of the same shape.
    """
    theta = np.asarray(theta, dtype=np.float64)
    if not np.all((theta >= 0) & (theta <= math.pi)):
        raise ValueError("angles theta must lie in [0, π], in radians.")
    # arccos would lose half of the digits of a small angle, so take 1 - cos θ' = 2 sin²(θ'/2).
    versine = 2 * (math.pi - theta) * np.sin(theta / 2) ** 2 + theta - np.sin(theta)
    return 2 * np.arcsin(np.sqrt(versine / (2 * math.pi)))


# ---- logarithms of the factors --------------------------------------------------------------


def _check_volume(widths: Sequence[int], d: int) -> tuple[tuple[int, ...], int]:
    widths, d = check_widths(widths), check_int("the dimension d", d, 1)
    if d > widths[0]:
        raise ValueError(f"the dimension d must be at most n_0 = {widths[0]}; got {d}.")
    return widths, d


def _exp(log_value: float) -> float:
    return math.exp(log_value) if log_value <= _LOG_MAX else math.inf


def _half_log_ratio(widths: tuple[int, ...]) -> float:
    """log √(n_L/n_0)."""
    return 0.5 * (math.log(widths[-1]) - math.log(widths[0]))


def _sum_hidden(widths: tuple[int, ...], log_factor: Callable[[int], float]) -> float:
    """Σ_{ℓ<L} log_factor(n_ℓ), computed once for each distinct width."""
    counts = Counter(widths[1:-1])
    return math.fsum(count * log_factor(n) for n, count in counts.items())


def _log_hidden_factors(widths: tuple[int, ...], slope: float = 0.0) -> float:
    """Σ_{ℓ<L} log h(n_ℓ)."""
    return _sum_hidden(widths, lambda n: _log_layer_factor(n, slope))


def _log_layer_factor(n: int, slope: float) -> float:
    return _log_leaky_factor(n, abs(slope)) if slope else _log_gate_moment(n, 1.0)


@lru_cache(maxsize=65536)
def _log_gate_moment(n: int, m: float) -> float:
    """log h_m(n) = log[(2/n)^{m/2} E χ_B^m], B ~ Bin(n, ½)."""
    k, log_p = _log_binomial(n, 1, m)
    return float(m / 2 * math.log(4 / n) + logsumexp(log_p + _log_gamma_ratio(k / 2, m / 2)))


@lru_cache(maxsize=65536)
def _log_gate_volume(n: int, d: int) -> float:
    """log h_d(n) of `mean_volume`, for d ≤ n."""
    k, log_p = _log_binomial(n, d, d)
    log_ratio = _log_gamma_ratio((k - d + 1) / 2, d / 2)
    return float(d / 2 * math.log(4 / n) + logsumexp(log_p + log_ratio))


def _log_output_moment(n: int, m: float) -> float:
    """log C_m(n) = log[n^{-m/2} E χ_n^m]."""
    return m / 2 * math.log(2 / n) + float(_log_gamma_ratio(np.array(n / 2), m / 2))


def _log_output_volume(n: int, d: int) -> float:
    """log C_d(n) of `mean_volume`, for d ≤ n."""
    return d / 2 * math.log(2 / n) + float(_log_gamma_ratio(np.array((n - d + 1) / 2), d / 2))


def _log_binomial(n: int, low: int, tilt: float) -> tuple[np.ndarray, np.ndarray]:
    """Values k ≥ `low` of Bin(n, ½) that matter for E B^{tilt/2}, and log P(B = k).

    40 standard deviations about n/2, and room for the peak of k^{tilt/2} P(B = k), which lies
    about tilt/4 higher. The weights come from the ratios of neighbours and are scaled to sum to 1
    with P(B < low): differences of log Γ(n) would cost five digits at n = 100,000.
    """
    reach = 20 * math.sqrt(n) + tilt
    first, last = max(0, math.floor(n / 2 - reach)), min(n, math.ceil(n / 2 + reach))
    k = np.arange(first, last + 1)
    steps = np.log((n - k[:-1]) / (k[:-1] + 1))
    log_p = np.concatenate([[0.0], np.cumsum(steps)])
    log_p -= log_p[(n // 2) - first]
    log_p -= logsumexp(log_p)
    return k[k >= low].astype(np.float64), log_p[k >= low]


def _log_gamma_ratio(x: np.ndarray, a: float) -> np.ndarray:
    """log[Γ(x+a)/Γ(x)] for x > 0, a > 0, without the cancellation of two large log Γ."""
    large = np.maximum(x, 16.0)
    stirling = (large + a - 0.5) * np.log1p(a / large) - a + a * np.log(large)
    stirling += _stirling_rest(large + a) - _stirling_rest(large)
    return np.where(x < 16, gammaln(x + a) - gammaln(x), stirling)


def _stirling_rest(z: np.ndarray) -> np.ndarray:
    """What Stirling's formula leaves of log Γ(z); error below 1e-15 for z ≥ 16."""
    square = z**-2.0
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / z


@lru_cache(maxsize=65536)
def _log_leaky_factor(n: int, slope: float) -> float:
    """log h(n) at leaky slope a > 0, from E√Z = (1/(2√π)) ∫_0^∞ (1 - E e^{-sZ}) s^{-3/2} ds.

    E e^{-sZ} = [½(1+2s)^{-½} + ½(1+2a²s)^{-½}]^n. With s = e^t/n the integrand is analytic
    for |Im t| < π/2 and decays as e^{-|t|/2}, so the trapezium rule converges exponentially.
    """
    step = 0.25
    t = np.arange(-80.0, 80.0 + step, step)
    s = np.exp(t) / (n * (1 + slope**2))
    # One bracket less 1, kept off -1 where it rounds to it (the power then is 0 all the same).
    defect = 0.5 * (np.expm1(-0.5 * np.log1p(2 * s)) + np.expm1(-0.5 * np.log1p(2 * slope**2 * s)))
    defect = np.maximum(defect, np.nextafter(-1.0, 0.0))
    integrand = -np.expm1(n * np.log1p(defect)) * np.exp(-t / 2)
    # √(2/((1+a²)n)) E√Z; the substitution's √((1+a²)n) cancels against the prefactor.
    return math.log(math.sqrt(2) / (2 * math.sqrt(math.pi)) * step * float(integrand.sum()))
