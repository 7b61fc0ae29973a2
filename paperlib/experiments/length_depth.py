"""Fig. 1 of `length`: mean length distortion against depth, for several widths."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib.experiments.cells import sample_cells
from paperlib.length import statistics, theory
from paperlib.report import claims, style
from paperlib.report.rules import Measured

L1_CELLS = 40  # that the rule of L1 counts in
NORMAL = 1.96  # half a 95 % interval, in standard errors


def sample(
    widths: Sequence[int],
    depths: Sequence[int],
    n_0: int,
    n_L: int,
    rel_error: float,
    max_nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Sampled and exact mean distortion of n_0-[width]×depth-n_L for every width and depth.

    A row each, as `cells.sample_cells` has it, and the columns `width`, `price_tanner` and `raghu`
    (earlier lower bounds).
    """
    grid = [[n_0, *[width] * depth, n_L] for width in widths for depth in depths]
    table = sample_cells(grid, seed=seed, rel_error=rel_error, max_nets=max_nets, device=device)
    table.insert(1, "width", np.repeat(widths, len(depths)))
    table["price_tanner"] = [theory.price_tanner_bound(w) for w in grid]
    table["raghu"] = [theory.raghu_bound(w) for w in grid]
    return table


def exact_grid(table: pd.DataFrame) -> pd.DataFrame:
    """The exact means of the table: a row a width, a column a number of hidden layers."""
    grid = table.pivot(index="width", columns="hidden", values="exact")
    return grid.rename_axis(index="width", columns="hidden layers")


def judge(table: pd.DataFrame) -> list[claims.Verdict]:
    """Verdicts on L1, L2, L3 and L17 from the table of `sample`; `not run` if it is too small."""
    cells = f"{len(table)} cells of {table.nets.min():,} to {table.nets.max():,} networks"
    ratios = table[["mean", "low", "high"]].div(table.bound, axis=0).max()
    return [
        _judge_depth(table, cells),
        _judge_widths(table, cells),
        claims.check("L3", Measured(*ratios), sample=cells),
        _judge_earlier_bounds(table),
    ]


def _judge_depth(table: pd.DataFrame, cells: str) -> claims.Verdict:
    if len(table) != L1_CELLS or table.hidden.nunique() < 2:
        return claims.not_run("L1", f"its rule counts {L1_CELLS} cells, here are {len(table)}")
    # with sampled variances in place of their ceiling z is larger, and more trusting
    sd = (table.high - table.low) / (2 * NORMAL)
    plain = statistics.z_tail((table["mean"] - table.exact) / sd)
    return claims.check(
        "L1",
        {
            "depth_step": float(exact_grid(table).diff(axis=1).max(axis=None)),
            "outside": int((table.z.abs() > NORMAL).sum()),
            "z_tail": statistics.z_tail(table.z),
        },
        sample=cells,
        note=f"With the sampled standard deviations z_tail is {plain:.2g}.",
    )


def _judge_widths(table: pd.DataFrame, cells: str) -> claims.Verdict:
    if table.width.nunique() < 2 or table.hidden.nunique() < 2:
        return claims.not_run("L2", "needs two widths and two depths")
    log_means = np.log(exact_grid(table))
    slopes = [np.polyfit(log_means.columns, row, 1)[0] for row in log_means.to_numpy()]
    return claims.check(
        "L2",
        {"exact_gap": float(np.diff(slopes).min()), "sampled_gap": _smallest_gap(_slopes(table))},
        sample=cells,
    )


def _judge_earlier_bounds(table: pd.DataFrame) -> claims.Verdict:
    deep = table[table.hidden >= 10]
    if deep.empty:
        return claims.not_run("L17", "needs a depth of ten or more")
    return claims.check(
        "L17",
        {
            "price_tanner": float((deep.exact / deep.price_tanner).min()),
            "raghu": float((deep.exact / deep.raghu).min()),
        },
    )


def draw(table: pd.DataFrame) -> Figure:
    """Mean against depth, linear with the upper bound, and logarithmic with earlier bounds."""
    fig = Figure(figsize=(style.PAGE, 3.3))
    linear, logarithmic = fig.subplots(1, 2)
    widths = sorted(table.width.unique(), reverse=True)
    colours = style.family(len(widths))
    last = table.hidden.max()
    depths = range(table.hidden.min(), last + 1)
    for width, colour in zip(widths, colours, strict=True):
        rows = table[table.width == width]
        every = [[rows.n_0.iloc[0], *[width] * d, rows.n_L.iloc[0]] for d in depths]
        for ax in (linear, logarithmic):
            ax.plot(depths, [theory.mean_length(w) for w in every], color=colour)
        for ax, shown in ((linear, rows), (logarithmic, rows[rows.low > 0])):
            means = shown["mean"]
            style.intervals(ax, shown.hidden, means, shown.low, shown.high, color=colour)
        truncated = [theory.truncated_mean_length(w) for w in every]
        linear.plot(depths, truncated, color=colour, linestyle=":", linewidth=1)
    ends = table[table.hidden == last].set_index("width")
    for ax in (linear, logarithmic):
        ax.set(xlabel="hidden layers $L-1$", xlim=(0, 1.02 * last))
    linear.axhline(table.bound.iloc[0], color=style.BLACK, linestyle="--", linewidth=1)
    linear.annotate(
        f"bound {table.bound.iloc[0]:.4f}",
        (last, table.bound.iloc[0]),
        (0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=style.SMALL,
    )
    linear.annotate(
        "dotted: (5.1) without its O-term",
        (0.02, 0.02),
        xycoords="axes fraction",
        color=style.GREY,
        fontsize=style.SMALL,
    )
    linear.set(ylabel="mean length distortion", ylim=(0, 1.1 * table.bound.iloc[0]))
    logarithmic.set(yscale="log", ylabel="mean length distortion", ylim=(1e-5, 2))
    style.end_labels(
        linear, 1.02 * last, list(ends.exact[widths]), [f"width {w}" for w in widths], colours
    )
    rows = table[table.width == widths[0]]
    for name, text, colour, at, side in (
        ("price_tanner", "Price-Tanner bound", style.RED, 0.5, "left"),
        (
            "raghu",
            f"Raghu-type,\nwidth {widths[0]},\nconstant ours",
            style.PURPLE,
            0.75,
            "right",
        ),
    ):
        logarithmic.plot(rows.hidden, rows[name], color=colour, linestyle="--")
        y = np.exp(np.interp(at * last, rows.hidden, np.log(rows[name])))
        logarithmic.annotate(
            text,
            (at * last, y),
            (5 if side == "left" else -5, -3),
            textcoords="offset points",
            ha=side,
            va="top" if side == "right" else "bottom",
            color=colour,
            fontsize=style.SMALL,
        )
    return fig


def _slopes(table: pd.DataFrame) -> pd.DataFrame:
    """Slope of the log of the sampled mean in the number of hidden layers, with standard error.

    A row a width, narrow to wide. Weighted least squares; a cell whose mean is not above 0 by its
    interval has no log to speak of and is left out.
    """
    rows = []
    for _, cells in table.groupby("width"):
        sure = cells[cells.low > 0]
        error = (sure.high - sure.low) / (2 * NORMAL * sure["mean"])  # of the log mean
        x, y, weight = sure.hidden, np.log(sure["mean"]), 1 / error**2
        centred = x - np.average(x, weights=weight)
        curvature = (weight * centred**2).sum()
        rows.append({"value": (weight * centred * y).sum() / curvature, "error": curvature**-0.5})
    return pd.DataFrame(rows)


def _smallest_gap(slopes: pd.DataFrame) -> Measured:
    """The smallest rise of the slope from one width to the next wider, with its interval."""
    gaps = slopes.value.diff().iloc[1:]
    at = gaps.idxmin()
    half = NORMAL * float(np.hypot(slopes.error[at], slopes.error[at - 1]))
    return Measured(gaps[at], gaps[at] - half, gaps[at] + half)
