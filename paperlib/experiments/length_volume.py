"""Theorem 5.2: mean distortion of d-volume, its rate of decay, and where it vanishes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from paperlib.experiments.cells import label
from paperlib.length import statistics, theory, volume
from paperlib.report import claims, style

RATE_WIDTHS = (20, 100, 1000)


class Tables(NamedTuple):
    """What `sample` returns."""

    volumes: pd.DataFrame
    """A row each depth and d: `architecture`, `hidden` (layers), `d`, `nets`, `mean`, `low`, `high`
    (95 %, by the exact standard deviation), `exact`, `leading` order, `cauchy_schwarz` (bound),
    `rms` (root of the exact mean square) and `z`."""
    narrow: pd.DataFrame
    """One narrow layer between two of the common width: `architecture`, `width` of that layer, `d`,
    `nets`, `mean` and `largest` (sampled), `exact`."""


def sample(
    width: int,
    depths: Sequence[int],
    dims: Sequence[int],
    n_0: int,
    n_L: int,
    rel_error: float,
    max_nets: int,
    narrow_widths: Sequence[int],
    narrow_nets: int,
    seed: int,
    device: str,
) -> Tables:
    """Sampled beside exact mean d-volumes, at a random point of each network.

    Args:
        width, depths, n_0, n_L: the architectures n_0-[width]×depth-n_L.
        dims: dimensions d, none above the smallest of these widths.
        rel_error, max_nets: networks a cell, as in `cells.sample_cells`.
        narrow_widths: widths w of the middle layer of n_0-width-w-width-n_L.
        narrow_nets: networks for each of those and each d.
        seed: cell i draws from 1000 seed + i.

    Raises ValueError for a d above the smallest width, beside what `sample_volumes` refuses.
    """
    if max(dims) > min(width, n_0, n_L):
        raise ValueError(
            f"dims must not exceed the smallest of width, n_0 and n_L, {min(width, n_0, n_L)}; "
            f"got {max(dims)}. Layers narrower than d go into narrow_widths."
        )
    cells = [([n_0, *[width] * depth, n_L], d) for depth in depths for d in dims]
    narrow = [(w, d) for w in narrow_widths for d in dims]
    first = 1000 * seed
    return Tables(
        pd.DataFrame(
            _cell(widths, d, rel_error, max_nets, first + i, device)
            for i, (widths, d) in enumerate(cells)
        ),
        pd.DataFrame(
            _narrow([n_0, width, w, width, n_L], d, narrow_nets, first + i, device)
            for i, (w, d) in enumerate(narrow, start=len(cells))
        ),
    )


def rates(dims: Sequence[int]) -> pd.DataFrame:
    """Decay rates -n log h_d(n) by d: their limit d(3d+2)/8, and exactly at some widths n.

    Beside them, of the bound of Cauchy and Schwarz, d(d-1)/4, and of d independent lengths, 5d/8.
    """
    columns = {"limit": [d * (3 * d + 2) / 8 for d in dims]}
    columns |= {f"n = {n}": [_rate(d, n) for d in dims] for n in RATE_WIDTHS}
    columns["Cauchy-Schwarz"] = [d * (d - 1) / 4 for d in dims]
    columns["d lengths"] = [5 * d / 8 for d in dims]
    return pd.DataFrame(columns, index=pd.Index(dims, name="d"))


def closed_forms(tables: Tables) -> pd.DataFrame:
    """The exact means of the deepest network beside leading order, bound and root mean square."""
    rows = tables.volumes[tables.volumes.hidden == tables.volumes.hidden.max()]
    return rows.set_index("d")[["exact", "leading", "cauchy_schwarz", "rms"]]


def judge(tables: Tables) -> list[claims.Verdict]:
    """Verdicts on L14 and L19 from the tables of `sample`."""
    volumes, narrow = tables
    table = rates(sorted(volumes.d.unique()))
    vanishing = narrow[narrow.width < narrow.d]
    if vanishing.empty:
        zero = claims.not_run("L19", "No layer of narrow_widths is narrower than some d.")
    else:
        zero = claims.check(
            "L19",
            float(vanishing.largest.max()),
            sample=f"{len(vanishing)} cells of {vanishing.nets.iloc[0]:,} networks",
        )
    return [
        claims.check(
            "L14",
            {
                "z_tail": statistics.z_tail(volumes.z),
                "rate_error": float((table["n = 1000"] / table.limit - 1).abs().max()),
            },
            sample=f"{len(volumes)} cells of {volumes.nets.min():,} to {volumes.nets.max():,} "
            "networks",
        ),
        zero,
    ]


def draw(tables: Tables) -> Figure:
    """Mean volume against depth; rates of decay against d; what one narrow layer does."""
    fig = Figure(figsize=(style.PAGE, 5.4))
    axes = fig.subplot_mosaic([["depth", "rate"], ["depth", "narrow"]])
    _draw_depth(axes["depth"], tables.volumes)
    _draw_rates(axes["rate"], rates(sorted(tables.volumes.d.unique())))
    _draw_narrow(axes["narrow"], tables.narrow)
    return fig


# ---- tables ---------------------------------------------------------------------------------


def _cell(
    widths: Sequence[int], d: int, rel_error: float, max_nets: int, seed: int, device: str
) -> dict[str, object]:
    exact, square = theory.mean_volume(widths, d), theory.volume_second_moment(widths, d)
    sd = (square - exact**2) ** 0.5
    nets = statistics.nets_needed(exact, sd, rel_error, max_nets)
    volumes = volume.sample_volumes(widths, d, nets, seed, device=device)
    mean, half = volumes.mean().item(), 1.96 * sd / nets**0.5
    return {
        "architecture": label(widths),
        "hidden": len(widths) - 2,
        "d": d,
        "nets": nets,
        "mean": mean,
        "low": mean - half,
        "high": mean + half,
        "exact": exact,
        "leading": theory.truncated_mean_volume(widths, d),
        "cauchy_schwarz": theory.volume_bound(widths, d),
        "rms": square**0.5,
        "z": statistics.z_score(volumes, exact, sd),
    }


def _narrow(widths: Sequence[int], d: int, nets: int, seed: int, device: str) -> dict[str, object]:
    volumes = volume.sample_volumes(widths, d, nets, seed, device=device)
    return {
        "architecture": label(widths),
        "width": widths[2],
        "d": d,
        "nets": nets,
        "mean": volumes.mean().item(),
        "largest": volumes.max().item(),
        "exact": theory.mean_volume(widths, d),
    }


def _rate(d: int, n: int) -> float:
    """-n log h_d(n), from a network with one hidden layer and one with none."""
    if d > n:
        return math.inf
    factor = theory.mean_volume([d, n, d], d) / theory.mean_volume([d, d], d)
    return -n * math.log(factor)


# ---- panels ---------------------------------------------------------------------------------


def _draw_depth(ax: Axes, volumes: pd.DataFrame) -> None:
    dims = sorted(volumes.d.unique())
    colours = style.family(len(dims))
    for d, colour in zip(dims, colours, strict=True):
        rows = volumes[volumes.d == d]
        ax.plot(rows.hidden, rows.exact, color=colour)
        ax.plot(rows.hidden, rows.leading, color=colour, linestyle=":", linewidth=1)
        ax.plot(rows.hidden, rows.cauchy_schwarz, color=colour, linestyle="--", linewidth=0.8)
        style.intervals(ax, rows.hidden, rows["mean"], rows.low, rows.high, color=colour)
    last = volumes[volumes.hidden == volumes.hidden.max()].set_index("d").exact
    ax.set(
        title="mean $d$-volume",
        xlabel="hidden layers $L-1$",
        ylabel="mean distortion of $d$-volume",
        yscale="log",
        xlim=(0, volumes.hidden.max()),
    )
    ax.xaxis.get_major_locator().set_params(integer=True)
    for text, line in (("exact", "-"), ("leading order", ":"), ("Cauchy-Schwarz bound", "--")):
        ax.plot([], [], line, color=style.BLACK, linewidth=1, label=text)
    ax.legend(loc="lower left")
    style.end_labels(
        ax, volumes.hidden.max(), list(last[dims]), [f"$d={d}$" for d in dims], colours
    )


def _draw_rates(ax: Axes, table: pd.DataFrame) -> None:
    dims = np.linspace(table.index.min(), table.index.max(), 100)
    ax.plot(dims, dims * (3 * dims + 2) / 8, color=style.BLACK, label="$d(3d+2)/8$")
    ax.plot(dims, dims * (dims - 1) / 4, "--", color=style.RED, label="Cauchy-Schwarz bound")
    ax.plot(dims, 5 * dims / 8, ":", color=style.PURPLE, label="$d$ lengths, $5d/8$")
    for n, mark, colour in zip(
        RATE_WIDTHS, "^so", (style.SKY, style.GREEN, style.BLUE), strict=True
    ):
        ax.plot(table.index, table[f"n = {n}"], mark, color=colour, label=f"exact, $n={n}$")
    ax.set(title="rate of decay", xlabel="$d$", ylabel=r"$-n\,\log h_d(n)$", ylim=(0, None))
    ax.legend(loc="upper left")


def _draw_narrow(ax: Axes, narrow: pd.DataFrame) -> None:
    """Exact means by the width of the narrow layer and d; where 0, the largest sampled volume."""
    exact = narrow.pivot(index="d", columns="width", values="exact")
    largest = narrow.pivot(index="d", columns="width", values="largest")
    positive = exact.to_numpy()[exact.to_numpy() > 0]
    colours = ListedColormap(style.family(256)[::-1], name="family").with_extremes(bad="#DDDDDD")
    mesh = ax.pcolormesh(
        range(len(exact.columns) + 1),
        range(len(exact.index) + 1),
        np.ma.masked_equal(exact, 0),
        cmap=colours,
        norm=LogNorm(positive.min(initial=0.1), positive.max(initial=1)),
        edgecolor="white",
        linewidth=1,
    )
    for row, column in zip(*np.nonzero(exact.to_numpy() == 0), strict=True):
        rest = largest.iat[row, column]
        text = f"$10^{{{math.log10(rest):.0f}}}$" if rest else "0"
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5)
    ax.set_xticks(np.arange(len(exact.columns)) + 0.5, exact.columns)
    ax.set_yticks(np.arange(len(exact.index)) + 0.5, exact.index)
    ax.grid(visible=False)
    ax.set(title="one narrow layer", xlabel="its width", ylabel="$d$")
    ax.get_figure().colorbar(mesh, ax=ax, label="mean distortion")
