"""Fig. 3 of `layers`: VGG-11, -13, -16 and -19 on CIFAR-10, each layer reset to each checkpoint.

The paper's values for VGG-11 were measured from the colours of a panel in an early version, whose
two inversions differ for some cells (error about 0.01 below 0.15, 0.05 above).
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from paperlib.experiments import conv_resets, conv_runs, resetting, seeds
from paperlib.experiments.learned import unlearned
from paperlib.report import claims, style
from paperlib.report.heatmap import ERROR
from paperlib.report.rules import Measured
from paperlib.robustness.evaluate import RERANDOMISED
from paperlib.training.runs import Spec

LOWER, MIDDLE, TOP, FC = "stages 1-3", "stage 4", "stage 5", "fc layers"
GROUPS = (LOWER, MIDDLE, TOP, FC)

_BASE = "0.116"
_PAPER = {
    "stage1.block1": ["0.87-0.90", "0.64-0.71", "0.48-0.52", "0.14"],
    "stage2.block1": ["0.90", "0.71-0.76", "0.63-0.71", "0.16"],
    "stage3.block1": ["0.90", "0.90", "0.87-0.89", "0.16"],
    "stage3.block2": ["0.87-0.90", "0.75-0.80", "0.64-0.71", "0.15"],
    "stage4.block1": ["0.90", "0.47-0.52", "0.40-0.43", "0.14"],
    "stage4.block2": ["0.90", "0.22", "0.24", "0.13"],
    "stage5.block1": ["0.90", "0.14", "0.13", _BASE],
    "stage5.block2": ["0.83-0.86", "0.14", "0.13", _BASE],
    "fc1": ["0.85-0.88", _BASE, _BASE, _BASE],
    "fc2": ["0.90", _BASE, _BASE, _BASE],
    "final_linear": ["0.71-0.78", _BASE, _BASE, _BASE],
}
PAPER = pd.DataFrame.from_dict(_PAPER, orient="index", columns=["ReRnd", "0", "1", "10"])


class Tables(NamedTuple):
    """What `measure` returns."""

    errors: pd.DataFrame
    """As of `conv_resets.measure`."""
    distances: pd.DataFrame
    """As of `conv_resets.measure`."""
    curves: pd.DataFrame
    """As of `conv_resets.curves`."""


def specs(
    networks: Sequence[str],
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
    """The runs that the figure needs, one a network and seed."""
    return conv_runs.specs(
        networks,
        seeds=seeds,
        base_width=base_width,
        lr=lr,
        epochs=epochs,
        train_images=train_images,
        warmup=warmup,
        augment=augment,
        precision=precision,
        device=device,
    )


def measure(trained: Sequence[Spec], test_images: int, rerandomise: int, device: str) -> Tables:
    """Every layer of every run reset, and how the runs were trained; see `conv_resets`."""
    tables = conv_resets.measure(
        trained, test_images=test_images, rerandomise=rerandomise, device=device
    )
    return Tables(*tables, conv_resets.curves(trained, device=device))


def group(layer: str) -> str:
    """Which of GROUPS a layer is in; the final layer is one of the fully connected ones."""
    stages = {"stage4": MIDDLE, "stage5": TOP}
    stage = layer.partition(".")[0]
    return stages.get(stage, LOWER if stage.startswith("stage") else FC)


def by_group(tables: Tables) -> pd.DataFrame:
    """Median damage over the layers of each group, in points, by network: mean over seeds.

    Rows are (network, group), columns those of the resets; a ReRnd is the mean of its draws.
    """
    found = {}
    for network in tables.errors.network.unique():
        errors = conv_resets.part(tables.errors, network=network)
        for column in errors.column.unique()[:-1]:
            damages = resetting.at(errors, column)
            for name in GROUPS:
                found[network, name, column] = _median(damages, name).mean()
    table = pd.Series(found).unstack().reindex(columns=tables.errors.column.unique()[:-1])
    networks = tables.errors.network.unique()
    order = pd.MultiIndex.from_product([networks, GROUPS], names=["network", "group"])
    return table.reindex(order)


def by_layer(tables: Tables, network: str) -> pd.DataFrame:
    """One network's layers: group, damage at checkpoint 0 and distance, see `conv_resets`."""
    found = conv_resets.by_layer(_of(tables, network))
    return found.assign(group=[group(layer) for layer in found.index])


def beside_paper(tables: Tables, network: str = "vgg11") -> pd.DataFrame:
    """Test errors of the resets of VGG-11 beside the paper's, measured from its colours.

    A row a layer, and `final`, the network itself; columns are the resets, the paper's marked *,
    and ours as far as they were measured.
    """
    errors = conv_resets.part(tables.errors, network=network)
    ours = resetting.grid(errors, "error").reindex(PAPER.index)
    rows = pd.DataFrame(index=[*PAPER.index, "final"])
    final = resetting.final_error(errors).mean() if len(errors) else float("nan")
    for column in PAPER.columns:
        if column in ours:
            rows[column] = [*ours[column], final]
        rows[f"{column}*"] = [*PAPER[column], _BASE]
    return rows


def judge(tables: Tables) -> list[claims.Verdict]:
    """Verdicts on C7 and C20-vgg, each on the network that speaks most against it."""
    networks = tables.errors.network.unique()
    sample = f"{tables.errors.seed.nunique()} seeds of {', '.join(map(conv_runs.title, networks))}"
    gaps, shares, drawn = {}, {}, {}
    for network in networks:
        errors = conv_resets.part(tables.errors, network=network)
        final = resetting.final_error(errors)
        if reason := unlearned(final, conv_resets.CHANCE):
            reason = f"{conv_runs.title(network)}: {reason}"
            return [claims.not_run("C7", reason), claims.not_run("C20-vgg", reason)]
        initial = resetting.at(errors, "0")
        gaps[network] = _median(initial, LOWER) - _median(initial, TOP, FC)
        shares[network] = _median(initial, LOWER) / (100 * (conv_resets.CHANCE - final))
        if RERANDOMISED in set(errors.column):
            drawn[network] = resetting.at(errors, RERANDOMISED).min(axis=1)
    verdicts = [claims.check("C20-vgg", _smallest(shares), sample=sample)]
    if not drawn:
        return [claims.not_run("C7", "It needs rerandomise of 1 or more."), *verdicts]
    measured = {"gap": _smallest(gaps), "rerandomised": _smallest(drawn)}
    return [claims.check("C7", measured, sample=sample), *verdicts]


def _median(damages: pd.DataFrame, *groups: str) -> pd.Series:
    """Median over the layers of some groups by seed (rows of `resetting.at`)."""
    return damages[[layer for layer in damages if group(layer) in groups]].median(axis=1)


def _smallest(by_network: dict[str, pd.Series]) -> Measured:
    """Each seed's smallest value over the networks, over seeds."""
    return seeds.interval(pd.DataFrame(by_network).min(axis=1))


def _of(tables: Tables, network: str) -> resetting.Tables:
    errors, distances = (conv_resets.part(t, network=network) for t in tables[:2])
    return resetting.Tables(errors, distances)


def draw(tables: Tables) -> Figure:
    """Test error of every reset, a panel a network; below, damage against distance moved."""
    networks = tables.errors.network.unique()
    grids = {
        conv_runs.title(n): resetting.grid(conv_resets.part(tables.errors, network=n), "error")
        for n in networks
    }
    heights = [conv_resets.height(grids), 2.3]
    fig = Figure(figsize=(style.PAGE, sum(heights)))
    above, below = fig.subfigures(2, 1, height_ratios=heights)
    conv_resets.draw_panels(
        above, grids, colours=ERROR, high=conv_resets.CHANCE, label="test error"
    )
    axes = below.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for ax, network in zip(axes, networks, strict=True):
        rows = by_layer(tables, network)
        conv_resets.draw_moved(ax, rows, dict(rows.group))
        ax.set_title(conv_runs.title(network))
    axes[0].set_ylabel("damage (percentage points)")
    handles, labels = axes[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=len(GROUPS))
    return fig
