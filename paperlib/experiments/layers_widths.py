"""Fig. 2 of `layers`: damage above the first layer against the width and the depth of an FCN.

The content of the paper's figure is recalled, not seen: no number of it is compared.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments import fcn_runs, initial_values, seeds
from paperlib.experiments.learned import unlearned
from paperlib.report import claims, style
from paperlib.report.tables import interval
from paperlib.training.runs import Spec

FIRST = "layer1"
CHANCE = 0.9
NETWORK = ["hidden", "width"]


def specs(
    dataset: str,
    widths: Sequence[int],
    depths: Sequence[int],
    more_widths: Sequence[int],
    lr: float,
    epochs: int,
    train_images: int,
    seeds: int,
    more_seeds: int,
) -> list[Spec]:
    """The runs of every width at every depth (hidden layers), one a seed.

    `more_widths` come with `more_seeds` seeds. ValueError where those are more than `seeds`, or
    where a width or a depth is given twice.
    """
    for name, given in (("depths", depths), ("widths", widths), ("more_widths", more_widths)):
        if len(set(given)) < len(given):
            raise ValueError(f"{name} must not repeat a number; got {list(given)}.")
    if more_widths and more_seeds > seeds:
        raise ValueError(f"more_seeds must be at most seeds = {seeds}; got {more_seeds}.")
    if twice := set(widths) & set(more_widths):
        raise ValueError(f"more_widths must not repeat widths: take out {sorted(twice)}.")
    numbers = dict.fromkeys(widths, seeds) | dict.fromkeys(more_widths, more_seeds)
    return [
        spec
        for hidden in depths
        for width, number in numbers.items()
        for spec in fcn_runs.specs(
            hidden,
            width,
            dataset=dataset,
            lr=lr,
            epochs=epochs,
            train_images=train_images,
            seeds=range(number),
        )
    ]


def measure(runs: Sequence[Spec], test_images: int, device: str) -> pd.DataFrame:
    """Every layer of every run reset to its initial values: `initial_values.measure`'s table."""
    return initial_values.measure(runs, test_images=test_images, rerandomise=0, device=device)


def networks(table: pd.DataFrame) -> pd.DataFrame:
    """A row each network: number of `seeds`, `final` test error, and damages in points.

    Damages are those of layer1, and above it the mean and the largest over the layers; all are
    means over seeds, `above` with its 95 % interval.
    """
    above = table[table.layer != FIRST].groupby([*NETWORK, "seed"]).damage
    runs = pd.DataFrame(
        {
            "final": table.groupby([*NETWORK, "seed"]).final.first(),
            FIRST: table[table.layer == FIRST].set_index([*NETWORK, "seed"]).damage,
            "above": above.mean(),
            "largest": above.max(),
        }
    )
    groups = runs.groupby(NETWORK)
    found = groups.mean()
    found.insert(0, "seeds", groups.size())
    found["above"] = pd.Series({key: interval(seeds.interval(v)) for key, v in groups.above})
    return found.reset_index()


def slopes(table: pd.DataFrame, over_layers: str = "mean") -> pd.DataFrame:
    """Slope of the "mean" or "max" damage above layer1, in points: a row a seed.

    Columns `width` (a doubling) and `depth` (a further hidden layer).

    For each seed, least squares of the damage on log₂ width and on the number of hidden layers
    together, over the networks that were trained from every seed. The frame is empty where those
    have one width only, or one depth.
    """
    groups = table[table.layer != FIRST].groupby([*NETWORK, "seed"])
    damage = groups.damage.agg(over_layers).unstack().dropna()  # networks by seeds
    hidden, width = (damage.index.get_level_values(name).to_numpy(float) for name in NETWORK)
    design = np.stack([np.log2(width), hidden, np.ones_like(hidden)], axis=1)  # (networks, 3)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return pd.DataFrame(columns=["width", "depth"], dtype=float)
    found = np.linalg.lstsq(design, damage.to_numpy())[0][:2]  # (2, seeds)
    return pd.DataFrame(found.T, columns=["width", "depth"], index=damage.columns)


def slope_table(table: pd.DataFrame) -> pd.DataFrame:
    """Slopes over seeds with their 95 % intervals, for the mean and for the largest damage."""
    rows = [
        (name, direction, interval(seeds.interval(values), 2))
        for name, over_layers in (("mean", "mean"), ("largest", "max"))
        for direction, values in slopes(table, over_layers).items()
        if len(values)
    ]
    return pd.DataFrame(rows, columns=["damage", "slope in", "points"])


def depth_in_words(table: pd.DataFrame) -> str:
    """Whether the slope in depth, which C4 wants above 0, leans for or against it."""
    values = slopes(table).depth
    if values.empty:
        return "There is no slope in depth: it takes two widths and two depths."
    found = seeds.interval(values)
    side = "for" if found.value > 0 else "against"
    if found.unbounded:
        end = "; one seed cannot settle it"
    elif found.low > 0 or found.high < 0:
        end = ", and its interval excludes 0"
    else:
        end = ", but its interval holds 0, so that these seeds leave it open"
    points = interval(found, 2)
    return f"In depth the mean damage has slope {points}, which leans {side} the claim{end}."


def judge(table: pd.DataFrame) -> list[claims.Verdict]:
    """Verdict on C4 from the table of `measure`."""
    found = slopes(table)
    if reason := unlearned(table.groupby([*NETWORK, "seed"]).final.first(), CHANCE):
        return [claims.not_run("C4", reason)]
    if found.empty:
        return [claims.not_run("C4", "It needs two widths and two depths, each with every seed.")]
    return [
        claims.check(
            "C4",
            {
                "width_slope": seeds.interval(found.width),
                "depth_slope": seeds.interval(found.depth),
            },
            sample=f"{len(found)} seeds",
        )
    ]


def draw(table: pd.DataFrame) -> Figure:
    """By depth, a column each: damage of every layer above the first, and how far it moved."""
    depths = sorted(table.hidden.unique())
    fig = Figure(figsize=(style.PAGE, 5.2))
    axes = fig.subplots(
        2,
        len(depths),
        sharex="col",
        sharey="row",
        squeeze=False,
        width_ratios=[depth + 1 for depth in depths],
        height_ratios=[3, 2],
    )
    above = table[table.layer != FIRST]
    for value, row in zip(("damage", "moved"), axes, strict=True):
        for depth, ax in zip(depths, row, strict=True):
            _draw_layers(ax, above[above.hidden == depth], value)
    for depth, top, bottom in zip(depths, *axes, strict=True):
        top.set_title(f"{depth} hidden layers")
        bottom.set_xlabel("layer")
    axes[0, 0].set_ylabel("damage (percentage points)")
    axes[1, 0].set_ylabel("relative distance moved")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return fig


def _draw_layers(ax: Axes, rows: pd.DataFrame, value: str) -> None:
    """One depth: a group of bars a layer, a bar a width with its standard deviation over seeds."""
    layers = rows.layer.unique()
    widths = sorted(rows.width.unique())
    step = 0.8 / len(widths)
    for i, (width, colour) in enumerate(zip(widths, style.family(len(widths)), strict=True)):
        x = np.arange(len(layers)) + step * (i - (len(widths) - 1) / 2)
        seeds = rows[rows.width == width].pivot(index="seed", columns="layer", values=value)
        seeds = seeds[layers]
        mean, sd = seeds.mean(), seeds.std()
        ax.bar(x, mean, 0.9 * step, color=colour, label=f"width {width}")
        ax.vlines(x, mean - sd, mean + sd, color=style.BLACK, linewidth=1)
        ax.scatter(
            np.tile(x, len(seeds)),
            seeds,
            s=6,
            color="white",
            edgecolors=style.BLACK,
            linewidths=0.5,
            zorder=3,
        )
    ax.set_xticks(range(len(layers)), [layer.removeprefix("layer") for layer in layers])
    ax.grid(False, axis="x")
