"""Fig. 3 of `length`: mean and variance of the length distortion over many architectures."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike

from paperlib.choices import check_choice
from paperlib.experiments.cells import label, sample_cells
from paperlib.length import curves, ensemble, statistics, theory
from paperlib.report import claims, style
from paperlib.report.rules import Measured

# Hidden widths of the architectures that L5 compares: Σ1/n is one half in each, exactly.
HALVES = (
    [2],
    [4] * 2,
    [3, 6],
    [10] * 5,
    [20] * 10,
    [100] * 50,
    [20, 20, 4, 20, 20, 20],
    [4, 8, 16, 32, 32],
    [32, 32, 16, 8, 4],
    [6, 12, 6, 12],
)

CEILING = {"color": style.BLACK, "linestyle": ":", "linewidth": 1}


def _growing(width: int, depth: int) -> list[int]:
    return [round(n) for n in np.geomspace(width / 2, 2 * width, depth)]


def _bottleneck(width: int, depth: int) -> list[int]:
    middle = depth // 2
    return [width] * middle + [max(1, width // 4)] + [width] * (depth - middle - 1)


SHAPES: dict[str, Callable[[int, int], list[int]]] = {
    "constant": lambda width, depth: [width] * depth,
    "bottleneck": _bottleneck,
    "growing": _growing,
    "shrinking": lambda width, depth: _growing(width, depth)[::-1],
    "alternating": lambda width, depth: [2 * width if i % 2 else width // 2 for i in range(depth)],
}


def hidden_widths(shape: str, width: int, depth: int) -> list[int]:
    """`depth` hidden widths about `width`, by the name of their shape.

    "constant"; "bottleneck": one layer in the middle of a quarter of the width; "growing" from
    half to twice the width in equal ratios; "shrinking", the reverse; "alternating" between half
    and twice the width. ValueError for another name.
    """
    return SHAPES[check_choice("shape", shape, SHAPES)](width, depth)


def sample(
    shapes: Sequence[str],
    widths: Sequence[int],
    depths: Sequence[int],
    n_0: int,
    n_L: int,
    rel_error: float,
    max_nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Mean and variance of the distortion for every shape, width and depth.

    A row each, as `cells.sample_cells` has it, and the column `shape`. Gaussian segments,
    C_b = 0.01.
    """
    grid = [(shape, width, depth) for shape in shapes for width in widths for depth in depths]
    table = sample_cells(
        [[n_0, *hidden_widths(*cell), n_L] for cell in grid],
        seed=2 * seed,  # even thousands; those of `sample_trend` are odd
        rel_error=rel_error,
        max_nets=max_nets,
        device=device,
    )
    table.insert(1, "shape", [shape for shape, _, _ in grid])
    return table


def sample_trend(
    trend_widths: Sequence[int],
    trend_depths: Sequence[int],
    length: float,
    other_lengths: Sequence[float],
    bias_var: float,
    nets: int,
    n_0: int,
    n_L: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Variance of the distortion against depth: each width at `length`, the first at all lengths.

    The curve is a segment centred at the origin. Columns: `width`, `length`, `hidden`,
    `reciprocal_sum`, `nets`, `variance`, `low`, `high` (95 %), `ceiling`.
    """
    lines = [(width, length) for width in trend_widths]
    lines += [(trend_widths[0], other) for other in other_lengths if other != length]
    rows = []
    for index, (width, along, depth) in enumerate(
        (*line, depth) for line in lines for depth in trend_depths
    ):
        widths = [n_0, *[width] * depth, n_L]
        drawn = ensemble.sample_images(
            widths,
            nets,
            1000 * (2 * seed + 1) + index,
            curve=curves.segment(n_0, along),
            bias_var=bias_var,
            device=device,
            # a short curve far from the origin would lose digits in float32
            precision="single" if along >= 1 else "double",
        )
        variance = statistics.variance_interval(drawn, statistics.mean_energy(widths))
        rows.append(
            {
                "width": width,
                "length": along,
                "hidden": depth,
                "reciprocal_sum": theory.reciprocal_width_sum(widths),
                "nets": nets,
                "variance": variance.value,
                "low": variance.low,
                "high": variance.high,
                "ceiling": theory.variance_bound(widths).sharp,
            }
        )
    return pd.DataFrame(rows)


def equal_sums(n_0: int, n_L: int) -> pd.DataFrame:
    """Exact means of architectures whose Σ1/n_ℓ is one half, in rising order.

    Columns: `architecture`, `reciprocal_sum`, `exact`, `truncated` ((5.1) without its O-term),
    `deviation` (exact over truncated, minus 1).
    """
    grid = [[n_0, *hidden, n_L] for hidden in HALVES]
    table = pd.DataFrame(
        {
            "architecture": [label(widths) for widths in grid],
            "reciprocal_sum": [theory.reciprocal_width_sum(widths) for widths in grid],
            "exact": [theory.mean_length(widths) for widths in grid],
            "truncated": [theory.truncated_mean_length(widths) for widths in grid],
        }
    )
    table["deviation"] = table.exact / table.truncated - 1
    return table.sort_values("exact", ignore_index=True)


def variance_by_depth(trend: pd.DataFrame) -> pd.DataFrame:
    """The variances of `sample_trend`: a row a width and length, a column a hidden layer number."""
    grid = trend.pivot(index=["width", "length"], columns="hidden", values="variance")
    return grid.rename_axis(columns="hidden layers")


def judge(table: pd.DataFrame, trend: pd.DataFrame) -> list[claims.Verdict]:
    """Verdicts on L5 (exact means alone), L9 (`table`) and L10 (`trend`, its first line)."""
    exact = equal_sums(int(table.n_0.iloc[0]), int(table.n_L.iloc[0])).exact
    variance = table[["plain_variance", "plain_low", "plain_high"]]
    cells = f"{len(table)} architectures, {table.nets.min():,} to {table.nets.max():,} networks"
    growth = {key: _growth(rows) for key, rows in trend.groupby(["width", "length"], sort=False)}
    (width, length), first = next(iter(growth.items()))
    others = ", ".join(
        f"{grown.value:.2g} at width {w} and length {along:g}"
        for (w, along), grown in growth.items()
        if (w, along) != (width, length)
    )
    return [
        claims.check("L5", float((exact.max() - exact.min()) / exact.mean())),
        claims.check(
            "L9",
            {
                "energy_z_tail": statistics.z_tail(table.energy_z),
                "bound_ratio": Measured(*variance.div(table.variance_bound, axis=0).max()),
                "ceiling_ratio": Measured(*variance.div(table.ceiling, axis=0).max()),
            },
            sample=cells,
        ),
        claims.check(
            "L10",
            first,
            sample=f"{trend.nets.iloc[0]:,} networks a cell",
            note=f"At width {width} and length {length:g}; {others}.",
        ),
    ]


def draw(table: pd.DataFrame, trend: pd.DataFrame) -> Figure:
    """Mean and variance against Σ1/n, and variance against depth by width and by curve length."""
    fig = Figure(figsize=(style.PAGE, 6.2))
    (mean, variance), (by_width, by_length) = fig.subplots(2, 2)
    _draw_mean(mean, table)
    _draw_variance(variance, table)
    width, length = trend.width.iloc[0], trend.length.iloc[0]
    lines = trend[trend.length == length]
    _draw_trend(by_width, lines, "width", "width {}")
    by_width.set_title(f"Variance, segment of length {length:g}")
    lines = trend[trend.width == width].sort_values(["length", "hidden"])
    _draw_trend(by_length, lines, "length", "length {:g}")
    by_length.set_title(f"Variance, width {width}")
    ceiling = lines[lines.length == length]
    by_length.plot(ceiling.hidden, ceiling.ceiling, **CEILING)
    by_length.set_ylim(0, 1.06 * ceiling.ceiling.max())
    _name(by_length, "ceiling", ceiling.hidden, ceiling.ceiling, (-8, 4), ha="right")
    return fig


def _draw_mean(ax: Axes, table: pd.DataFrame) -> None:
    sums = np.linspace(0, 1.03 * table.reciprocal_sum.max(), 50)
    law = table.bound.iloc[0] * np.exp(-0.625 * sums)
    ax.plot(sums, law, color=style.BLACK, linewidth=1)
    _name(ax, r"$C\,e^{-\frac{5}{8}\sum 1/n_\ell}$", sums, law, (4, 4), ha="left")
    _draw_shapes(ax, table, "mean", "low", "high")
    ax.set(yscale="log", xlim=(0, sums[-1]), ylim=(law[-1] / 1.6, 1.2))
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 4, 6)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set(ylabel="mean length distortion", title="Mean")
    _draw_equal_sums(ax.inset_axes((0.05, 0.13, 0.5, 0.12)), table)


def _draw_equal_sums(ax: Axes, table: pd.DataFrame) -> None:
    exact = equal_sums(int(table.n_0.iloc[0]), int(table.n_L.iloc[0]))
    ax.axvline(exact.truncated[0], color=style.BLACK, linewidth=1)
    ax.plot(exact.exact, [0] * len(exact), "o", color=style.GREY, alpha=0.7, markeredgewidth=0)
    ax.set_title(r"exact means at $\sum 1/n_\ell = 1/2$", fontsize=style.SMALL, weight="normal")
    ax.spines["left"].set_visible(False)
    ax.grid(False)
    ax.set_yticks([])
    ax.locator_params(axis="x", nbins=4)


def _draw_variance(ax: Axes, table: pd.DataFrame) -> None:
    bound = table.variance_bound.iloc[0]
    ax.axhline(bound, color=style.BLACK, linestyle="--", linewidth=1)
    ax.annotate("$n_L/n_0$", (0, bound), (4, 4), textcoords="offset points", fontsize=style.SMALL)
    ceiling = table.sort_values("reciprocal_sum")
    ax.plot(ceiling.reciprocal_sum, ceiling.ceiling, **CEILING)
    _name(ax, "ceiling", ceiling.reciprocal_sum, ceiling.ceiling, (-8, 4), ha="right")
    _draw_shapes(ax, table, "variance", "variance_low", "variance_high")
    ax.set(xlim=(0, 1.03 * table.reciprocal_sum.max()), ylim=(0, 1.12 * bound))
    ax.set(ylabel="variance of the length distortion", title="Variance")
    ax.legend(loc="lower right", handletextpad=0.2)


def _draw_shapes(ax: Axes, table: pd.DataFrame, value: str, low: str, high: str) -> None:
    for shape, colour, marker in zip(
        table["shape"].unique(), style.QUALITATIVE, "os^vD", strict=False
    ):
        rows = table[table["shape"] == shape]
        style.intervals(
            ax,
            rows.reciprocal_sum,
            rows[value],
            rows[low],
            rows[high],
            color=colour,
            fmt=marker,
            label=shape,
        )
    ax.set_xlabel(r"$\sum 1/n_\ell$ over the hidden layers")


def _draw_trend(ax: Axes, trend: pd.DataFrame, by: str, text: str) -> None:
    keys = list(trend[by].unique())
    colours = style.family(len(keys))
    for key, colour in zip(keys, colours, strict=True):
        rows = trend[trend[by] == key]
        style.intervals(ax, rows.hidden, rows.variance, rows.low, rows.high, color=colour, fmt="o-")
    last = int(trend.hidden.max())
    ax.set(xlabel="hidden layers $L-1$", ylabel="variance of the length distortion")
    ax.set(xlim=(0, 1.03 * last), ylim=(0, None))
    ends = trend[trend.hidden == last].variance
    style.end_labels(ax, 1.03 * last, list(ends), [text.format(key) for key in keys], colours)


def _name(
    ax: Axes, text: str, x: ArrayLike, y: ArrayLike, offset: tuple[float, float], **where: str
) -> None:
    """Write `text` beside the middle point of the line `y` over `x`."""
    at = len(x) // 2
    point = (np.asarray(x)[at], np.asarray(y)[at])
    ax.annotate(text, point, offset, textcoords="offset points", fontsize=style.SMALL, **where)


def _growth(rows: pd.DataFrame) -> Measured:
    """Variance of the deepest network over that of the shallowest, with its interval."""
    rows = rows.sort_values("hidden").iloc[[0, -1]]
    error = ((rows.high - rows.low) / 2 / rows.variance).to_numpy()  # of a log variance
    value = float(rows.variance.iloc[1] / rows.variance.iloc[0])
    factor = float(np.exp(np.hypot(*error)))
    return Measured(value, value / factor, value * factor)
