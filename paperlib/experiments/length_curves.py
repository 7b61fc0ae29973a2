"""§3 and §5 of `length`: what the curve, the biases and the counting of length do to the result."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import devices
from paperlib.experiments.cells import label, summary
from paperlib.length import batched, blocks, curves, ensemble, exact, statistics, theory
from paperlib.networks import laws
from paperlib.report import claims, style
from paperlib.report.rules import Measured

SHORT = 1e-4  # length of a segment along which hardly any network has a breakpoint
SETTINGS = ((1.0, 0.01), (100.0, 1.0))  # (length of the segment, C_b) of the usual method's test
_JUDGED_DEPTH = 10  # hidden layers at which claim L6b is judged


class Study(NamedTuple):
    """The tables of `sample`, all tidy; every interval has 95 %."""

    cells: pd.DataFrame
    """A row a `curve` and `bias_var`: `size` (length of the curve, of a Gaussian segment the mean
    length), and the columns of `cells.summary`."""
    sets: pd.DataFrame
    """A row a number of `hidden` layers, for one output: `nets`, `mean` length with multiplicity
    with `low` and `high`, `exact`, `z`; `set_mean`, `set_low`, `set_high` of the image as a set;
    `deficit` of that against `exact`, with `deficit_low` and `deficit_high`."""
    points: pd.DataFrame
    """A row a `setting` and number of `points`: mean `ratio` of the length of the polygon through
    so many points to the exact length, over `nets` networks that are not constant, with `low` and
    `high`."""

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables for `figures.save`."""
        return {"": self.cells, "sets": self.sets, "points": self.points}


def sample(
    n_0: int,
    width: int,
    depth: int,
    n_L: int,
    bias_vars: Sequence[float],
    nets: int,
    set_depths: Sequence[int],
    set_nets: int,
    points_depth: int,
    points: Sequence[int],
    points_nets: int,
    seed: int,
    device: str,
) -> Study:
    """Sample the three tables; cell i of all of them draws from seed 1000 seed + i.

    Args:
        n_0, width, depth, n_L, nets: networks n_0-[width]×depth-n_L, for five curves at every
            bias variance C_b of `bias_vars`.
        set_depths, set_nets: networks n_0-[width]×depth-1.
        points_depth, points, points_nets: networks n_0-[width]×points_depth-n_L, numbers of
            points, and networks a setting of SETTINGS.
        seed, device: as everywhere.
    """
    seeds = itertools.count(1000 * seed)
    cells = [
        _cell([n_0, *[width] * depth, n_L], name, bias_var, nets, next(seeds), device)
        for name in _curves(n_0)
        for bias_var in bias_vars
    ]
    sets = [
        _set([n_0, *[width] * hidden, 1], set_nets, next(seeds), device) for hidden in set_depths
    ]
    usual = [
        _points(
            [n_0, *[width] * points_depth, n_L],
            *setting,
            points,
            points_nets,
            next(seeds),
            device,
        )
        for setting in SETTINGS
    ]
    return Study(pd.DataFrame(cells), pd.DataFrame(sets), pd.concat(usual, ignore_index=True))


def exact_table(
    n_0: int, width: int, depth: int, n_L: int, set_depths: Sequence[int]
) -> pd.DataFrame:
    """The exact means that the samples meet, and the variance's ceiling, a row an architecture."""
    architectures = [[n_0, *[width] * depth, n_L], *([n_0, *[width] * d, 1] for d in set_depths)]
    rows = [
        {
            "architecture": label(widths),
            "exact mean": theory.mean_length(widths),
            "ceiling of the variance": theory.variance_bound(widths).sharp,
        }
        for widths in architectures
    ]
    return pd.DataFrame(rows)


def variance_table(cells: pd.DataFrame) -> pd.DataFrame:
    """The variances of the table: a row a curve, a column a bias variance."""
    table = cells.pivot(index="curve", columns="bias_var", values="variance")
    return table.loc[list(dict.fromkeys(cells.curve))].rename_axis(columns="$C_b$")


def judge(study: Study) -> list[claims.Verdict]:
    """Verdicts on L6a, L6b, L16a and L16b from the tables of `sample`."""
    cells, sets = study.cells, study.sets
    deep = sets[sets.hidden == _JUDGED_DEPTH]
    in_sets = f"{sets.nets.iloc[0]:,} networks a depth"
    in_cells = f"{len(cells)} cells of {cells.nets.iloc[0]:,} networks"
    deficit = deep[["deficit", "deficit_low", "deficit_high"]]
    return [
        claims.check("L6a", statistics.z_tail(sets.z), sample=in_sets),
        claims.check("L6b", Measured(*deficit.iloc[0]), sample=in_sets)
        if len(deep)
        else claims.not_run("L6b", f"needs {_JUDGED_DEPTH} among the depths of one output"),
        claims.check("L16a", statistics.z_tail(cells.z), sample=in_cells),
        claims.check("L16b", _variance_ratio(cells), sample=in_cells),
    ]


def draw(study: Study) -> Figure:
    """Mean and variance by curve, length of the image as a set, and the usual method's bias."""
    fig = Figure(figsize=(style.PAGE, 5.8))
    (mean, variance), (sets, points) = fig.subplots(2, 2)
    _draw_means(mean, study.cells)
    _draw_variances(variance, study.cells)
    _draw_sets(sets, study.sets)
    _draw_points(points, study.points)
    return fig


# ---- sampling -------------------------------------------------------------------------------


def _curves(n_0: int) -> dict[str, str | torch.Tensor]:
    return {
        "short segment": curves.segment(n_0, SHORT),
        "unit segment": curves.segment(n_0),
        "long segment": curves.segment(n_0, 100.0),
        "Gaussian segment": "gaussian",
        "circle": curves.circle(n_0),
    }


def _cell(
    widths: Sequence[int], name: str, bias_var: float, nets: int, seed: int, device: str
) -> dict[str, object]:
    curve = _curves(widths[0])[name]
    # float32 would round the differences along a curve much shorter than its image is far away
    precision = "double" if name == "short segment" else "single"
    found = ensemble.sample_images(
        widths, nets, seed, curve=curve, bias_var=bias_var, precision=precision, device=device
    )
    size = _size(curve, widths[0])
    return {"curve": name, "bias_var": bias_var, "size": size, **summary(widths, found)}


def _size(curve: str | torch.Tensor, n_0: int) -> float:
    """Length of a curve; of a Gaussian segment the mean, √2 E χ_{n_0}."""
    if isinstance(curve, str):
        return float(np.sqrt(2 * n_0) * theory.output_constant(n_0))
    return float(exact.arc_length(curve)[-1])


def _set(widths: Sequence[int], nets: int, seed: int, device: str) -> dict[str, object]:
    segment = curves.segment(widths[0])
    found = ensemble.sample_images(
        widths, nets, seed, curve=segment, precision="single", device=device
    )
    energy, expected = statistics.mean_energy(widths), theory.mean_length(widths)
    mean = statistics.mean_interval(found, energy)
    # with one output the span is the measure of the image set, and below the length
    image = statistics.mean_interval(replace(found, lengths=found.spans), energy)
    ceiling = theory.variance_bound(widths).sharp
    return {
        "hidden": len(widths) - 2,
        "nets": nets,
        "mean": mean.value,
        "low": mean.low,
        "high": mean.high,
        "exact": expected,
        "z": statistics.z_score(found.lengths, expected, ceiling**0.5),
        "set_mean": image.value,
        "set_low": image.low,
        "set_high": image.high,
        "deficit": 1 - image.value / expected,
        "deficit_low": 1 - image.high / expected,
        "deficit_high": 1 - image.low / expected,
    }


@blocks.one_thread()
def _points(
    widths: Sequence[int],
    length: float,
    bias_var: float,
    points: Sequence[int],
    nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    where = devices.resolve(device)
    segment = curves.segment(widths[0], length).to(where)
    ratios = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, max(points))):
        rng = laws.generator(seed, index, device=where)
        layers = list(blocks.random_layers(rng, widths, size, bias_var=bias_var))
        measured = batched.measure(
            layers,
            segment.expand(size, 2, widths[0]),
            exact.arc_length(segment).expand(size, 2),
            slope=0.0,
            max_bytes=2**28,
        )[:, 0]  # (nets,): exact lengths
        usual = torch.stack([_usual_length(layers, segment, count) for count in points], dim=1)
        ratios.append((usual / measured[:, None])[measured > 0].cpu())  # (nets, counts)
    ratio = torch.cat(ratios).numpy()
    mean, half = ratio.mean(axis=0), 1.96 * ratio.std(axis=0, ddof=1) / np.sqrt(len(ratio))
    return pd.DataFrame(
        {
            "setting": f"length {length:g}, $C_b$ = {bias_var:g}",
            "points": points,
            "nets": len(ratio),
            "ratio": mean,
            "low": mean - half,
            "high": mean + half,
        }
    )


def _usual_length(
    layers: Iterable[blocks.Layer], segment: torch.Tensor, count: int
) -> torch.Tensor:
    """Length of the polygon through the images of `count` equally spaced points, `(nets,)`."""
    share = torch.linspace(0, 1, count, dtype=torch.float64, device=segment.device)[:, None]
    z = torch.lerp(segment[:1], segment[1:], share)  # (count, n_0)
    for layer in layers:
        z = z @ layer.weight.mT  # (nets, count, n_l)
        z += layer.bias[:, None]
        if layer.gated:
            z.relu_()
    return exact.polygon_steps(z).sum(dim=1)


# ---- judging and drawing --------------------------------------------------------------------


def _variance_ratio(cells: pd.DataFrame) -> Measured:
    """Largest over smallest plain variance; the ends divide the ends of both intervals."""
    plain = cells[["plain_variance", "plain_low", "plain_high"]]
    value, low, high = plain.loc[plain.plain_variance.idxmax()]
    least, least_low, least_high = plain.loc[plain.plain_variance.idxmin()]
    return Measured(value / least, low / least_high, high / least_low)


def _draw_means(ax: Axes, cells: pd.DataFrame) -> None:
    """Means in groups of one bias variance, a colour a curve."""
    names, bias_vars = list(dict.fromkeys(cells.curve)), sorted(cells.bias_var.unique())
    ax.axhline(cells.exact.iloc[0], color=style.BLACK, linewidth=1)
    for index, name in enumerate(names):
        rows = cells[cells.curve == name].sort_values("bias_var")
        x = np.arange(len(bias_vars)) + 0.13 * (index - (len(names) - 1) / 2)
        style.intervals(ax, x, rows["mean"], rows.low, rows.high, color=style.QUALITATIVE[index])
    ax.set_xticks(range(len(bias_vars)), [f"{value:g}" for value in bias_vars])
    ax.set(xlabel="bias variance $C_b$", ylabel="mean length distortion", title="Mean, line exact")
    ax.grid(visible=False, axis="x")


def _draw_variances(ax: Axes, cells: pd.DataFrame) -> None:
    """Variances against size/√C_b, on which alone each shape of curve depends."""
    with np.errstate(divide="ignore"):
        reach = cells["size"] / np.sqrt(cells.bias_var)
    infinity = 100 * reach[np.isfinite(reach)].max()
    x = reach.where(np.isfinite(reach), infinity)
    ceiling = cells.ceiling.iloc[0]
    ax.axhline(ceiling, color=style.BLACK, linestyle="--", linewidth=1)
    ax.annotate(
        "exact ceiling", (infinity, ceiling), (0, 4),
        textcoords="offset points", ha="right", fontsize=style.SMALL,
    )  # fmt: skip
    for index, name in enumerate(dict.fromkeys(cells.curve)):
        at = cells.curve == name
        style.intervals(
            ax, x[at], cells.variance[at], cells.variance_low[at], cells.variance_high[at],
            color=style.QUALITATIVE[index], label=name,
        )  # fmt: skip
    ax.set(xscale="log", ylim=(0, None), ylabel="variance", title="Variance")
    ax.set_xlabel("length of the curve / $\\sqrt{C_b}$")
    decades = np.arange(np.ceil(np.log10(x.min())), np.log10(infinity) - 1, 3).astype(int)
    ax.set_xticks([*(10.0**decades), infinity], [*(f"$10^{{{d}}}$" for d in decades), "$\\infty$"])
    ax.minorticks_off()
    ax.legend(loc="lower left")


def _draw_sets(ax: Axes, sets: pd.DataFrame) -> None:
    """Length with multiplicity on its exact value, and the measure of the image set."""
    ax.plot(sets.hidden, sets.exact, color=style.BLACK, linewidth=1)
    style.intervals(ax, sets.hidden, sets["mean"], sets.low, sets.high, color=style.BLUE)
    ax.plot(sets.hidden, sets.set_mean, color=style.RED, linewidth=1)
    style.intervals(ax, sets.hidden, sets.set_mean, sets.set_low, sets.set_high, color=style.RED)
    inner = sets.iloc[-2:].iloc[0]  # the last depth but one, where there are two
    for text, height, colour in (
        ("with multiplicity, line exact", inner.exact, style.BLUE),
        ("as a set of points", inner.set_mean, style.RED),
    ):
        ax.annotate(
            text, (inner.hidden, height), (7, 7),
            textcoords="offset points", color=colour, fontsize=style.SMALL,
        )  # fmt: skip
    ax.set_xticks(sets.hidden)
    ax.set(xlabel="hidden layers $L-1$", ylabel="mean length distortion", ylim=(0, None))
    ax.set(title="One output: the image's length")


def _draw_points(ax: Axes, points: pd.DataFrame) -> None:
    """Length from P points over the exact one."""
    ax.axhline(1, color=style.BLACK, linewidth=1)
    for setting, colour in zip(points.setting.unique(), style.QUALITATIVE, strict=False):
        rows = points[points.setting == setting]
        ax.plot(rows.points, rows.ratio, color=colour, linewidth=1)
        style.intervals(
            ax, rows.points, rows.ratio, rows.low, rows.high, color=colour, label=setting
        )
    first = points[points.setting == points.setting.iloc[0]]
    for count, ratio in zip(first.points, first.ratio, strict=True):
        ax.annotate(
            f"\N{MINUS SIGN}{100 * (1 - ratio):.2g} %", (count, ratio), (4, -13),
            textcoords="offset points", color=style.QUALITATIVE[0], fontsize=style.SMALL,
        )  # fmt: skip
    ax.set(xscale="log", xlim=(1.5, 3.5 * points.points.max()), ylim=(0, 1.05))
    ax.set(xlabel="points on the curve", ylabel="ratio to the exact length")
    ax.set(title="Length from sampled points")
    ax.legend(loc="lower right")
