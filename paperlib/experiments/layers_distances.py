"""Figs. 17-19 of `layers`: damage beside the distance that each layer moved (App. D).

The paper does not define its normalised 2-norm; we take ‖·‖₂/√fan-in, see `robustness.distances`.
"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments import (
    conv_resets,
    layers_regularised,
    layers_vgg,
    resetting,
    seeds,
)
from paperlib.experiments.layers_regularised import BOTH, TITLES
from paperlib.experiments.layers_resnet import CHANCE
from paperlib.experiments.learned import unlearned
from paperlib.experiments.resetting import Tables
from paperlib.report import claims, style
from paperlib.report.heatmap import DISTANCE, ERROR
from paperlib.robustness.distances import rank_correlation
from paperlib.robustness.evaluate import FULL_MODEL, RERANDOMISED
from paperlib.training.runs import Spec

L2, LINF, RELATIVE = "l2_fan_in", "linf", "relative"
LABELS = {
    "error": "test error",
    L2: "2-norm moved / √fan-in",
    LINF: "∞-norm moved",
    RELATIVE: "relative 2-norm moved",
}

specs = layers_regularised.specs


def measure(trained: Sequence[Spec], test_images: int, rerandomise: int, device: str) -> Tables:
    """Errors and distances of every layer of one network in its configurations."""
    return conv_resets.measure(
        trained, test_images=test_images, rerandomise=rerandomise, device=device
    )


def of(tables: Tables, configuration: str) -> Tables:
    """The rows of one configuration."""
    return Tables(*(conv_resets.part(table, configuration=configuration) for table in tables))


def configurations(tables: Tables) -> list[str]:
    """The configurations that were measured, in order."""
    return list(tables.errors.configuration.unique())


def by_layer(tables: Tables, configuration: str) -> pd.DataFrame:
    """The layers of one configuration: damage at checkpoint 0 beside each final distance.

    `damage`, `low`, `high` as of `conv_resets.damages`, and a column a kind of distance, mean over
    seeds.
    """
    rows = of(tables, configuration)
    found = conv_resets.damages(rows.errors)
    last = rows.distances.column.iloc[-1]
    for kind in (L2, LINF, RELATIVE):
        found[kind] = resetting.at(rows.distances, last, kind).mean().reindex(found.index)
    return found


def early(tables: Tables, configuration: str) -> pd.DataFrame:
    """Damage and 2-norm moved at checkpoint 1 beside those at 0 and at the end, mean over seeds.

    `ratio` is of the distance at checkpoint 1 to the final one, `∞ ratio` the same in the ∞-norm.
    """
    rows = of(tables, configuration)
    last = rows.distances.column.iloc[-1]
    found = {f"damage {c}": resetting.at(rows.errors, c).mean() for c in ("0", "1")}
    for name, kind in (("", L2), ("∞ ", LINF)):
        start, end = (resetting.at(rows.distances, c, kind) for c in ("1", last))
        if kind == L2:
            found |= {"moved by 1": start.mean(), "moved by the end": end.mean()}
        found[f"{name}ratio"] = (start / end).mean()
    return pd.DataFrame(found)


def correlations(tables: Tables) -> pd.DataFrame:
    """Spearman's ρ over layers of damage at checkpoint 0 and distance moved (App. D).

    A row each configuration, group of layers (all, or residual blocks only) and kind of distance:
    `rho`, mean over seeds, with `low` and `high` (95 % over seeds). A network whose layers are all
    damaged alike has none, and then `rho` is NaN.
    """
    rows = []
    for name in configurations(tables):
        layers = list(resetting.at(of(tables, name).errors, "0"))
        for group, kept in (("all layers", layers), ("residual blocks", _blocks(layers))):
            for kind in (L2, LINF, RELATIVE) if len(kept) > 2 else ():
                found = rhos(of(tables, name), kind, kept)
                ends = [float("nan")] * 3
                if found.notna().all():
                    m = seeds.interval(found)
                    ends = [m.value, m.low, m.high]
                rows.append((name, group, kind, *ends))
    columns = ["configuration", "layers", "distance", "rho", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def rhos(tables: Tables, kind: str, layers: Sequence[str]) -> pd.Series:
    """Spearman's ρ by seed over some layers; `tables` are of one configuration."""
    damage = resetting.at(tables.errors, "0")[layers]
    moved = resetting.at(tables.distances, tables.distances.column.iloc[-1], kind)[layers]
    found = {seed: rank_correlation(damage.loc[seed], moved.loc[seed]) for seed in damage.index}
    return pd.Series(found)


def _blocks(layers: Sequence[str]) -> list[str]:
    return [layer for layer in layers if ".resblk" in layer]


def judge(tables: Tables, dataset: str) -> list[claims.Verdict]:
    """Verdicts on C17 for a VGG; for a ResNet on C16b and C17b, or on their parts for ImageNet.

    On a data set that stands in for ImageNet they are `not run`.
    """
    layers = [layer for layer in tables.errors.layer.unique() if layer != FULL_MODEL]
    if not _blocks(layers):
        ids = ["C17"]
    elif dataset == "cifar10":
        ids = ["C16b", "C17b"]
    else:
        ids = ["C16b-imagenet", "C17b-imagenet"]
    if dataset not in CHANCE:
        return [claims.not_run(id, f"It needs ImageNet; this is {dataset}.") for id in ids]
    for name in configurations(tables):
        if reason := unlearned(resetting.final_error(of(tables, name).errors), CHANCE[dataset]):
            return [claims.not_run(id, f"{TITLES[name]}: {reason}") for id in ids]
    if ids == ["C17"]:
        return [_vgg(tables, layers)]
    return [_farthest(tables, ids[0]), _resnet(tables, ids[1], layers)]


def _vgg(tables: Tables, layers: Sequence[str]) -> claims.Verdict:
    rows = of(tables, "plain")
    rho = rhos(rows, L2, layers)
    if rho.isna().any():
        return claims.not_run("C17", "All layers are damaged alike: there is no rank correlation.")
    moved = resetting.at(rows.distances, rows.distances.column.iloc[-1], LINF)
    top = [x for x in layers if layers_vgg.group(x) in (layers_vgg.TOP, layers_vgg.FC)]
    far = moved[top].median(axis=1) / moved[list(layers)].median(axis=1)
    measured = {"spearman_l2": seeds.interval(rho), "top_linf": seeds.interval(far)}
    return claims.check("C17", measured, sample=f"{len(rho)} seeds")


def _farthest(tables: Tables, id: str) -> claims.Verdict:
    rows = of(tables, BOTH)
    if "1" not in set(rows.distances.column):
        return claims.not_run(id, "It needs a network with both, and checkpoint 1.")
    last = rows.distances.column.iloc[-1]
    start, end = (resetting.at(rows.distances, column, L2) for column in ("1", last))
    ratio = start / end
    layer = ratio.mean().idxmax()
    share = (ratio > 1).sum(axis=1).mean()
    note = f"Largest in {layer}; above 1 in {share:.3g} of {ratio.shape[1]} layers."
    found = seeds.interval(ratio.max(axis=1))
    return claims.check(id, found, sample=f"{len(ratio)} seeds", note=note)


def _resnet(tables: Tables, id: str, layers: Sequence[str]) -> claims.Verdict:
    if "plain" not in configurations(tables):
        return claims.not_run(id, "It needs the network without both.")
    rho = rhos(of(tables, "plain"), L2, _blocks(layers))
    if rho.isna().any():
        return claims.not_run(id, "All blocks are damaged alike: there is no rank correlation.")
    return claims.check(id, seeds.interval(rho), sample=f"{len(rho)} seeds")


def draw(tables: Tables, dataset: str) -> Figure:
    """Error and both distances of every layer and checkpoint; below, damage against distance.

    Panels are lettered as in the paper: error, 2-norm and ∞-norm of the first configuration, then
    those of the next. The colours of a distance end at the largest of the checkpoints.
    """
    names = configurations(tables)
    panels = {}
    for name in names:
        rows = of(tables, name)
        for kind in ("error", L2, LINF):
            letter = "abcdefghijkl"[len(panels)]
            title = f"({letter}) {LABELS[kind]}" + (f", {TITLES[name]}" if len(names) > 1 else "")
            grid = resetting.grid(rows.errors if kind == "error" else rows.distances, kind)
            # A place without a distance for the whole model keeps the layers in line.
            panels[title] = (
                kind,
                grid.reindex([*grid.index.drop(FULL_MODEL, "ignore"), FULL_MODEL]),
            )
    heights = [conv_resets.height({title: grid}) for title, (_, grid) in panels.items()]
    fig = Figure(figsize=(style.PAGE, sum(heights) + 2.5))
    *above, below = fig.subfigures(len(panels) + 1, 1, height_ratios=[*heights, 2.5])
    for part, (title, (kind, grid)) in zip(above, panels.items(), strict=True):
        # Fresh values lie so far away that with them the checkpoints would all be pale.
        colours, high = (
            DISTANCE,
            float(grid.drop(columns=RERANDOMISED, errors="ignore").max(axis=None)),
        )
        if kind == "error":
            colours, high = ERROR, CHANCE.get(dataset, 0.9)
        conv_resets.draw_panels(part, {title: grid}, colours=colours, high=high, label="")
        ax = part.axes[0]
        if kind != "error":
            ax.set_xticks(ax.get_xticks()[:-1], ax.get_xticklabels()[:-1])
        if part is not above[-1]:
            ax.set_xlabel("")
    axes = below.subplots(1, 2 * len(names), sharey=True)
    for i, name in enumerate(names):
        rows = by_layer(tables, name)
        for ax, kind in zip(axes[2 * i :], (L2, LINF), strict=False):
            _draw_scatter(ax, rows, kind)
            ax.set_title(name if len(names) > 1 else "")
    axes[0].set_ylabel("damage (percentage points)")
    handles, labels = axes[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return fig


def _draw_scatter(ax: Axes, rows: pd.DataFrame, kind: str) -> None:
    """Damage at checkpoint 0 against one final distance, coloured by group of layers."""
    conv_resets.draw_moved(ax, rows.assign(moved=rows[kind]), groups(list(rows.index)))
    ax.locator_params("x", nbins=4)
    ax.set_xlabel(LABELS[kind])


def groups(layers: Sequence[str]) -> dict[str, str]:
    """Each layer's group: those of `layers_vgg.GROUPS`, or what §3.2 says of a ResNet's layers."""
    if not _blocks(layers):
        return {layer: layers_vgg.group(layer) for layer in layers}
    robust = set(conv_resets.robust(layers))
    names = ("stem, first blocks, final", "other blocks")
    return {layer: names[layer in robust] for layer in layers}
