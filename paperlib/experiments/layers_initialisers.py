"""Does the picture of `layers` Fig. 1 depend on the initialiser, or on the learning rate?

Not in the paper, which states neither; its hyperparameters are those of Fig. 1 otherwise.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments import fcn_runs, initial_values, layers_fcn, seeds
from paperlib.experiments.layers_fcn import CHANCE, CRITICAL
from paperlib.experiments.learned import unlearned
from paperlib.report import claims, style
from paperlib.report.rules import Measured
from paperlib.report.tables import interval
from paperlib.training.runs import Spec

FOUR = 4  # initialisers that C25 speaks of
SAME_ERROR = 0.5  # points: final errors further apart than that are not the same (C26)
GUESSING = {"color": style.BLACK, "linestyle": "--", "linewidth": 1}


def specs(
    hidden: int,
    width: int,
    initialisers: Sequence[str],
    lr: float,
    lrs: Sequence[float],
    epochs: int,
    train_images: int,
    seeds: int,
) -> list[Spec]:
    """The runs of every initialiser at `lr`, and of the default one at all of `lrs`."""
    settings = [(name, lr) for name in initialisers]
    settings += [(fcn_runs.INITIALISER, rate) for rate in lrs]
    return [
        spec
        for name, rate in dict.fromkeys(settings)
        for spec in fcn_runs.specs(
            hidden,
            width,
            dataset="mnist",
            lr=rate,
            epochs=epochs,
            train_images=train_images,
            seeds=range(seeds),
            initialiser=name,
        )
    ]


def measure(runs: Sequence[Spec], test_images: int, rerandomise: int, device: str) -> pd.DataFrame:
    """Every layer of every run at its initial values, and at values drawn anew.

    The table is that of `initial_values.measure`.
    """
    return initial_values.measure(
        runs, test_images=test_images, rerandomise=rerandomise, device=device
    )


def by_initialiser(table: pd.DataFrame, lr: float) -> pd.DataFrame:
    """The rows of the runs at `lr`, of every initialiser."""
    return table[table.lr == lr]


def by_lr(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs of the default initialiser, in order of the learning rate."""
    return table[table.initialiser == fcn_runs.INITIALISER].sort_values("lr", kind="stable")


def gaps(rows: pd.DataFrame, by: str) -> dict[str | float, Measured]:
    """Damage of layer1 minus the largest of another layer, by initialiser or learning rate."""
    return {
        key: seeds.interval(layers_fcn.gap(_damages(part)))
        for key, part in rows.groupby(by, sort=False)
    }


def summary(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """A row each initialiser or learning rate, means over seeds.

    Columns: `final` test error; damage of `layer1` and of the `other` layer that suffers most,
    and `gap`, their difference with its 95 % interval, in points; smallest test error of a
    `rerandomised` layer; relative distance that layer1 `moved`.
    """
    first = rows[rows.layer == CRITICAL].set_index([by, "seed"])
    every = rows.groupby([by, "seed"], sort=False)
    others = rows[rows.layer != CRITICAL].groupby([by, "seed"], sort=False)
    runs = pd.DataFrame(
        {
            "final": first.final,
            CRITICAL: first.damage,
            "other": others.damage.max(),
            "rerandomised": every.rerandomised.min(),
            "moved": first.moved,
        }
    )
    found = runs.groupby(by, sort=False).mean()
    texts = {key: interval(gap) for key, gap in gaps(rows, by).items()}
    found.insert(3, "gap", pd.Series(texts))
    return found.reset_index()


def slopes(table: pd.DataFrame) -> pd.Series:
    """Slope of layer1's damage in log₁₀ of the learning rate, in points, by seed.

    Empty where there is one learning rate only.
    """
    rows = by_lr(table)
    damage = rows[rows.layer == CRITICAL].pivot(index="lr", columns="seed", values="damage")
    if len(damage) < 2:
        return pd.Series(dtype=float)
    found = np.polyfit(np.log10(damage.index), damage.to_numpy(), 1)[0]  # (seeds,)
    return pd.Series(found, index=damage.columns)


def equally_good(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `by_lr` at rates whose mean final error is near the smallest (SAME_ERROR)."""
    rows = by_lr(table)
    final = rows.groupby("lr").final.mean()
    return rows[rows.lr.map(final) <= final.min() + SAME_ERROR / 100]


def judge(table: pd.DataFrame, lr: float) -> list[claims.Verdict]:
    """Verdicts on C25 and C26 from the table of `measure`."""
    return [_judge_initialisers(by_initialiser(table, lr)), _judge_lrs(table)]


def _judge_initialisers(rows: pd.DataFrame) -> claims.Verdict:
    found = gaps(rows, "initialiser")
    if len(found) < FOUR:
        return claims.not_run("C25", f"It needs {FOUR} initialisers.")
    if reason := unlearned(_final(rows, "initialiser"), CHANCE):
        return claims.not_run("C25", reason)
    least = min(found, key=lambda name: found[name].value)
    # Each end is the smallest of its kind: an initialiser whose interval is wide decides too.
    ends = [min(getattr(gap, end) for gap in found.values()) for end in ("value", "low", "high")]
    return claims.check(
        "C25",
        Measured(*ends),
        sample=f"{rows.seed.nunique()} networks an initialiser",
        note=f"The smallest gap is that of {least}.",
    )


def _judge_lrs(table: pd.DataFrame) -> claims.Verdict:
    found = slopes(table)
    if found.empty:
        return claims.not_run("C26", "It needs two learning rates or more.")
    if reason := unlearned(_final(by_lr(table), "lr"), CHANCE):
        return claims.not_run("C26", reason)
    final = 100 * by_lr(table).groupby("lr").final.mean()
    kept = equally_good(table)
    errors = f"Mean final errors lie between {final.min():.2f} % and {final.max():.2f} %"
    if kept.lr.nunique() < len(final):
        rates = ", ".join(f"{lr:g}" for lr in kept.lr.unique())
        return claims.not_run(
            "C26",
            f"{errors}, and the claim speaks of networks that are equally good, to "
            f"{SAME_ERROR} points. Only those of {rates} are; train longer, or change lrs.",
        )
    return claims.check(
        "C26",
        seeds.interval(found),
        sample=f"{len(found)} networks a learning rate",
        note=f"{errors}.",
    )


def draw(table: pd.DataFrame, lr: float) -> Figure:
    """Left by initialiser, right by learning rate: damage, error and distance moved."""
    fig = Figure(figsize=(style.PAGE, 7.2))
    (damage, by_rate), (drawn, final), (moved, moved_by_rate) = fig.subplots(
        3, 2, sharex="col", height_ratios=[4, 3, 3]
    )
    at_lr, scan = by_initialiser(table, lr), by_lr(table)
    damage.set_title(f"learning rate {lr:g}")
    by_rate.set_title(f"initialiser {fcn_runs.INITIALISER}")
    for ax, rows in ((damage, at_lr), (by_rate, scan)):
        ax.set(ylabel="damage (percentage points)", ylim=(-5, 100))
        guessing = 100 * (CHANCE - rows.final.mean())
        ax.axhline(guessing, **GUESSING)
        ax.annotate(
            "random guessing",
            (0.5, guessing),
            (0, 3),
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
            ha="center",
            fontsize=style.SMALL,
        )
    drawn.set(ylabel="test error, re-randomised", ylim=(0, 1))
    drawn.axhline(CHANCE, **GUESSING)
    for ax, value in ((damage, "damage"), (drawn, "rerandomised"), (moved, "moved")):
        _draw_by_layer(ax, at_lr, value)
    for ax, value in ((by_rate, "damage"), (moved_by_rate, "moved")):
        _draw_by_lr(ax, scan, value)
    _draw_final(final, scan)
    final.set(ylabel="test error, whole network", ylim=(0, None))
    moved.set(ylabel="relative distance moved", ylim=(0, None))
    moved_by_rate.set_ylabel("relative distance moved")
    damage.legend(loc="center right")
    moved_by_rate.set_xlabel("initial learning rate")
    return fig


def _draw_by_layer(ax: Axes, rows: pd.DataFrame, value: str) -> None:
    """One value by layer, the initialisers side by side."""
    layers = rows.layer.unique()
    names = rows.initialiser.unique()
    found = initial_values.over_seeds(rows, ["initialiser"], value).set_index("initialiser")
    for i, name in enumerate(names):
        x = np.arange(len(layers)) + 0.13 * (i - (len(names) - 1) / 2)
        points = found.loc[name].set_index("layer").loc[layers]
        style.intervals(
            ax, x, points.value, points.low, points.high, color=style.QUALITATIVE[i], label=name
        )
    ax.set_xticks(range(len(layers)), layers)


def _draw_by_lr(ax: Axes, rows: pd.DataFrame, value: str) -> None:
    """One value against the learning rate, a line a layer."""
    layers = rows.layer.unique()
    colours = style.family(len(layers))
    found = initial_values.over_seeds(rows, ["lr"], value).set_index("layer")
    for i, (layer, colour) in enumerate(zip(layers, colours, strict=True)):
        points = found.loc[[layer]]
        # Side by side, so that the intervals do not hide one another.
        x = points.lr * 1.05 ** (i - (len(layers) - 1) / 2)
        ax.plot(x, points.value, color=colour, linewidth=1)
        style.intervals(ax, x, points.value, points.low, points.high, color=colour)
    _lr_axis(ax, rows)
    if value == "moved":
        ax.set_ylim(0, None)
    last = found[found.lr == found.lr.max()]
    style.end_labels(ax, 1.05 * found.lr.max(), list(last.value), list(last.index), colours)


def _draw_final(ax: Axes, rows: pd.DataFrame) -> None:
    """Test error of the networks themselves against the learning rate."""
    found = initial_values.over_seeds(rows[rows.layer == CRITICAL], ["lr"], "final")
    ax.plot(found.lr, found.value, color=style.BLACK, linewidth=1)
    style.intervals(ax, found.lr, found.value, found.low, found.high, color=style.BLACK)
    _lr_axis(ax, rows)


def _lr_axis(ax: Axes, rows: pd.DataFrame) -> None:
    ax.set_xscale("log")
    ax.set_xticks(rows.lr.unique(), [f"{lr:g}" for lr in rows.lr.unique()])
    ax.minorticks_off()


def _final(rows: pd.DataFrame, by: str) -> pd.Series:
    """Test error of each network."""
    return rows.groupby([by, "seed"]).final.first()


def _damages(rows: pd.DataFrame) -> pd.DataFrame:
    """Damages in points: rows seeds, columns layers."""
    return rows.pivot(index="seed", columns="layer", values="damage")
