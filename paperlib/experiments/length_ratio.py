"""Fig. 2 of `length`: mean length distortion against n_L/n_0, the hidden widths fixed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments.cells import sample_cells
from paperlib.length import statistics, theory
from paperlib.report import claims, style
from paperlib.report.rules import Measured

JUDGED = "n_0 and n_L, n_L ≥ 5"


def sample(
    hidden: Sequence[int],
    n_0: Sequence[int],
    n_L: Sequence[int],
    rel_error: float,
    max_nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Sampled and exact mean distortion for every input dimension n_0 with every output n_L.

    A row each, as `cells.sample_cells` has it, and the columns `ratio` (n_L/n_0), and `relative`,
    `relative_low`, `relative_high`: the mean and its interval over √(n_L/n_0) ∏ h(n_ℓ), which the
    exact mean tends to as n_L grows. Their expectation is C(n_L).
    """
    grid = [[inputs, *hidden, outputs] for outputs in n_L for inputs in n_0]
    table = sample_cells(grid, seed=seed, rel_error=rel_error, max_nets=max_nets, device=device)
    table.insert(1, "ratio", table.n_L / table.n_0)
    limit = table.exact / table.n_L.map(theory.output_constant)
    table["relative"] = table["mean"] / limit
    table["relative_low"] = table.low / limit
    table["relative_high"] = table.high / limit
    return table


def slopes(table: pd.DataFrame) -> pd.DataFrame:
    """Log-log slope of the mean in n_L/n_0, by what varies; NaN where nothing does.

    Least squares over the cells of `sample`'s table, all with the same weight: C(n_L) bends the
    line, so the slope belongs to the grid, and weights would be a hidden choice of another grid.
    "n_0 alone" and "n_L alone" are the common slope of the lines with the other one fixed.

    Columns: `exact` (of the exact means), `sampled`, `low`, `high` (95 %), `cells`.
    """
    large = table[table.n_L >= 5]
    rows = {
        JUDGED: _slope(large, None),
        "n_0 alone": _slope(table, "n_L"),
        "n_L alone, n_L ≥ 5": _slope(large, "n_0"),
        "n_0 and n_L, every n_L": _slope(table, None),
        "n_L alone, every n_L": _slope(table, "n_0"),
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("what varies")


def pooled(table: pd.DataFrame) -> pd.DataFrame:
    """`relative`, `low`, `high` by n_L: the average over n_0, of which C(n_L) does not know."""
    groups = table.groupby("n_L")
    value = groups.relative.mean()
    half = (table.relative_high - table.relative_low) / 2
    half = (half**2).groupby(table.n_L).sum() ** 0.5 / groups.size()
    return pd.DataFrame({"relative": value, "low": value - half, "high": value + half})


def judge(table: pd.DataFrame) -> list[claims.Verdict]:
    """Verdict on L4 from the table of `sample`."""
    slope = slopes(table).loc[JUDGED]
    small = table[table.n_L <= 2]
    if small.empty or np.isnan(slope.exact):
        return [claims.not_run("L4", "It needs n_L of 1 or 2, and two ratios with n_L ≥ 5.")]
    return [
        claims.check(
            "L4",
            {
                "slope": Measured(slope.sampled, slope.low, slope.high),
                "z_tail": statistics.z_tail(small.z),
            },
            sample=f"{len(table)} cells of {table.nets.min():,} to {table.nets.max():,} networks",
        )
    ]


def draw(table: pd.DataFrame) -> Figure:
    """Mean against n_L/n_0 with the exact lines, and what is left of it against C(n_L)."""
    fig = Figure(figsize=(style.PAGE, 3.3))
    left, right = fig.subplots(1, 2)
    outputs = sorted(table.n_L.unique())
    colours = dict(zip(outputs, reversed(style.family(len(outputs))), strict=True))
    _draw_means(left, table, colours)
    _draw_constant(right, table, colours)
    return fig


def _draw_means(ax: Axes, table: pd.DataFrame, colours: dict[int, str]) -> None:
    for n, colour in colours.items():
        rows = table[table.n_L == n].sort_values("ratio")
        ax.plot(rows.ratio, rows.exact, color=colour, linewidth=1)
        style.intervals(
            ax, rows.ratio, rows["mean"], rows.low, rows.high, color=colour, label=f"{n}"
        )
    ends = np.array([table.ratio.min() / 2, table.ratio.max() * 2])
    ax.plot(ends, np.sqrt(ends), color=style.BLACK, linestyle="--", linewidth=1)
    ax.annotate(
        r"$\sqrt{n_L/n_0}$",
        (1, 1),
        (-8, 6),
        textcoords="offset points",
        ha="right",
        va="bottom",
    )
    ax.set(xscale="log", yscale="log", xlim=ends)
    ax.set(xlabel="$n_L/n_0$", ylabel="mean length distortion")
    ax.legend(title="$n_L$", title_fontsize=style.SMALL, loc="lower right", handlelength=1)


def _draw_constant(ax: Axes, table: pd.DataFrame, colours: dict[int, str]) -> None:
    last = int(table.n_L.max())
    n = np.arange(1, last + 1)
    ax.axhline(1, color=style.BLACK, linestyle="--", linewidth=1)
    ax.plot(n, [theory.output_constant(k) for k in n], color=style.GREY)
    # cells of one n_L side by side, so that their points do not hide one another
    shift = 1.025 ** (table.groupby("n_L").cumcount() - (table.n_0.nunique() - 1) / 2)
    ax.scatter(table.n_L * shift, table.relative, s=7, color=style.GREY, alpha=0.45, linewidths=0)
    for outputs, row in pooled(table).iterrows():
        style.intervals(
            ax, [outputs], [row.relative], [row.low], [row.high], color=colours[outputs], zorder=3
        )
    ax.annotate(
        r"$\sqrt{n_L/n_0}$ alone",
        (1, 1),
        (0, 4),
        textcoords="offset points",
    )
    middle = int(np.sqrt(last))
    ax.annotate(
        "$C(n_L)$",
        (middle, theory.output_constant(middle)),
        (6, -10),
        textcoords="offset points",
        va="top",
        color=style.GREY,
    )
    ticks = sorted(colours)
    ax.set(xscale="log", xlabel="output dimension $n_L$")
    ax.set_ylim(top=1.025)
    ax.set_xticks(ticks, [f"{tick}" for tick in ticks], minor=False)
    ax.set_xticks([], minor=True)
    ax.set_ylabel(r"mean over $\sqrt{n_L/n_0}\,\prod h(n_\ell)$")


def _slope(table: pd.DataFrame, fixed: str | None) -> dict[str, float]:
    """One row of `slopes`: `fixed` is the column that does not vary along a line."""
    x = np.log(table.ratio)
    x = x - (x.mean() if fixed is None else x.groupby(table[fixed]).transform("mean"))
    spread = float((x**2).sum())
    if spread < 1e-12:  # one ratio only, up to rounding
        return dict.fromkeys(("exact", "sampled", "low", "high"), float("nan")) | {"cells": 0}
    weight = x / spread
    sampled = float(weight @ np.log(table["mean"]))
    error = (table.high - table.low) / 2 / table["mean"]  # of a log mean
    half = float(np.sqrt(weight**2 @ error**2))
    return {
        "exact": float(weight @ np.log(table.exact)),
        "sampled": sampled,
        "low": sampled - half,
        "high": sampled + half,
        "cells": len(table),
    }
