"""Convolutional networks reset layer by layer: tidy tables of several, and heatmaps (§3.2)."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from paperlib import networks
from paperlib.experiments import conv_runs, resetting
from paperlib.experiments.resetting import Tables
from paperlib.report import style
from paperlib.report.heatmap import heatmap
from paperlib.robustness import joint
from paperlib.robustness.evaluate import FULL_MODEL
from paperlib.training import runs
from paperlib.training.runs import Spec

SETTING = ["network", "configuration", "treatment", "version"]
CHANCE = 0.9
MOST_PRINTED = 24  # layers of a heatmap that has room for numbers in its cells

Grouping = Callable[[Sequence[str]], Mapping[str, Sequence[str]]]


def measure(
    specs: Sequence[Spec],
    *,
    test_images: int,
    rerandomise: int,
    device: str,
    groups: Grouping | None = None,
    checkpoints: Collection[int] | None = None,
    buffers: str = "reset",
) -> Tables:
    """The tables of `resetting.measure` for runs of several settings, whose columns come first.

    A setting is `network`, `configuration` (of conv_runs.CONFIGURATIONS), `treatment` (of
    conv_runs.TREATMENTS) and `version` (2, or 1; 0 for a VGG).

    Args:
        groups: makes of a network's layers, in order, the groups that are reset together; None
            resets each layer alone. The other arguments are those of `resetting.measure`.
    """
    if not specs:
        raise ValueError(resetting.NO_NETWORKS)
    by_setting: dict[tuple[str, str, str, int], list[Spec]] = {}
    for spec in specs:
        by_setting.setdefault(setting(spec), []).append(spec)
    found = []
    for values, group in by_setting.items():
        layers = list(networks.layers(group[0].build()))
        tables = resetting.measure(
            group,
            test_images=test_images,
            rerandomise=rerandomise,
            device=device,
            groups=None if groups is None else groups(layers),
            checkpoints=checkpoints,
            buffers=buffers,
        )
        named = dict(zip(SETTING, values, strict=True))
        found.append([table.assign(**named) for table in tables])
    joined = (pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True))
    return Tables(*(table[[*SETTING, *table.columns.drop(SETTING)]] for table in joined))


def setting(spec: Spec) -> tuple[str, str, str, int]:
    """Network, configuration, treatment and version of a run, see `measure`."""
    key = (spec.recipe.weight_decay > 0, bool(spec.options["batch_norm"]))
    configuration = next(name for name, v in conv_runs.CONFIGURATIONS.items() if v == key)
    treatment = "full"
    if spec.recipe.frozen:
        treatment = "frozen"
    elif "blocks" in spec.options:
        treatment = "removed"
    return spec.network, configuration, treatment, int(spec.options.get("version", 0))


def part(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The rows of one setting, e.g. `part(tables.errors, network="vgg16", configuration="bn")`."""
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def critical(layers: Sequence[str]) -> list[str]:
    """A ResNet's layers that the paper finds critical: stem, first blocks, final layer (§3.2)."""
    spared = set(robust(layers))
    return [name for name in layers if name not in spared]


def robust(layers: Sequence[str]) -> list[str]:
    """A ResNet's layers that the paper finds robust: all but the first block of each stage."""
    return joint.later_blocks(layers)


def medians(damages: pd.DataFrame) -> pd.DataFrame:
    """Median damage of `critical` and of `robust` layers by seed, and their `gap`, in points.

    `damages` has rows seeds and columns layers, see `resetting.at`.
    """
    layers = list(damages.columns)
    found = pd.DataFrame(
        {
            "critical": damages[critical(layers)].median(axis=1),
            "robust": damages[robust(layers)].median(axis=1),
        }
    )
    return found.assign(gap=found.critical - found.robust)


def curves(specs: Sequence[Spec], *, device: str) -> pd.DataFrame:
    """How the runs were trained: a row each setting, `seed` and `epoch`, with `loss` and `error`.

    Both are means over the training images while they were being learned, so those of
    an epoch are of the network on its way through it.
    """
    parts = []
    for spec in specs:
        history = runs.get(spec, device=device).history
        rows = history[["epoch", "loss"]].assign(error=1 - history.accuracy, seed=spec.seed)
        parts.append(rows.assign(**dict(zip(SETTING, setting(spec), strict=True))))
    table = pd.concat(parts, ignore_index=True)
    return table[[*SETTING, "seed", "epoch", "loss", "error"]]


def finals(errors: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Final test error, and training error in the last epoch, by network: means over seeds.

    `errors` and `curves` are of one configuration, treatment and version.
    """
    last = curves[curves.epoch == curves.epoch.max()].groupby("network")
    test = {n: resetting.final_error(rows).mean() for n, rows in errors.groupby("network")}
    found = pd.DataFrame({"test error": test, "training error": last.error.mean()})
    return found.assign(**{"training loss": last.loss.mean()}).reindex(errors.network.unique())


def damages(errors: pd.DataFrame, column: str = "0") -> pd.DataFrame:
    """Damage of each layer's reset to a column, in points: `damage`, `low`, `high`.

    The 95 % interval is over seeds; of one seed it is over images, or for ReRnd over draws, which
    says nothing of another seed. `errors` are of one network in one setting.
    """
    found = resetting.over_seeds(errors, column)
    if errors.seed.nunique() == 1:
        for end in ("low", "high"):
            found[end] = resetting.at(errors, column, end).iloc[0]
    return found


def by_layer(tables: Tables, column: str = "0") -> pd.DataFrame:
    """`damages` at a column beside how far training moved each layer.

    `moved` is ‖θ_d^T − θ_d^0‖₂/‖θ_d^0‖₂, mean over seeds.
    """
    found = damages(tables.errors, column)
    last = tables.distances.column.iloc[-1]
    moved = resetting.at(tables.distances, last, "relative").mean()
    return found.assign(moved=moved.reindex(found.index))


def draw_moved(ax: Axes, rows: pd.DataFrame, groups: Mapping[str, str]) -> None:
    """Damage of every layer against the distance that training moved it, coloured by group.

    `rows` are those of `by_layer`, `groups` maps each layer to a name for the legend.
    """
    names = list(dict.fromkeys(groups.values()))
    for name, colour in zip(names, style.QUALITATIVE, strict=False):
        of_group = rows[[groups[layer] == name for layer in rows.index]]
        ends = of_group[["damage", "low", "high"]].T.to_numpy()
        style.intervals(ax, of_group.moved, *ends, color=colour, label=name)
    ax.set_xlim(left=0)
    ax.set(xlabel="relative distance moved")


def panels(
    grids: Mapping[str, pd.DataFrame], *, colours: str, high: float | None, label: str
) -> Figure:
    """One heatmap below another by title, checkpoints down and layers across as in the paper.

    Args:
        grids: rows layers and columns checkpoints, see `resetting.grid`.
        colours: of `heatmap`.
        high: end of the scale that all share; None gives each panel its own.
        label: of the colour bar.
    """
    fig = Figure(figsize=(style.PAGE, height(grids)))
    draw_panels(fig, grids, colours=colours, high=high, label=label)
    return fig


def draw_panels(
    fig: Figure | SubFigure,
    grids: Mapping[str, pd.DataFrame],
    *,
    colours: str,
    high: float | None,
    label: str,
) -> None:
    """Draw `panels` into a figure, or a part of one, whose height `height` suggests."""
    heights = [_height(grid) for grid in grids.values()]
    axes = fig.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (title, grid) in zip(axes, grids.items(), strict=True):
        top = float(grid.max(axis=None)) if high is None else high
        digits = 2 if len(grid) <= MOST_PRINTED else None
        bar = label if high is None else ""
        heatmap(ax, grid.T, colours=colours, high=top, digits=digits, bar=bar)
        label_layers(ax, grid.index)
        ax.set_title(title)
    axes[-1].set_xlabel("layer (stage.block)")
    if high is not None:
        bar = fig.colorbar(axes[0].collections[0], ax=list(axes), label=label, aspect=40, pad=0.01)
        bar.outline.set_visible(False)


def height(grids: Mapping[str, pd.DataFrame]) -> float:
    """Inches that `panels` of these grids need."""
    return 0.2 + sum(_height(grid) for grid in grids.values())


def _height(grid: pd.DataFrame) -> float:
    return 0.17 * len(grid.columns) + (0.85 if _upright(grid.index) else 0.55)


def label_layers(ax: Axes, layers: Sequence[str]) -> None:
    """Short names of all layers below a heatmap whose columns they are, upright if they are long.

    `stage2.block1` and `stage2.resblk1` are 2.1 there, and `final_linear` is final.
    """
    short = [_short(layer) for layer in layers]
    ax.set_xticks([i + 0.5 for i in range(len(short))], short)
    ax.tick_params("x", labelrotation=90 if _upright(layers) else 0)
    ax.set(xlabel="", ylabel="checkpoint")


def _upright(layers: Sequence[str]) -> bool:
    return len(layers) > MOST_PRINTED or max(len(_short(layer)) for layer in layers) > 6


def _short(layer: str) -> str:
    names = {"final_linear": "final", FULL_MODEL: "full"}
    return names.get(layer) or re.sub(r"^stage(\d+)\.(?:res)?bl(?:oc)?k(\d+)$", r"\1.\2", layer)
