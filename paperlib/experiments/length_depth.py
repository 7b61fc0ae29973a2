"""Fig. 1 of `length`: mean length distortion against depth, for several widths."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib.experiments.cells import sample_cells
from paperlib.length import statistics, theory
from paperlib.report import claims, style
from paperlib.report.rules import Measured


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
    """Verdicts on L1, L2, L3 and L17 from the table of `sample`."""
    exact = exact_grid(table)
    cells = f"{len(table)} cells of {table.nets.min():,} to {table.nets.max():,} networks"
    deep = table[table.hidden >= 10]
    ratios = table[["mean", "low", "high"]].div(table.bound, axis=0).max()
    return [
        claims.check(
            "L1",
            {
                "depth_step": float(exact.diff(axis=1).max(axis=None)),
                "outside": int((table.z.abs() > 1.96).sum()),
                "z_tail": statistics.z_tail(table.z),
            },
            sample=cells,
        ),
        claims.check(
            "L2",
            {
                "exact_gap": float(_slopes(table, "exact").value.diff().min()),
                "sampled_gap": _smallest_gap(_slopes(table, "mean")),
            },
            sample=cells,
        ),
        claims.check("L3", Measured(*ratios), sample=cells),
        claims.check(
            "L17",
            {
                "price_tanner": float((deep.exact / deep.price_tanner).min()),
                "raghu": float((deep.exact / deep.raghu).min()),
            },
        ),
    ]


def draw(table: pd.DataFrame) -> Figure:
    """Mean against depth, linear with the upper bound, and logarithmic with earlier bounds."""
    fig = Figure(figsize=(style.PAGE, 3.3))
    linear, logarithmic = fig.subplots(1, 2)
    widths = sorted(table.width.unique(), reverse=True)
    colours = style.family(len(widths))
    last = table.hidden.max()
    for width, colour in zip(widths, colours, strict=True):
        rows = table[table.width == width]
        for ax in (linear, logarithmic):
            ax.plot(rows.hidden, rows.exact, color=colour)
            style.intervals(ax, rows.hidden, rows["mean"], rows.low, rows.high, color=colour)
        linear.plot(rows.hidden, rows.truncated, color=colour, linestyle=":", linewidth=1)
    ends = table[table.hidden == last].set_index("width")
    for ax in (linear, logarithmic):
        ax.set(xlabel="hidden layers $L-1$", xlim=(0, last))
    linear.axhline(table.bound.iloc[0], color=style.BLACK, linestyle="--", linewidth=1)
    linear.annotate(
        f"bound {table.bound.iloc[0]:.4f}",
        (last, table.bound.iloc[0]),
        (0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=style.SMALL,
    )
    linear.set(ylabel="mean length distortion", ylim=(0, 1.05))
    logarithmic.set(yscale="log", ylabel="mean length distortion", ylim=(1e-5, 2))
    style.end_labels(
        linear, last, list(ends.exact[widths]), [f"width {w}" for w in widths], colours
    )
    rows = table[table.width == widths[0]]
    for name, text, colour, at, side in (
        ("price_tanner", "Price-Tanner bound", style.RED, 0.5, "left"),
        ("raghu", "Raghu-type bound,\nconstant ours", style.PURPLE, 0.75, "right"),
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


def _slopes(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Slope of the log mean in the number of hidden layers by width, with its standard error."""
    rows = []
    for _, cells in table.groupby("width"):
        # standard error of a log mean; it is the weight of the fit, also of the exact curve's
        error = (cells.high - cells.low) / (2 * 1.96 * cells["mean"])
        x, y, w = cells.hidden, np.log(cells[column]), 1 / error**2
        centred = x - np.average(x, weights=w)
        rows.append(
            {
                "value": (w * centred * y).sum() / (w * centred**2).sum(),
                "error": (w * centred**2).sum() ** -0.5,
            }
        )
    return pd.DataFrame(rows)


def _smallest_gap(slopes: pd.DataFrame) -> Measured:
    """The smallest rise of the slope from one width to the next wider, with its interval."""
    gaps = slopes.value.diff().iloc[1:]
    at = gaps.idxmin()
    half = 1.96 * float(np.hypot(slopes.error[at], slopes.error[at - 1]))
    return Measured(gaps[at], gaps[at] - half, gaps[at] + half)
