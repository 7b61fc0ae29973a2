"""Figs. 4 and 5 of `layers`: ResNets on CIFAR-10 and ImageNet, each layer reset to each checkpoint.

With them the checks that the pattern is there for the right reason: how far training moved each
layer, what each branch adds to its skip, the same network with branches that start at 0, and the
other version of ResNets (App. A). The paper's values for ResNet-50 on ImageNet were measured from
the colours of a panel in an early version (error about 0.005).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paperlib import devices
from paperlib.experiments import conv_resets, conv_runs, resetting, seeds
from paperlib.experiments.learned import unlearned
from paperlib.report import claims, style
from paperlib.report.heatmap import ERROR
from paperlib.robustness import branches
from paperlib.robustness.distances import rank_correlation
from paperlib.robustness.evaluate import RERANDOMISED
from paperlib.training import data, runs
from paperlib.training.runs import Spec

CIFAR = "cifar10"
IMAGENET = "imagenet"
CHANCE = {CIFAR: 0.9, IMAGENET: 0.999}
BRANCH_IMAGES = 500  # test images that the norms of branches are averaged over
SCALED = 0.0  # the branch_scale of the ablation
CRITICAL, ROBUST = "stem, first blocks, final", "other blocks"

Variant = tuple[str, int, float]  # network, version, branch_scale

_COLUMNS = ["ReRnd", "0", "1", "10", "100"]
_PAPER = {
    "stage0": [0.999, 0.999, 0.863, 0.447],
    "stage1.resblk1": [0.999, 0.981, 0.958, 0.577],
    "stage1.resblk2": [0.350, 0.355, 0.352, 0.347],
    "stage1.resblk3": [0.385, 0.378, 0.375, 0.367],
    "stage2.resblk1": [0.999, 0.989, 0.848, 0.488],
    "stage2.resblk2": [0.350, 0.352, 0.355, 0.347],
    "stage2.resblk3": [0.350, 0.352, 0.352, 0.350],
    "stage2.resblk4": [0.355, 0.352, 0.355, 0.352],
    "stage3.resblk1": [0.999, 0.999, 0.963, 0.457],
    "stage3.resblk2": [0.362, 0.357, 0.355, 0.350],
    "stage3.resblk3": [0.357, 0.362, 0.362, 0.350],
    "stage3.resblk4": [0.362, 0.357, 0.355, 0.352],
    "stage3.resblk5": [0.370, 0.375, 0.367, 0.355],
    "stage3.resblk6": [0.390, 0.390, 0.388, 0.362],
    "stage4.resblk1": [0.999, 0.999, 0.989, 0.436],
    "stage4.resblk2": [0.439, 0.436, 0.431, 0.367],
    "stage4.resblk3": [0.541, 0.546, 0.521, 0.396],
    "final_linear": [0.999, 0.994, 0.920, 0.393],
}
PAPER_FINAL = 0.347
PAPER = pd.DataFrame.from_dict(
    {layer: [*values, PAPER_FINAL] for layer, values in _PAPER.items()},
    orient="index",
    columns=_COLUMNS,
)


class Tables(NamedTuple):
    """What `measure` returns; all have a column `branch_scale` beside those of the setting."""

    errors: pd.DataFrame
    """As of `conv_resets.measure`."""
    distances: pd.DataFrame
    """As of `conv_resets.measure`."""
    branches: pd.DataFrame
    """A row each run, `when` ("start" or "end" of training) and block: as of `branches.norms`."""
    curves: pd.DataFrame
    """As of `conv_resets.curves`."""


def specs(
    networks: Sequence[str],
    compared: str,
    dataset: str,
    base_width: int,
    lr: float,
    epochs: int,
    train_images: int,
    seeds: int,
    warmup: int,
    augment: bool,
    precision: str,
    device: str,
) -> list[Spec]:
    """The runs that the figure needs.

    Args:
        networks: names in `resnet.RESNETS`, trained from every seed.
        compared: the one that is trained as version 1, and with branches that start at 0, too;
            it is added to `networks` where it lacks. "" leaves these checks out.
        dataset: "cifar10", an ImageNet-like one, or "auto", see `conv_runs.resolved`. The other
            arguments are those of `conv_runs.spec`.
    """
    names = list(dict.fromkeys([*networks, *([compared] if compared else [])]))
    common = {
        "seeds": seeds,
        "dataset": dataset,
        "base_width": base_width,
        "lr": lr,
        "epochs": epochs,
        "train_images": train_images,
        "warmup": warmup,
        "augment": augment,
        "precision": precision,
        "device": device,
    }
    made = conv_runs.specs(names, **common)
    if compared:
        made += conv_runs.specs([compared], version=1, **common)
        made += conv_runs.specs([compared], branch_scale=SCALED, **common)
    return made


def plain_specs(
    networks: Sequence[str],
    dataset: str,
    base_width: int,
    lr: float,
    epochs: int,
    train_images: int,
    seeds: int,
    warmup: int,
    augment: bool,
    precision: str,
    device: str,
) -> list[Spec]:
    """The runs of `specs` with nothing compared: what Fig. 5 needs."""
    return specs(
        networks,
        "",
        dataset,
        base_width,
        lr,
        epochs,
        train_images,
        seeds,
        warmup,
        augment,
        precision,
        device,
    )


def measure(trained: Sequence[Spec], test_images: int, rerandomise: int, device: str) -> Tables:
    """Every layer of every run reset, its branches measured, and how the runs were trained."""
    if not trained:
        raise ValueError(resetting.NO_NETWORKS)
    by_scale: dict[float, list[Spec]] = {}
    for spec in trained:
        by_scale.setdefault(float(spec.options.get("branch_scale", 1.0)), []).append(spec)
    found = []
    for scale, group in by_scale.items():
        resets = conv_resets.measure(
            group, test_images=test_images, rerandomise=rerandomise, device=device
        )
        added = _branches(group, min(test_images, BRANCH_IMAGES), device)
        tables = (*resets, added, conv_resets.curves(group, device=device))
        found.append([_with_scale(table, scale) for table in tables])
    return Tables(*(pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True)))


def _with_scale(table: pd.DataFrame, scale: float) -> pd.DataFrame:
    where = len(conv_resets.SETTING)
    columns = [*table.columns[:where], "branch_scale", *table.columns[where:]]
    return table.assign(branch_scale=scale)[columns]


def _branches(trained: Sequence[Spec], images: int, device: str) -> pd.DataFrame:
    parts = []
    for spec in trained:
        run = runs.get(spec, device=device)
        test = data.load(spec.data, "test", limit=images)
        setting = dict(zip(conv_resets.SETTING, conv_resets.setting(spec), strict=True))
        for when, epoch in (("start", 0), ("end", run.epochs[-1])):
            model = run.model(epoch).to(devices.resolve(device))
            rows = branches.norms(model, data.as_input(test.images)).reset_index()
            parts.append(rows.assign(**setting, seed=spec.seed, when=when))
    table = pd.concat(parts, ignore_index=True)
    first = [*conv_resets.SETTING, "seed", "when"]
    return table[[*first, *table.columns.drop(first)]]


def variants(tables: Tables) -> list[Variant]:
    """Network, version and branch_scale of all that was measured, in order."""
    rows = tables.errors[["network", "version", "branch_scale"]].drop_duplicates()
    return list(rows.itertuples(index=False, name=None))


def main_variants(tables: Tables) -> list[Variant]:
    """The variants of the paper's figure: version 2 as it is initialised by the library."""
    return [v for v in variants(tables) if v[1:] == (2, 1.0)]


def of(tables: Tables, variant: Variant) -> Tables:
    """The rows of one variant."""
    network, version, scale = variant
    values = {"network": network, "version": version, "branch_scale": scale}
    return Tables(*(conv_resets.part(table, **values) for table in tables))


def name(variant: Variant) -> str:
    """A variant in words: "ResNet-18", "ResNet-18, version 1"."""
    network, version, scale = variant
    text = conv_runs.title(network)
    if version != 2:
        text += f", version {version}"
    if scale != 1:
        text += f", branches start at {scale:g}"
    return text


def summary(tables: Tables, *, paper: bool = False) -> pd.DataFrame:
    """What the claims speak of, a row a variant; means over seeds, damages in percentage points.

    `final` and `training` error; median damage at checkpoint 0 of the `critical` layers, of the
    `robust` blocks, and their `gap`; median damage of the robust blocks drawn anew, `ReRnd`, and
    its `difference` to that at checkpoint 0. With `paper`, a last row has the published figure's
    ResNet-50 on ImageNet.
    """
    rows = {}
    for variant in variants(tables):
        errors, _, _, curves = of(tables, variant)
        last = curves[curves.epoch == curves.epoch.max()]
        first = {"final": resetting.final_error(errors).mean(), "training": last.error.mean()}
        drawn = _at(errors, RERANDOMISED)
        rows[name(variant)] = first | _medians(resetting.at(errors, "0"), drawn)
    if paper:
        damages = (100 * (PAPER - PAPER_FINAL)).T
        medians = _medians(damages.loc[["0"]], damages.loc[["ReRnd"]].set_axis(["0"]))
        rows["ResNet-50 on ImageNet, the paper's"] = {"final": PAPER_FINAL} | medians
    return pd.DataFrame.from_dict(rows, orient="index")


def _medians(initial: pd.DataFrame, drawn: pd.DataFrame | None) -> dict[str, float]:
    """The means over seeds in `summary`; rows are seeds, columns layers."""
    found = conv_resets.medians(initial)
    if drawn is not None:
        robust = conv_resets.medians(drawn).robust
        found = found.assign(ReRnd=robust, difference=robust - found.robust)
    return found.mean().to_dict()


def _at(errors: pd.DataFrame, column: str) -> pd.DataFrame | None:
    return resetting.at(errors, column) if column in set(errors.column) else None


def blocks(tables: Tables, variant: Variant) -> pd.DataFrame:
    """The layers of a variant: damages with their intervals, distance moved, and branches.

    `damage`, `low`, `high`, `moved` at checkpoint 0 as of `conv_resets.by_layer`; `ReRnd`,
    `ReRnd low`, `ReRnd high`; ‖branch‖/‖skip‖ at `start` and `end` of training, mean over seeds.
    """
    rows = of(tables, variant)
    resets = resetting.Tables(rows.errors, rows.distances)
    found = conv_resets.by_layer(resets)
    if RERANDOMISED in set(rows.errors.column):
        drawn = conv_resets.by_layer(resets, RERANDOMISED)
        found = found.assign(
            **{"ReRnd": drawn.damage, "ReRnd low": drawn.low, "ReRnd high": drawn.high}
        )
    return found.join(_ratios(rows))


def _ratios(rows: Tables) -> pd.DataFrame:
    """‖branch‖/‖skip‖ by block, columns `start` and `end`: mean over seeds."""
    return rows.branches.pivot_table(index="layer", columns="when", values="ratio", sort=False)


def judge(tables: Tables, dataset: str) -> list[claims.Verdict]:
    """Verdicts on C8, C9, C20-resnet and C22, or for other data than CIFAR-10 on the first two.

    Each is judged on the network that speaks most against it; C22 on the one that was trained as
    version 1, too, if one was. `dataset` is that of the runs; what is not ImageNet judges nothing
    of ImageNet.
    """
    ids = ["C8", "C9", "C20-resnet"] if dataset == CIFAR else ["C8-imagenet", "C9-imagenet"]
    if dataset not in CHANCE:
        return [claims.not_run(id, f"It needs ImageNet; this is {dataset}.") for id in ids]
    found = {v: of(tables, v).errors for v in main_variants(tables)}
    final = {v: resetting.final_error(errors) for v, errors in found.items()}
    sample = f"{tables.errors.seed.nunique()} seeds of {', '.join(map(name, found))}"
    compared = [v for v in variants(tables) if v[1] == 1 and dataset == CIFAR]
    for variant, errors in final.items():
        if reason := unlearned(errors, CHANCE[dataset]):
            ids += ["C22"] if compared else []
            return [claims.not_run(id, f"{name(variant)}: {reason}") for id in ids]

    medians = {v: conv_resets.medians(resetting.at(e, "0")) for v, e in found.items()}
    gap = _over_networks({v: m.gap for v, m in medians.items()}).min(axis=1)
    robust = _over_networks({v: m.robust for v, m in medians.items()}).max(axis=1)
    measured = {"gap": seeds.interval(gap), "robust_median": seeds.interval(robust)}
    verdicts = [claims.check(ids[0], measured, sample=sample)]
    verdicts.append(_equivalence(ids[1], found, sample))
    if dataset == CIFAR:
        way = {v: m.critical / (100 * (CHANCE[dataset] - final[v])) for v, m in medians.items()}
        share = seeds.interval(_over_networks(way).min(axis=1))
        verdicts.append(claims.check("C20-resnet", share, sample=sample))
    verdicts += [_versions(tables, variant) for variant in compared]
    return verdicts


def _over_networks(by_variant: Mapping[Variant, pd.Series]) -> pd.DataFrame:
    """Rows seeds, a column a network."""
    return pd.DataFrame({name(variant): values for variant, values in by_variant.items()})


def _equivalence(id: str, found: Mapping[Variant, pd.DataFrame], sample: str) -> claims.Verdict:
    """C9: of each seed, the difference that is farthest from 0 over the networks."""
    differences = {}
    for variant, errors in found.items():
        drawn = _at(errors, RERANDOMISED)
        if drawn is None:
            return claims.not_run(id, "It needs rerandomise of 1 or more.")
        initial = conv_resets.medians(resetting.at(errors, "0"))
        differences[variant] = conv_resets.medians(drawn).robust - initial.robust
    table = _over_networks(differences)
    farthest = [row.loc[row.abs().idxmax()] for _, row in table.iterrows()]
    return claims.check(id, seeds.interval(farthest), sample=sample)


def _versions(tables: Tables, first: Variant) -> claims.Verdict:
    """C22: rank correlation over residual blocks of the damages in version 1 and in version 2."""
    network, _, scale = first
    both = [resetting.at(of(tables, (network, v, scale)).errors, "0") for v in (1, 2)]
    kept = [layer for layer in both[0] if ".resblk" in layer]
    rhos = [
        rank_correlation(both[0].loc[seed, kept], both[1].loc[seed, kept]) for seed in both[0].index
    ]
    if any(pd.isna(rhos)):
        return claims.not_run("C22", "In one of the versions all blocks are damaged alike.")
    sample = f"{len(rhos)} seeds of {conv_runs.title(network)} in either version"
    return claims.check("C22", seeds.interval(rhos), sample=sample)


def draw(tables: Tables, dataset: str) -> Figure:
    """Test error of every reset, a panel a network; below, two looks at what may mislead.

    On another data set than CIFAR-10 the paper's panel of ResNet-50 on ImageNet comes last.
    """
    shown = main_variants(tables)
    grids = {name(v): resetting.grid(of(tables, v).errors, "error") for v in shown}
    high = CHANCE[CIFAR]
    if dataset != CIFAR:
        grids["The paper's ResNet-50 on ImageNet, measured from its colours"] = PAPER
        high = 1.0
    one = len(shown) == 1
    heights = [conv_resets.height(grids), 2.5 if one else 4.5]
    fig = Figure(figsize=(style.PAGE, sum(heights)))
    above, below = fig.subfigures(2, 1, height_ratios=heights)
    conv_resets.draw_panels(above, grids, colours=ERROR, high=high, label="test error")
    if one:
        axes = below.subplots(1, 2).reshape(2, 1)
    else:
        axes = below.subplots(2, len(shown), sharey="row")
    for variant, (moved, added) in zip(shown, axes.T, strict=True):
        rows = blocks(tables, variant)
        robust = conv_resets.robust(list(rows.index))
        groups = {layer: ROBUST if layer in robust else CRITICAL for layer in rows.index}
        conv_resets.draw_moved(moved, rows, groups)
        moved.set_title(name(variant))
        _draw_ratios(added, {style.BLACK: rows})
    axes[0, 0].set_ylabel("damage (percentage points)")
    axes[1, 0].set_ylabel("‖branch‖ / ‖skip‖")
    axes[1, 0].set_ylim(bottom=0)
    handles = [*axes[0, 0].get_legend_handles_labels()[0], *_when()]
    below.legend(handles=handles, loc="outside lower center", ncols=4)
    return fig


def draw_checks(tables: Tables) -> Figure:
    """The network that was trained in three ways; and the training of all networks."""
    network = next(v for v in variants(tables) if v not in main_variants(tables))[0]
    ways = [v for v in variants(tables) if v[0] == network]
    colours = dict(zip(ways, (style.BLACK, style.BLUE, style.RED), strict=True))
    grids = {
        name(v): resetting.grid(of(tables, v).errors, "error")
        for v in ways
        if v not in main_variants(tables)
    }
    heights = [conv_resets.height(grids), 2.6]
    fig = Figure(figsize=(style.PAGE, sum(heights)))
    above, below = fig.subfigures(2, 1, height_ratios=heights)
    conv_resets.draw_panels(above, grids, colours=ERROR, high=CHANCE[CIFAR], label="test error")
    added, trained = below.subplots(1, 2)
    _draw_ratios(added, {colour: blocks(tables, v) for v, colour in colours.items()})
    added.set_ylabel("‖branch‖ / ‖skip‖")
    added.set_ylim(bottom=0)
    added.set_title("What a branch adds")
    others = [v for v in main_variants(tables) if v not in ways]
    more = [style.GREEN, style.PURPLE, style.ORANGE, style.SKY]
    colours |= dict(zip(others, more, strict=False))
    _draw_training(trained, tables, colours)
    lines = [Line2D([], [], color=colour, label=name(v)) for v, colour in colours.items()]
    below.legend(handles=[*lines, *_when()], loc="outside lower center", ncols=3)
    return fig


def _draw_ratios(ax: Axes, by_colour: Mapping[str, pd.DataFrame]) -> None:
    """‖branch‖/‖skip‖ of every block at the start (rings) and at the end (dots) of training."""
    for i, (colour, rows) in enumerate(by_colour.items()):
        ratios = rows.loc[rows.end.notna(), ["start", "end"]]
        x = np.arange(len(ratios)) + 0.16 * (i - (len(by_colour) - 1) / 2)
        ax.vlines(x, ratios.start, ratios.end, color=colour, linewidth=0.7, alpha=0.5)
        ax.plot(x, ratios.start, "o", color=colour, markerfacecolor="white")
        ax.plot(x, ratios.end, "o", color=colour)
    firsts = [i for i, layer in enumerate(ratios.index) if layer.endswith(".resblk1")]
    labels = [ratios.index[i].removeprefix("stage").replace("resblk", "") for i in firsts]
    ax.set_xticks(firsts, labels)
    ax.set_xlabel("residual block (stage.block)")


def _when() -> list[Line2D]:
    marks = {"color": style.BLACK, "linestyle": "", "marker": "o"}
    return [
        Line2D([], [], markerfacecolor="white", label="before training", **marks),
        Line2D([], [], label="after training", **marks),
    ]


def _draw_training(ax: Axes, tables: Tables, colours: Mapping[Variant, str]) -> None:
    """Training loss by epoch, a line a run."""
    for variant, colour in colours.items():
        for _, run in of(tables, variant).curves.groupby("seed"):
            ax.plot(run.epoch, run.loss, ".-", color=colour)
    ax.set(xlabel="epoch", ylabel="training loss")
    ax.set_ylim(bottom=0)
    ax.set_title("Training")
