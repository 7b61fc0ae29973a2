"""Theorem 5.1, (5.3): moments of the length distortion, their reach, and the tails they bound."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from paperlib.experiments.cells import label
from paperlib.length import ensemble, jacobian, theory
from paperlib.report import claims, style
from paperlib.report.rules import Measured

ORDERS = np.arange(1, 20.1, 0.25)  # of the moments that Markov's bound is minimised over
LEVELS = 2 ** np.arange(-1, 3.1, 0.25)  # the t of P(distortion > t √(n_L/n_0)): ½ to 8
REPEATS = 20  # averages of ‖J_x u‖^m, each over as many draws as there are networks
REL_ERROR = 0.1  # standard error, relative to its bound, up to which a moment is in reach


class Tables(NamedTuple):
    """What `sample` returns; `hidden` is the number of hidden layers throughout."""

    moments: pd.DataFrame
    """A row each depth and order m: `architecture`, `hidden`, `m`, `nets`, `moment` (average of
    distortion^m), `bound` (E‖J_x u‖^m), `first_order`, `needed` (networks for a standard error
    of a tenth of the bound), `in_reach` (whether nets ≥ needed), `low`, `high` (95 %, if so)."""
    reach: pd.DataFrame
    """Averages of ‖J_x u‖^m over draws of its law (Lemma C.2) beside the exact moment: `hidden`,
    `m`, `draws` an average, `ratio` to the exact moment (median of 20 averages), `low`, `high`
    (least and greatest), `last` (order beyond which nearly every average is too small)."""
    tails: pd.DataFrame
    """P(distortion > t √(n_L/n_0)): `architecture`, `width`, `hidden`, `t`, `nets`, `count`,
    `probability`, `low`, `high` (Clopper-Pearson), `markov` and its `order`, `lognormal`, `point`
    (that of ‖J_x u‖)."""
    law: pd.DataFrame
    """log‖J_x u‖ - ½ log(n_L/n_0) at one architecture: `statistic` (mean, sd, qq), `value`,
    `low`, `high`, `predicted` (by the log-normal law)."""
    quantiles: pd.DataFrame
    """Quantiles of log‖J_x u‖ there: `architecture`, `probability`, `lognormal` with `low`, `high`
    (95 % of samples of that law), `drawn` (Lemma C.2), `networks` (really sampled)."""


def sample(
    width: int,
    depths: Sequence[int],
    n_0: int,
    n_L: int,
    orders: Sequence[int],
    nets: int,
    law_width: int,
    law_depth: int,
    law_nets: int,
    seed: int,
    device: str,
) -> Tables:
    """Moments and tails of n_0-[width]×depth-n_L, and the law of ‖J_x u‖ of one wide network.

    Args:
        width, depths, n_0, n_L: architectures of the moments and tails.
        orders: orders m ≥ 1 of the moments.
        nets: networks a depth, through each of which goes a Gaussian segment; and draws of the
            law of ‖J_x u‖ where that law takes the place of networks.
        law_width, law_depth, law_nets: the wide network, and how many of it are really drawn.
        seed: cell i draws from 1000 seed + i.
    """
    moments, reach, tails = [], [], []
    for index, depth in enumerate(depths):
        widths, cell = [n_0, *[width] * depth, n_L], 1000 * seed + 2 * index
        lengths = ensemble.sample_lengths(widths, nets, cell, device=device, precision="single")
        stretches = jacobian.sample_product_law(widths, REPEATS * nets, cell + 1).numpy()
        moments.append(_moments(widths, orders, lengths.numpy()))
        reach.append(_reach(widths, max(orders), stretches))
        tails.append(_tails(widths, lengths.numpy(), stretches))
    wide, cell = [n_0, *[law_width] * law_depth, n_L], 1000 * seed + 2 * len(depths)
    drawn = jacobian.sample_product_law(wide, nets, cell).numpy()
    norms = jacobian.sample_layer_norms(wide, law_nets, cell + 1, device=device)
    networks = norms.prod(dim=1).numpy()
    return Tables(
        *(pd.concat(parts, ignore_index=True) for parts in (moments, reach, tails)),
        _law(wide, _logs(drawn), cell + 2),
        _quantiles(wide, _logs(drawn), _logs(networks)),
    )


def bounds(tables: Tables) -> pd.DataFrame:
    """The exact bounds E‖J_x u‖^m of the moments: a row a depth, a column an order."""
    return _grid(tables.moments, "bound")


def needed(tables: Tables) -> pd.DataFrame:
    """Networks for a relative standard error of a tenth: a row a depth, a column an order."""
    return _grid(tables.moments, "needed")


def judge(tables: Tables) -> list[claims.Verdict]:
    """Verdicts on L12 and L15 from the tables of `sample`."""
    law = tables.law.set_index("statistic")
    ratios = law[["value", "low", "high"]].div(law.predicted, axis=0)
    # −β/4 is negative, so dividing by it turns the interval round.
    mean = Measured(ratios.value["mean"], *sorted(ratios.loc["mean", ["low", "high"]]))
    # the paper's proviso: wider than deep
    tails = tables.tails[tables.tails.hidden <= tables.tails.width]
    judged = tails[tails.t.isin([2, 4])]
    excess = (judged.point / judged.lognormal).max()
    return [
        claims.check(
            "L12",
            {
                "mean_ratio": mean,
                "sd_ratio": Measured(*ratios.loc["sd"]),
                "qq": Measured(*law.loc["qq", ["value", "low", "high"]]),
            },
            sample=f"{tables.reach.draws.iloc[0]:,} draws of the law of Lemma C.2",
        ),
        claims.not_run("L15", "needs a depth of at most the width")
        if tails.empty
        else claims.check(
            "L15",
            {
                f"{bound}_{t}": _largest_ratio(tails[tails.t == t], bound)
                for bound in ("markov", "lognormal")
                for t in (2, 4)
            },
            sample=f"{tails.nets.iloc[0]:,} networks a depth, Gaussian segments",
            note="At a single point, the limit of short curves, the tail is up to "
            f"{excess:.2f} times the log-normal one, which is an approximation and no bound.",
        ),
    ]


def draw(tables: Tables) -> Figure:
    """Moments against their bounds, their reach, tails, and quantiles against the log-normal."""
    fig = Figure(figsize=(style.PAGE, 6.2))
    ((moments, reach), (tails, quantiles)) = fig.subplots(2, 2)
    _draw_moments(moments, tables.moments)
    _draw_reach(reach, tables.reach)
    _draw_tails(tails, tables.tails)
    _draw_quantiles(quantiles, tables.quantiles)
    return fig


def _largest_ratio(tails: pd.DataFrame, bound: str) -> Measured:
    """Largest ratio of tail to bound over the rows, from largest lower to largest upper end."""
    return Measured(*tails[["probability", "low", "high"]].div(tails[bound], axis=0).max())


# ---- tables ---------------------------------------------------------------------------------


def _moments(widths: Sequence[int], orders: Sequence[int], lengths: np.ndarray) -> pd.DataFrame:
    rows = []
    for m in orders:
        bound = theory.moment_bound(widths, m)
        moment = float((lengths**m).mean())
        # The variance of distortion^m is at most E‖J_x u‖^2m less the mean's power (Jensen).
        square = theory.moment_bound(widths, 2 * m)
        half = 1.96 * ((square - theory.mean_length(widths) ** (2 * m)) / lengths.size) ** 0.5
        wanted = (square / bound**2 - 1) / REL_ERROR**2
        if lengths.size < wanted:
            half = float("nan")
        rows.append(
            {
                "architecture": label(widths),
                "hidden": len(widths) - 2,
                "m": m,
                "nets": lengths.size,
                "moment": moment,
                "low": moment - half,
                "high": moment + half,
                "bound": bound,
                "first_order": _first_order(widths, m),
                "needed": wanted,
                "in_reach": bool(lengths.size >= wanted),
            }
        )
    return pd.DataFrame(rows)


def _first_order(widths: Sequence[int], m: float) -> float:
    """E‖J_x u‖^m to first order in 1/width: a one-layer network's, × exp(5m(m-2)/8 Σ1/n)."""
    last = theory.moment_bound([widths[0], widths[-1]], m)
    return last * math.exp(5 * m * (m - 2) / 8 * theory.reciprocal_width_sum(widths))


def _reach(widths: Sequence[int], highest: float, stretches: np.ndarray) -> pd.DataFrame:
    orders = np.arange(1, highest + 0.1, 0.25)
    samples = stretches.reshape(REPEATS, -1)
    averages = np.stack([(samples**m).mean(axis=1) for m in orders])  # (orders, repeats)
    ratios = averages / np.array([[theory.moment_bound(widths, m)] for m in orders])
    draws, law = samples.shape[1], theory.log_normal(widths)
    return pd.DataFrame(
        {
            "hidden": len(widths) - 2,
            "m": orders,
            "draws": draws,
            "ratio": np.median(ratios, axis=1),
            "low": ratios.min(axis=1),
            "high": ratios.max(axis=1),
            # Weighted by its m-th power, a log-normal sits m√β/2 standard deviations up, and
            # the largest of N draws √(2 log N).
            "last": (8 * np.log(draws) / law.variance) ** 0.5,
        }
    )


def _tails(widths: Sequence[int], lengths: np.ndarray, stretches: np.ndarray) -> pd.DataFrame:
    unit, law = (widths[-1] / widths[0]) ** 0.5, theory.log_normal(widths)
    scaled = np.array([theory.moment_bound(widths, m) / unit**m for m in ORDERS])  # (orders,)
    rows = []
    for t in LEVELS:
        markov = scaled / t**ORDERS  # (orders,)
        count = int((lengths > t * unit).sum())
        interval = stats.binomtest(count, lengths.size).proportion_ci(method="exact")
        rows.append(
            {
                "architecture": label(widths),
                "width": widths[1],
                "hidden": len(widths) - 2,
                "t": t,
                "nets": lengths.size,
                "count": count,
                "probability": count / lengths.size,
                "low": interval.low,
                "high": interval.high,
                "markov": min(markov.min(), 1.0),
                "order": ORDERS[markov.argmin()],
                "lognormal": stats.norm.sf(np.log(t * unit), law.mean / 2, law.variance**0.5 / 2),
                "point": (stretches > t * unit).mean(),
            }
        )
    return pd.DataFrame(rows)


def _law(widths: Sequence[int], logs: np.ndarray, seed: int) -> pd.DataFrame:
    """Statistics of log‖J_x u‖ - ½ log(n_L/n_0), with intervals from 200 bootstrap resamples."""
    unit = 0.5 * math.log(widths[-1] / widths[0])
    logs = logs - unit
    rng = np.random.default_rng(seed)
    normal = stats.norm.ppf(_probabilities(logs.size))
    resampled = [_fit(rng.choice(logs, logs.size), normal) for _ in range(200)]
    low, high = np.quantile(resampled, [0.025, 0.975], axis=0)  # (3,) each
    value, law = _fit(logs, normal), theory.log_normal(widths)
    return pd.DataFrame(
        {
            "statistic": ["mean", "sd", "qq"],
            "value": value,
            # Repeated draws bend a quantile plot a little, so that qq may lie above its resamples.
            "low": np.minimum(low, value),
            "high": np.maximum(high, value),
            "predicted": [law.mean / 2 - unit, law.variance**0.5 / 2, 1.0],
        }
    )


def _fit(logs: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Mean, standard deviation, and correlation of the sorted values with normal quantiles."""
    return np.array([logs.mean(), logs.std(ddof=1), np.corrcoef(np.sort(logs), normal)[0, 1]])


def _quantiles(widths: Sequence[int], drawn: np.ndarray, networks: np.ndarray) -> pd.DataFrame:
    law, levels = theory.log_normal(widths), _probabilities(networks.size)
    log_normal = stats.norm(law.mean / 2, law.variance**0.5 / 2)
    rank = np.arange(1, networks.size + 1)
    # The k-th smallest of N uniform numbers has the law Beta(k, N-k+1).
    low, high = (stats.beta.ppf(p, rank, rank[::-1]) for p in (0.025, 0.975))
    return pd.DataFrame(
        {
            "architecture": label(widths),
            "probability": levels,
            "lognormal": log_normal.ppf(levels),
            "low": log_normal.ppf(low),
            "high": log_normal.ppf(high),
            "drawn": np.quantile(drawn, levels),
            "networks": np.sort(networks),
        }
    )


def _probabilities(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


def _logs(stretches: np.ndarray) -> np.ndarray:
    """log‖J_x u‖ of the networks that are not dead at the point."""
    return np.log(stretches[stretches > 0])


def _grid(moments: pd.DataFrame, column: str) -> pd.DataFrame:
    grid = moments.pivot(index="hidden", columns="m", values=column)
    return grid.rename_axis(index="hidden layers", columns="m")


# ---- panels ---------------------------------------------------------------------------------


def _draw_moments(ax: Axes, moments: pd.DataFrame) -> None:
    """L^m norms, so that all orders share an axis; hollow points are out of reach."""
    depths = sorted(moments.hidden.unique())
    colours = style.family(len(depths))
    for index, (depth, colour) in enumerate(zip(depths, colours, strict=True)):
        rows = moments[moments.hidden == depth]
        norms = rows[["moment", "low", "high", "bound", "first_order"]].pow(1 / rows.m, axis=0)
        ax.plot(rows.m, norms.bound, color=colour)
        ax.plot(rows.m, norms.first_order, color=colour, linestyle=":", linewidth=1)
        x = rows.m + 0.05 * (index - (len(depths) - 1) / 2)  # side by side where they would overlap
        near, far = norms[rows.in_reach], norms[~rows.in_reach]
        style.intervals(ax, x[near.index], near.moment, near.low, near.high, color=colour)
        ax.plot(x[far.index], far.moment, "o", markerfacecolor="white", markeredgecolor=colour)
    last = moments[moments.m == moments.m.max()].set_index("hidden")
    ax.set(
        title="moments and their bounds",
        xlabel="order $m$",
        ylabel=r"$\mathbb{E}[\mathrm{distortion}^m]^{1/m}$",
        yscale="log",
        xlim=(moments.m.min() - 0.25, moments.m.max() + 0.25),
    )
    ax.plot([], [], "-", color=style.BLACK, label=r"bound $\mathbb{E}\|J_xu\|^m$")
    ax.plot([], [], ":", color=style.BLACK, linewidth=1, label="to first order")
    ax.plot([], [], "o", color=style.BLACK, label="sampled")
    ax.plot([], [], "o", color=style.BLACK, markerfacecolor="white", label="out of reach")
    ax.legend(loc="upper left")
    _label_depths(ax, last.bound ** (1 / last.m), moments.m.max() + 0.1)


def _draw_reach(ax: Axes, reach: pd.DataFrame) -> None:
    """Ratios of averages to exact moments; a triangle marks where the fall must begin."""
    depths = sorted(reach.hidden.unique())
    for depth, colour in zip(depths, style.family(len(depths)), strict=True):
        rows = reach[reach.hidden == depth]
        style.band(ax, rows.m, rows.ratio, rows.low, rows.high, color=colour)
        last = rows["last"].iloc[0]
        if last <= rows.m.max():
            ax.plot(last, np.interp(last, rows.m, rows.ratio), "v", color=colour, markersize=6)
    ends = reach[reach.m == reach.m.max()].set_index("hidden").ratio
    ax.set(
        title=f"averages of {reach.draws.iloc[0]:,} draws",
        xlabel="order $m$",
        ylabel="average over exact moment",
        yscale="log",
        ylim=(ends.min() / 3, 10),
        xlim=(reach.m.min() - 0.25, reach.m.max() + 0.25),
    )
    _label_depths(ax, ends, reach.m.max())


def _draw_tails(ax: Axes, tails: pd.DataFrame) -> None:
    """The second depth only: the others look alike and would cover it."""
    depths = sorted(tails.hidden.unique())
    rows = tails[tails.hidden == depths[min(1, len(depths) - 1)]]
    ax.plot(rows.t, rows.markov, color=style.RED, linestyle="--", label="Markov bound")
    ax.plot(rows.t, rows.lognormal, color=style.GREEN, label="log-normal tail")
    ax.plot(rows.t, rows.point, color=style.BLACK, linestyle=":", label=r"$\|J_xu\|$, drawn")
    seen = rows[rows["count"] > 0]
    style.intervals(
        ax, seen.t, seen.probability, seen.low, seen.high, color=style.BLUE, label="distortion"
    )
    ax.set(
        title=f"tails of {rows.architecture.iloc[0]}",
        xlabel="$t$",
        ylabel=r"$\mathbb{P}(\,\mathrm{distortion} > t\,\sqrt{n_L/n_0}\,)$",
        xscale="log",
        yscale="log",
        xlim=(rows.t.min() * 0.95, rows.t.max() * 1.05),
        ylim=(0.3 / rows.nets.iloc[0], 1.5),
    )
    ax.set_xticks([0.5, 1, 2, 4, 8], ["½", "1", "2", "4", "8"])
    ax.minorticks_off()
    ax.legend(loc="lower left")


def _draw_quantiles(ax: Axes, quantiles: pd.DataFrame) -> None:
    rows = quantiles.sort_values("probability")
    style.band(
        ax,
        rows.lognormal,
        rows.lognormal,
        rows.low,
        rows.high,
        color=style.GREEN,
        label="log-normal law",
    )
    ax.plot(
        rows.lognormal, rows.drawn, color=style.BLACK, linestyle=":", label=r"$\|J_xu\|$, drawn"
    )
    ax.plot(
        rows.lognormal,
        rows.networks,
        "o",
        color=style.BLUE,
        markersize=2.5,
        markeredgewidth=0,
        label=f"{len(rows):,} networks",
    )
    ax.set(
        title=f"log-stretch of {rows.architecture.iloc[0]}",
        xlabel="quantile of the log-normal law",
        ylabel=r"quantile of $\log\|J_xu\|$",
    )
    ax.legend(loc="upper left")


def _label_depths(ax: Axes, ends: pd.Series, x: float) -> None:
    """Name the curves by their depth where they end: `ends` holds the heights by depth."""
    ends = ends.sort_index()
    texts = [f"{depth} layers" for depth in ends.index]
    style.end_labels(ax, x, list(ends), texts, style.family(len(ends)))
