"""Convolutional networks reset layer by layer: tidy tables of several, and heatmaps (§3.2)."""

from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import networks
from paperlib.experiments import conv_runs, resetting
from paperlib.experiments.resetting import Tables
from paperlib.report import style
from paperlib.report.heatmap import heatmap
from paperlib.training.runs import Spec

SETTING = ["network", "configuration", "treatment", "version"]
CHANCE = 0.9

Grouping = Callable[[Sequence[str]], Mapping[str, Sequence[str]]]


def measure(
    specs: Sequence[Spec],
    *,
    test_images: int,
    rerandomise: int,
    device: str,
    groups: Grouping | None = None,
    checkpoints: Collection[int] | None = None,
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
    return [name for name in layers if not is_later_block(name)]


def robust(layers: Sequence[str]) -> list[str]:
    """A ResNet's layers that the paper finds robust: all but the first block of each stage."""
    return [name for name in layers if is_later_block(name)]


def is_later_block(layer: str) -> bool:
    """Whether a layer is a residual block that is not the first of its stage."""
    _, _, block = layer.partition(".resblk")
    return bool(block) and int(block) > 1


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
    heights = [len(grid.columns) + 5.5 for grid in grids.values()]  # names of layers need 5.5 rows
    fig = Figure(figsize=(style.PAGE, 0.155 * sum(heights)))
    axes = fig.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (title, grid) in zip(axes, grids.items(), strict=True):
        top = float(grid.max(axis=None)) if high is None else high
        heatmap(ax, grid.T, colours=colours, high=top, bar=label if high is None else "")
        label_layers(ax)
        ax.set_title(title)
    if high is not None:
        bar = fig.colorbar(axes[0].collections[0], ax=list(axes), label=label, aspect=40, pad=0.01)
        bar.outline.set_visible(False)
    return fig


def label_layers(ax: Axes) -> None:
    """Layers' names upright below a heatmap whose columns they are."""
    ax.tick_params("x", labelrotation=90)
    ax.set(xlabel="", ylabel="checkpoint (epoch)")
