"""Remarks on the initialisation: scale, output layer, biases, slopes; with `length_laws` (§3, §5).

The tables here are of Gaussian weights, and of PyTorch's default; `length_laws` has the other
laws. `draw` puts both into one figure.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments import length_laws
from paperlib.length import blocks, ensemble, statistics, theory
from paperlib.networks import laws
from paperlib.report import claims, style
from paperlib.report.rules import Measured

OUTPUTS = {
    "linear": ("linear, 1/fan-in", style.BLUE),
    "linear-he": ("linear, 2/fan-in", style.RED),
    "relu": ("ReLU, 2/fan-in", style.GREEN),
}
TREATMENTS = {
    "all biases × c": style.RED,
    "no biases": style.BLUE,
    "layer ℓ's bias × c^ℓ": style.GREEN,
}
ROUNDING = 1e-17  # deviations are drawn no smaller: 0 has no place on a logarithmic axis


def sample(
    n_0: int,
    width: int,
    n_L: int,
    depths: Sequence[int],
    scales: Sequence[float],
    slopes: Sequence[float],
    scale_bias_var: float,
    nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Mean distortion of n_0-[width]×depth-n_L by several initialisations; one row a cell.

    Columns: `family` ("scale", "output", "slope" or "torch-default"), `setting` (the scale c, the
    output's name, the slope), `hidden`, `nets`, `mean`, `low`, `high` (95 %), `exact` (of leading
    order for PyTorch's default), `bound` (of L3), `z` (by the exact ceiling of the standard
    deviation; none for PyTorch's default). Scales use biases of variance `scale_bias_var`; slopes
    only the largest depth.
    """
    plan = [("scale", c, h) for c in scales for h in depths]
    plan += [("output", name, h) for name in OUTPUTS for h in depths]
    plan += [("torch-default", "", h) for h in depths]
    plan += [("slope", a, max(depths)) for a in slopes]
    rows = []
    for index, (family, setting, hidden) in enumerate(plan):
        widths = [n_0, *[width] * hidden, n_L]
        # small scales shrink images below what float32 can tell apart
        shrinks = family in ("scale", "torch-default")
        options = {"precision": "double" if shrinks else "single"}
        if family == "torch-default":
            given = {"weight_law": family}
            exact = theory.torch_default_mean_length(widths)
        else:
            given = {family: setting}
            exact = theory.mean_length(widths, **given)
        if family == "scale":
            options["bias_var"] = scale_bias_var
        images = ensemble.sample_images(
            widths, nets, 1000 * seed + index, **given, **options, device=device
        )
        energy = statistics.mean_energy(widths, **given)
        mean = statistics.mean_interval(images, energy)
        ceiling = math.sqrt(energy - exact**2) if family != "torch-default" else math.nan
        rows.append(
            {
                "family": family,
                "setting": str(setting),
                "hidden": hidden,
                "nets": nets,
                "mean": mean.value,
                "low": mean.low,
                "high": mean.high,
                "exact": exact,
                "bound": theory.mean_length_bound(widths),
                "z": statistics.z_score(images.lengths, exact, ceiling),
            }
        )
    return pd.DataFrame(rows)


def sample_deviations(
    n_0: int, width: int, n_L: int, hidden: int, c: float, bias_var: float, nets: int, seed: int
) -> pd.DataFrame:
    """‖N_c(x) - c^L N(x)‖ / ‖c^L N(x)‖ for three ways to scale: a row a network and way.

    N_c is N with its weights multiplied by c, and its biases as TREATMENTS says. Float64; x is
    Gaussian, one a network. Columns: `treatment`, `deviation`.
    """
    widths = [n_0, *[width] * hidden, n_L]
    depth = len(widths) - 1
    powers = dict(zip(TREATMENTS, ([1] * depth, [1] * depth, range(1, depth + 1)), strict=True))
    found: dict[str, list[torch.Tensor]] = {treatment: [] for treatment in TREATMENTS}
    for index, size in enumerate(blocks.block_sizes(widths, nets, 1)):
        rng = laws.generator(seed, index)
        x = torch.randn(size, n_0, 1, dtype=torch.float64, generator=rng)
        layers = list(blocks.random_layers(rng, widths, size, bias_var=bias_var))
        for treatment, exponents in powers.items():
            biases = float(treatment != "no biases")
            plain = [layer._replace(bias=biases * layer.bias) for layer in layers]
            scaled = [
                layer._replace(weight=c * layer.weight, bias=c**k * layer.bias)
                for layer, k in zip(plain, exponents, strict=True)
            ]
            wanted = c**depth * _outputs(plain, x)  # (nets, n_L)
            error = torch.linalg.vector_norm(_outputs(scaled, x) - wanted, dim=1)
            # without biases a network that is off altogether gives 0 both ways
            norm = torch.linalg.vector_norm(wanted, dim=1).clamp(min=1e-300)
            found[treatment].append(error / norm)
    parts = [
        pd.DataFrame({"treatment": treatment, "deviation": torch.cat(pieces).numpy()})
        for treatment, pieces in found.items()
    ]
    return pd.concat(parts, ignore_index=True)


def sample_square_norms(
    n_0: int,
    width: int,
    n_L: int,
    depths: Sequence[int],
    bias_vars: Sequence[float],
    x_norm: float,
    nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Mean of ‖N(x)‖² at an input of norm `x_norm`, beside its exact value; a row a cell.

    Columns: `bias_var`, `hidden`, `nets`, `mean`, `low`, `high` (95 %, by the exact standard
    deviation), `exact`, `z`.
    """
    plan = [(bias_var, hidden) for bias_var in bias_vars for hidden in depths]
    rows = []
    for index, (bias_var, hidden) in enumerate(plan):
        widths = [n_0, *[width] * hidden, n_L]
        squares = _square_norms(widths, x_norm, bias_var, nets, 1000 * seed + index, device)
        exact = theory.mean_square_norm(widths, x_norm, bias_var)
        sd = square_norm_sd(widths, x_norm, bias_var)
        half = 1.96 * sd / math.sqrt(nets)
        rows.append(
            {
                "bias_var": bias_var,
                "hidden": hidden,
                "nets": nets,
                "mean": squares.mean(),
                "low": squares.mean() - half,
                "high": squares.mean() + half,
                "exact": exact,
                "z": statistics.z_score(squares, exact, sd),
            }
        )
    return pd.DataFrame(rows)


def square_norm_sd(widths: Sequence[int], x_norm: float, bias_var: float) -> float:
    """Exact standard deviation of ‖N(x)‖² by the paper's initialisation (derived here).

    Given the layer before, pre-activations are independent N(0, s) with s = 2‖z‖²/n + C_b, so that
    the next ‖z‖² is s χ²_B with B ~ Bin(n, ½): two linear recursions for its first two moments.
    """
    first, second = x_norm**2, x_norm**4
    last = len(widths) - 2
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        gain = (1 if layer == last else 2) / n_in
        chi, chi_square = n_out / 2, n_out * (n_out + 5) / 4
        if layer == last:
            chi, chi_square = n_out, n_out * (n_out + 2)
        # the second moment first: it needs the old first one
        second = (gain**2 * second + 2 * gain * bias_var * first + bias_var**2) * chi_square
        first = (gain * first + bias_var) * chi
    return math.sqrt(second - first**2)


def leaky_table(
    slopes: Sequence[float], n_0: int, width: int, n_L: int, hidden: int
) -> pd.DataFrame:
    """Closed forms by leaky slope: limit rate, the rate at this width, and the exact mean.

    Columns: `slope`, `rate as n → ∞`, `rate at this width`, `exact mean`.
    """
    widths = [n_0, *[width] * hidden, n_L]
    return pd.DataFrame(
        {
            "slope": list(slopes),
            "rate as n → ∞": [theory.leaky_decay(a) for a in slopes],
            "rate at this width": [
                -width * math.log(theory.layer_factor(width, a)) for a in slopes
            ],
            "exact mean": [theory.mean_length(widths, slope=a) for a in slopes],
        }
    )


def cells(means: pd.DataFrame, *families: str) -> pd.DataFrame:
    """The rows of `sample` that belong to these families, numbered anew."""
    return means[means.family.isin(families)].reset_index(drop=True)


def judge(
    means: pd.DataFrame, deviations: pd.DataFrame, norms: pd.DataFrame
) -> list[claims.Verdict]:
    """Verdicts on L3b, L7a, L7b and L8 from the three tables of this module."""
    scales = means[means.family == "scale"]
    ratios = means[["mean", "low", "high"]].div(means.bound, axis=0)
    shallow = means.hidden == means.hidden.min()
    he = ratios[(means.setting == "linear-he") & shallow].iloc[0]
    relu = ratios[means.setting == "relu"].max()
    biased = deviations[deviations.treatment == "all biases × c"].deviation
    bare = norms.bias_var == 0
    drawn = f"{means.nets.iloc[0]:,} networks a cell"
    return [
        claims.check(
            "L3b", {"he_ratio": Measured(*he), "relu_ratio": Measured(*relu)}, sample=drawn
        ),
        claims.check(
            "L7a",
            float(biased.max()),
            sample=f"{len(biased):,} networks",
            note="One network is enough to refute it; without biases, or with the bias of layer ℓ "
            "multiplied by c^ℓ, it is exact to rounding.",
        ),
        claims.check("L7b", statistics.z_tail(scales.z), sample=f"{len(scales)} cells, {drawn}"),
        claims.check(
            "L8",
            {
                "no_bias_z_tail": statistics.z_tail(norms.z[bare]),
                "bias_z_tail": statistics.z_tail(norms.z[~bare]),
            },
            sample=f"{len(norms)} cells, {norms.nets.iloc[0]:,} networks a cell",
        ),
    ]


def draw(
    means: pd.DataFrame,
    deviations: pd.DataFrame,
    norms: pd.DataFrame,
    rates: pd.DataFrame,
    directions: pd.DataFrame,
) -> Figure:
    """Six panels: scale, its paths, output layer, square norm, decay rates, directions."""
    fig = Figure(figsize=(style.PAGE, 8.4))
    axes = fig.subplots(3, 2).flat
    titles = (
        "a  mean, weights and biases × $c$",
        "b  output against $c^L$ × output",
        "c  mean, three output layers",
        "d  mean square norm with biases",
        "e  other weight laws: the rate",
        "f  other weight laws: direction",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title)
    axes = fig.axes
    _draw_scales(axes[0], means)
    _draw_deviations(axes[1], deviations)
    _draw_outputs(axes[2], means)
    _draw_norms(axes[3], norms)
    length_laws.draw_rates(axes[4], rates)
    length_laws.draw_directions(axes[5], directions)
    return fig


def _draw_scales(ax: Axes, means: pd.DataFrame) -> None:
    rows = means[means.family.isin(["scale", "torch-default"])]
    settings = sorted(rows.setting[rows.family == "scale"].unique(), key=float, reverse=True)
    colours = [*style.family(len(settings)), style.RED]
    texts = [f"$c$ = {c}" for c in settings] + ["PyTorch's\ndefault"]
    _draw_means(ax, rows, [*settings, ""], texts, colours)
    ax.set(yscale="log")


def _draw_outputs(ax: Axes, means: pd.DataFrame) -> None:
    rows = means[means.family == "output"]
    texts, colours = zip(*OUTPUTS.values(), strict=True)
    ax.set(ylim=(0, 1.42))
    _draw_means(ax, rows, list(OUTPUTS), list(texts), list(colours))
    bound = rows.bound.iloc[0]
    ax.axhline(bound, color=style.BLACK, linestyle="--", linewidth=1)
    ax.annotate(
        f"bound {bound:.4f}",
        (0, bound),
        (5, 4),
        textcoords="offset points",
        fontsize=style.SMALL,
    )


def _draw_means(
    ax: Axes,
    rows: pd.DataFrame,
    settings: Sequence[str],
    texts: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Exact lines with sampled points through them, named at their right ends."""
    last = rows.hidden.max()
    ax.set(xlabel="hidden layers $L-1$", ylabel="mean length distortion", xlim=(0, last))
    for setting, colour in zip(settings, colours, strict=True):
        line = rows[rows.setting == setting]
        ax.plot(line.hidden, line.exact, color=colour)
        style.intervals(ax, line.hidden, line["mean"], line.low, line.high, color=colour)
    ends = rows[rows.hidden == last].set_index("setting").exact
    style.end_labels(ax, last, list(ends[list(settings)]), texts, colours)


def _draw_deviations(ax: Axes, deviations: pd.DataFrame) -> None:
    for height, (treatment, colour) in zip((0.5, 0.65, 0.35), TREATMENTS.items(), strict=True):
        values = deviations.deviation[deviations.treatment == treatment].clip(lower=ROUNDING)
        ax.plot(np.sort(values), np.linspace(0, 1, len(values)), color=colour)
        middle = values.median()
        # the text goes to the side where the middle of the axis lies
        side = 1 if middle < 1e-8 else -1
        ax.annotate(
            treatment.replace("c^ℓ", "$c^\\ell$"),
            (middle, height),
            (side * 12, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            color=colour,
            fontsize=style.SMALL,
        )
    ax.set(xscale="log", xlabel="relative deviation of the output", ylabel="share of networks")
    ax.set_xlim(ROUNDING / 3, 100)
    ax.set_xticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
    ax.minorticks_off()


def _draw_norms(ax: Axes, norms: pd.DataFrame) -> None:
    bias_vars = sorted(norms.bias_var.unique(), reverse=True)
    colours = style.family(len(bias_vars))
    last = norms.hidden.max()
    ax.set(xlabel="hidden layers $L-1$", ylabel="mean of $\\|N(x)\\|^2$", xlim=(0, last))
    for bias_var, colour in zip(bias_vars, colours, strict=True):
        rows = norms[norms.bias_var == bias_var]
        ax.plot(rows.hidden, rows.exact, color=colour)
        style.intervals(ax, rows.hidden, rows["mean"], rows.low, rows.high, color=colour)
    ax.set(ylim=(0, None))
    ends = norms[norms.hidden == last].set_index("bias_var").exact[bias_vars]
    style.end_labels(ax, last, list(ends), [f"$C_b$ = {b:g}" for b in bias_vars], colours)


def _outputs(layers: Sequence[blocks.Layer], x: torch.Tensor) -> torch.Tensor:
    """N(x) of each network of the block, `(nets, n_L)`; `x` is `(nets, n_0, 1)`."""
    for layer in layers:
        x = layer.weight @ x + layer.bias[:, :, None]  # (nets, n_l, 1)
        if layer.gated:
            x = x.relu()
    return x[:, :, 0]


def _square_norms(
    widths: Sequence[int], x_norm: float, bias_var: float, nets: int, seed: int, device: str
) -> np.ndarray:
    """‖N(x)‖² of fresh networks at x = `x_norm` (1, …, 1)/√n_0, `(nets,)`."""
    found = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, 1)):
        rng = laws.generator(seed, index, device=device)
        x = torch.full((size, widths[0], 1), x_norm / math.sqrt(widths[0]), dtype=torch.float64)
        layers = list(blocks.random_layers(rng, widths, size, bias_var=bias_var))
        found.append(_outputs(layers, x.to(device)).square().sum(dim=1).cpu())
    return torch.cat(found).numpy()
