"""Fig. 1 of `layers`: FCN 3×256 on MNIST, each layer reset to each checkpoint, and its distances.

The paper's values were measured from the colours of its figure (error about 0.01).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments import fcn_runs, resetting, seeds
from paperlib.experiments.learned import unlearned
from paperlib.experiments.resetting import Tables
from paperlib.report import claims, style
from paperlib.report.heatmap import DISTANCE, ERROR, heatmap
from paperlib.report.rules import Measured
from paperlib.report.tables import interval as text
from paperlib.robustness.distances import rank_correlation
from paperlib.robustness.evaluate import FULL_MODEL, RERANDOMISED
from paperlib.training.runs import Spec

CLAIMS = ("C1", "C2", "C3", "C5", "C20-fcn")
CRITICAL = "layer1"
CHANCE = 0.9
L2, LINF = "l2_fan_in", "linf"

_ROWS = ["layer1", "layer2", "layer3", "layer4", FULL_MODEL]
_COLUMNS = ["ReRnd", "0", "1", "2", "3", "8", "40", "90", "100"]
_NAN = float("nan")
_PAPER = {
    "error": [
        [0.895, 0.38, 0.06, 0.03, 0.025, 0.02, 0.019, 0.019, 0.019],
        [0.90, 0.075, 0.03, 0.02, 0.02, 0.02, 0.019, 0.019, 0.019],
        [0.90, 0.02, 0.02, 0.02, 0.02, 0.02, 0.019, 0.019, 0.019],
        [0.84, 0.06, 0.02, 0.02, 0.02, 0.02, 0.019, 0.019, 0.019],
        [0.90, 0.90, 0.05, 0.04, 0.03, 0.02, 0.019, 0.019, 0.019],
    ],
    L2: [
        [0.39, 0, 0.025, _NAN, _NAN, 0.09, _NAN, _NAN, 0.132],
        [0.67, 0, 0.01, _NAN, _NAN, 0.06, _NAN, _NAN, 0.093],
        [0.67, 0, 0.02, _NAN, _NAN, 0.05, _NAN, _NAN, 0.082],
        [0.136, 0, 0.104, _NAN, _NAN, 0.30, _NAN, _NAN, 0.48],
    ],
    LINF: [
        [0.141, 0, 0.09, _NAN, _NAN, 0.185, _NAN, _NAN, 0.226],
        [0.246, 0, 0.10, _NAN, _NAN, 0.174, _NAN, _NAN, 0.213],
        [0.246, 0, 0.10, _NAN, _NAN, 0.149, _NAN, _NAN, 0.180],
        [0.235, 0, 0.31, _NAN, _NAN, 0.44, _NAN, _NAN, 0.517],
    ],
}


def paper(value: str) -> pd.DataFrame:
    """The published panel for "error", "l2_fan_in" or "linf"; NaN where it was not measured."""
    rows = _PAPER[value]
    return pd.DataFrame(rows, index=_ROWS[: len(rows)], columns=_COLUMNS)


def specs(
    hidden: int,
    width: int,
    initialiser: str,
    lr: float,
    epochs: int,
    train_images: int,
    seeds: int,
) -> list[Spec]:
    """The runs that the figure needs, one a seed."""
    return fcn_runs.specs(
        hidden,
        width,
        dataset="mnist",
        lr=lr,
        epochs=epochs,
        train_images=train_images,
        seeds=range(seeds),
        initialiser=initialiser,
    )


def measure(runs: Sequence[Spec], test_images: int, rerandomise: int, device: str) -> Tables:
    """Errors, damages and distances of every layer of every run; see `resetting.measure`."""
    return resetting.measure(runs, test_images=test_images, rerandomise=rerandomise, device=device)


def damages(tables: Tables) -> pd.DataFrame:
    """Damage of each reset in points, mean over seeds with its 95 % interval, a row a layer."""
    columns = tables.errors.column.unique()[:-1]
    found = {column: resetting.over_seeds(tables.errors, column) for column in columns}
    return pd.DataFrame(
        {
            column: [text(Measured(r.damage, r.low, r.high)) for r in rows.itertuples()]
            for column, rows in found.items()
        },
        index=next(iter(found.values())).index,
    )


def beside_paper(tables: Tables) -> pd.DataFrame:
    """Test error with each layer at its initial values, ours (range over seeds) and the paper's."""
    ours = resetting.at(tables.errors, "0", "error")
    ours = ours.assign(final=resetting.final_error(tables.errors))
    theirs = paper("error")["0"].drop(FULL_MODEL)
    theirs["final"] = paper("error").loc[FULL_MODEL, "100"]
    return pd.DataFrame(
        {"ours": ours.mean(), "smallest": ours.min(), "largest": ours.max(), "paper": theirs}
    ).reindex(ours.columns)


def correlations(tables: Tables) -> pd.DataFrame:
    """Spearman's ρ over layers of damage at checkpoint 0 and distance moved (App. D).

    A row a kind of distance; `rho` is the mean over seeds with its 95 % interval.
    """
    initial = resetting.at(tables.errors, "0")
    last = tables.distances.column.iloc[-1]
    rows = {}
    for kind in resetting.DISTANCES:
        moved = resetting.at(tables.distances, last, kind)
        found = seeds.interval(
            rank_correlation(initial.loc[seed], moved.loc[seed]) for seed in initial.index
        )
        rows[kind] = {"rho": text(found, 2)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("distance")


def judge(tables: Tables) -> list[claims.Verdict]:
    """Verdicts on CLAIMS."""
    errors = tables.errors
    initial = resetting.at(errors, "0")
    number = f"{len(initial)} networks"
    final = resetting.final_error(errors)
    if reason := unlearned(final, CHANCE):
        return [claims.not_run(id, reason) for id in CLAIMS]
    return [
        _rerandomised(errors, number),
        claims.check("C2", seeds.interval(gap(initial)), sample=number),
        _third_epoch(errors, number),
        _most_moved(tables, initial, number),
        claims.check(
            "C20-fcn",
            seeds.interval(initial[CRITICAL] / (100 * (CHANCE - final))),
            sample=number,
        ),
    ]


def gap(initial: pd.DataFrame) -> pd.Series:
    """Damage of layer1 minus the largest of another layer, by seed (rows of `resetting.at`)."""
    return initial[CRITICAL] - initial.drop(columns=CRITICAL).max(axis=1)


def _rerandomised(errors: pd.DataFrame, number: str) -> claims.Verdict:
    if RERANDOMISED not in set(errors.column):
        return claims.not_run("C1", "It needs rerandomise of 1 or more.")
    smallest = resetting.at(errors, RERANDOMISED, "error").min(axis=1)
    return claims.check("C1", seeds.interval(smallest), sample=number)


def _third_epoch(errors: pd.DataFrame, number: str) -> claims.Verdict:
    if "3" not in set(errors.column):
        return claims.not_run("C3", "It needs three epochs or more.")
    damage = resetting.at(errors, "3")[CRITICAL]
    return claims.check("C3", seeds.interval(damage), sample=number)


def _most_moved(tables: Tables, initial: pd.DataFrame, number: str) -> claims.Verdict:
    last = tables.distances.column.iloc[-1]
    shares = {}
    for name, kind in (("share_l2", L2), ("share_linf", LINF)):
        moved = resetting.at(tables.distances, last, kind)
        shares[name] = seeds.share(moved.idxmax(axis=1) != initial.idxmax(axis=1))
    return claims.check("C5", shares, sample=number)


def draw(tables: Tables) -> Figure:
    """Test error and both distances, ours beside the paper's, and below the damage by layer."""
    fig = Figure(figsize=(style.PAGE, 7.6))
    names = [["error", "error*"], [L2, f"{L2}*"], [LINF, f"{LINF}*"], ["damage", "damage"]]
    axes = fig.subplot_mosaic(names, height_ratios=[5, 4, 4, 6])
    for value, colours, label in (
        ("error", ERROR, "test error"),
        (L2, DISTANCE, "2-norm moved / √fan-in"),
        (LINF, DISTANCE, "∞-norm moved"),
    ):
        _draw_pair(axes[value], axes[f"{value}*"], tables, value, colours, label)
    axes["error"].set_title("ours, mean over seeds")
    axes["error*"].set_title("the paper's, measured from its colours")
    _draw_damage(axes["damage"], tables)
    return fig


def _draw_pair(
    left: Axes, right: Axes, tables: Tables, value: str, colours: str, label: str
) -> None:
    ours = resetting.grid(tables.errors if value == "error" else tables.distances, value)
    theirs = paper(value)
    high = CHANCE if value == "error" else max(ours.max(axis=None), theirs.max(axis=None))
    heatmap(left, ours, colours=colours, high=high)
    heatmap(right, theirs, colours=colours, high=high, bar=label)
    if list(ours.index) == list(theirs.index):
        right.set_yticks([])
    if value != LINF:
        left.set_xlabel("")
        right.set_xlabel("")


def _draw_damage(ax: Axes, tables: Tables) -> None:
    """Damage by layer at the first checkpoints, with 95 % intervals over seeds."""
    columns = [c for c in tables.errors.column.unique()[:-1] if c != RERANDOMISED]
    found = {column: resetting.over_seeds(tables.errors, column) for column in columns}
    layers = next(iter(found.values())).index
    for i, (layer, colour) in enumerate(zip(layers, style.family(len(layers)), strict=True)):
        rows = pd.DataFrame([found[column].loc[layer] for column in columns])
        x = np.arange(len(columns)) + 0.12 * (i - (len(layers) - 1) / 2)
        style.intervals(ax, x, rows.damage, rows.low, rows.high, color=colour, label=layer)
    ax.set_xticks(range(len(columns)), columns)
    ax.set(xlabel="checkpoint (epoch) that the layer is reset to")
    ax.set_ylabel("damage (percentage points)")
    ax.legend(loc="upper right")
