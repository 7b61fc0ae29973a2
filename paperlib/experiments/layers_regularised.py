"""Figs. 14-16 of `layers`: the patterns with weight decay and batch norm on and off (App. C).

What a reset does with the running statistics of batch norm is not in the paper; the comparison of
three ways is ours.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.experiments import conv_resets, conv_runs, layers_vgg, resetting, seeds
from paperlib.experiments.layers_resnet import CHANCE
from paperlib.experiments.learned import unlearned
from paperlib.report import claims, style
from paperlib.report.heatmap import ERROR
from paperlib.robustness.evaluate import BUFFERS, FULL_MODEL, RERANDOMISED
from paperlib.training.runs import Spec

BOTH = "wd+bn"
TITLES = {
    "plain": "neither",
    "wd": "weight decay",
    "bn": "batch norm",
    BOTH: "weight decay and batch norm",
}
DRAWS = 2
BUFFER_TITLES = {
    "reset": "reset with the layer",
    "keep": "kept from the final network",
    "recompute": "computed anew, everywhere",
}
# Colour and mark of each configuration, and of each column.
SERIES = {
    "plain": (style.BLACK, "o"),
    "wd": (style.BLUE, "s"),
    "bn": (style.ORANGE, "^"),
    BOTH: (style.RED, "D"),
}
COLUMNS = {RERANDOMISED: (style.GREY, "s"), "0": (style.BLUE, "o"), "1": (style.RED, "D")}


class Tables(NamedTuple):
    """What `measure` returns."""

    errors: pd.DataFrame
    """As of `conv_resets.measure`."""
    distances: pd.DataFrame
    """As of `conv_resets.measure`."""
    curves: pd.DataFrame
    """As of `conv_resets.curves`."""


def specs(
    network: str,
    configurations: Sequence[str],
    dataset: str,
    base_width: int,
    lr: float,
    epochs: int,
    train_images: int | None,
    seeds: int,
    warmup: int,
    augment: bool,
    precision: str,
    device: str,
) -> list[Spec]:
    """The runs that the figure needs, one a configuration and seed."""
    return conv_runs.specs(
        [network],
        configurations=configurations,
        dataset=dataset,
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
    """Every layer of one network reset in each configuration, and how the runs were trained.

    The running statistics of a reset layer are reset with it. Missing runs are trained.
    """
    tables = conv_resets.measure(
        trained, test_images=test_images, rerandomise=rerandomise, device=device
    )
    return Tables(*tables, conv_resets.curves(trained, device=device))


def statistics(
    trained: Sequence[Spec], tables: Tables, test_images: int, rerandomise: int, device: str
) -> pd.DataFrame:
    """The network with both, reset in each of three ways to treat the running statistics.

    `trained` are those of `measure`, from which the first way comes. The others have DRAWS draws
    at most, and checkpoints 0 and 1, as every reset needs statistics of its own. Rows are those of
    `resetting.Tables.errors` behind a column `buffers`, a key of BUFFER_TITLES. Empty if no run
    has both.
    """
    both = [spec for spec in trained if conv_resets.setting(spec)[1] == BOTH]
    if not both:
        return tables.errors.iloc[:0].assign(buffers="")
    found = [conv_resets.part(tables.errors, configuration=BOTH).assign(buffers=BUFFERS[0])]
    for buffers in BUFFERS[1:]:
        again = conv_resets.measure(
            both,
            test_images=test_images,
            rerandomise=min(rerandomise, DRAWS),
            device=device,
            checkpoints=(0, 1),
            buffers=buffers,
        )
        found.append(again.errors.assign(buffers=buffers))
    table = pd.concat(found, ignore_index=True).drop(columns=conv_resets.SETTING)
    return table[["buffers", *table.columns.drop("buffers")]]


def configurations(tables: Tables) -> list[str]:
    """The configurations that were measured, in order."""
    return list(tables.errors.configuration.unique())


def split(damages: pd.DataFrame) -> pd.DataFrame:
    """Median damage of `critical` and `robust` layers by seed, and their `gap`, in points.

    In a ResNet these are the groups of §3.2, see `conv_resets.medians`; in a VGG stages 1-3, and
    stage 5 with the fully connected layers. `damages` has rows seeds and columns layers.
    """
    if conv_resets.robust(list(damages)):
        return conv_resets.medians(damages)
    groups = {name: layers_vgg.group(name) for name in damages}
    lower = [name for name, group in groups.items() if group == layers_vgg.LOWER]
    top = [name for name, group in groups.items() if group in (layers_vgg.TOP, layers_vgg.FC)]
    found = pd.DataFrame(
        {"critical": damages[lower].median(axis=1), "robust": damages[top].median(axis=1)}
    )
    return found.assign(gap=found.critical - found.robust)


def reversal(errors: pd.DataFrame) -> pd.DataFrame:
    """Resets to checkpoint 1 against those to 0, by seed; `errors` are of one configuration.

    `difference` is the median damage over layers at 1 minus that at 0, in points, `pairs` the
    median over layers of their own differences, and `worse` the number of layers that lose more
    at 1.
    """
    early, initial = resetting.at(errors, "1"), resetting.at(errors, "0")
    return pd.DataFrame(
        {
            "difference": early.median(axis=1) - initial.median(axis=1),
            "pairs": (early - initial).median(axis=1),
            "worse": (early > initial).sum(axis=1),
        }
    )


def summary(tables: Tables) -> pd.DataFrame:
    """A row a configuration: errors in per cent, damages in points, mean over seeds.

    From two seeds on, with 95 % intervals over seeds. `critical` and `robust` are medians over
    the layers of the two groups, at checkpoint 0; `1 - 0` compares checkpoints, see `reversal`.
    """
    rows = {}
    for name in configurations(tables):
        errors = conv_resets.part(tables.errors, configuration=name)
        curves = conv_resets.part(tables.curves, configuration=name)
        last = curves[curves.epoch == curves.epoch.max()]
        initial = resetting.at(errors, "0")
        groups = split(initial)
        rows[name] = {
            "test error": _text(100 * resetting.final_error(errors)),
            "training error": _text(100 * last.error),
            "critical": _text(groups.critical),
            "robust": _text(groups.robust),
            "gap": _text(groups.gap),
        }
        if RERANDOMISED in set(errors.column):
            drawn = split(resetting.at(errors, RERANDOMISED))
            rows[name]["robust, ReRnd"] = _text(drawn.robust)
        if "1" in set(errors.column):
            turned = reversal(errors)
            rows[name]["1 − 0"] = _text(turned.difference)
            rows[name]["worse at 1"] = f"{turned.worse.mean():.3g} of {initial.shape[1]}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("configuration")


def by_layer(tables: Tables, column: str = "0") -> pd.DataFrame:
    """Damage of every layer (rows) in every configuration, in points, with its 95 % interval.

    The interval is over seeds; of one seed it is over images, or for ReRnd over draws, which says
    nothing of another seed.
    """
    found = {}
    for name in configurations(tables):
        rows = conv_resets.damages(conv_resets.part(tables.errors, configuration=name), column)
        found[name] = [f"{r.damage:.1f} [{r.low:.1f}, {r.high:.1f}]" for r in rows.itertuples()]
    return pd.DataFrame(found, index=rows.index)


def by_buffers(found: pd.DataFrame) -> pd.DataFrame:
    """The ways to treat running statistics: errors in per cent, median damages in points.

    `found` is of `statistics`. A row a way: the final network's test error, and over all layers
    the median damage of each reset; `worse at 1` counts as in `reversal`.
    """
    rows = {}
    for name, errors in found.groupby("buffers", sort=False):
        columns = errors.column.unique()[:-1]
        rows[name] = {"test error": _text(100 * resetting.final_error(errors))}
        rows[name] |= {c: _text(resetting.at(errors, c).median(axis=1)) for c in columns}
        if "1" in columns:
            layers = errors.layer.nunique() - 1  # `fullmodel` is none
            rows[name]["worse at 1"] = f"{reversal(errors).worse.mean():.3g} of {layers}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("statistics")


def judge(tables: Tables, dataset: str) -> list[claims.Verdict]:
    """Verdicts on C15 and C16, or on the parts of them for VGG-16 and for ImageNet.

    On a data set that stands in for ImageNet they are `not run`.
    """
    if not conv_resets.robust(_layers(tables)):
        ids = ["C15-vgg"]
    elif dataset == "cifar10":
        ids = ["C15", "C16"]
    else:
        ids = ["C15-imagenet", "C16-imagenet"]
    if dataset not in CHANCE:
        return [claims.not_run(id, f"It needs ImageNet; this is {dataset}.") for id in ids]
    for name in configurations(tables):
        errors = conv_resets.part(tables.errors, configuration=name)
        if reason := unlearned(resetting.final_error(errors), CHANCE[dataset]):
            return [claims.not_run(id, f"{TITLES[name]}: {reason}") for id in ids]
    judges = (_survives, _reversed)
    return [judge_one(tables, id) for judge_one, id in zip(judges, ids, strict=False)]


def _survives(tables: Tables, id: str) -> claims.Verdict:
    if set(configurations(tables)) != set(conv_runs.CONFIGURATIONS):
        return claims.not_run(id, "It needs all four configurations.")
    groups = {
        c: split(resetting.at(conv_resets.part(tables.errors, configuration=c), "0"))
        for c in configurations(tables)
    }
    gap = pd.DataFrame({c: found.gap for c, found in groups.items()}).min(axis=1)
    robust = pd.DataFrame({c: found.robust for c, found in groups.items()}).max(axis=1)
    measured = {"gap": seeds.interval(gap), "robust_median": seeds.interval(robust)}
    asked = {row["name"]: measured[row["name"]] for row in claims.claim(id).criteria}
    return claims.check(id, asked, sample=_sample(tables))


def _reversed(tables: Tables, id: str) -> claims.Verdict:
    errors = conv_resets.part(tables.errors, configuration=BOTH)
    if "1" not in set(errors.column):
        return claims.not_run(id, "It needs a network with both, and checkpoint 1.")
    turned = reversal(errors)
    note = f"{turned.worse.mean():.3g} of {len(_layers(tables))} layers lose more at checkpoint 1."
    return claims.check(id, seeds.interval(turned.difference), sample=_sample(tables), note=note)


def _sample(tables: Tables) -> str:
    return f"{tables.errors.seed.nunique()} seeds in each configuration"


def _layers(tables: Tables) -> list[str]:
    return [name for name in tables.errors.layer.unique() if name != FULL_MODEL]


def _text(by_seed: pd.Series) -> str:
    m = seeds.interval(by_seed)
    if len(by_seed) == 1:
        return f"{m.value:.1f}"
    return f"{m.value:.1f} [{m.low:.1f}, {m.high:.1f}]"


def draw(tables: Tables, dataset: str) -> Figure:
    """Test error of every reset, a panel a configuration; below, damage at checkpoint 0."""
    errors = {c: conv_resets.part(tables.errors, configuration=c) for c in configurations(tables)}
    grids = {
        f"({letter}) {TITLES[name]}": resetting.grid(rows, "error")
        for letter, (name, rows) in zip("abcd", errors.items(), strict=False)
    }
    heights = [conv_resets.height(grids), 2.1]
    fig = Figure(figsize=(style.PAGE, sum(heights)))
    above, below = fig.subfigures(2, 1, height_ratios=heights)
    conv_resets.draw_panels(
        above, grids, colours=ERROR, high=CHANCE.get(dataset, 0.9), label="test error"
    )
    ax = below.subplots()
    for i, (name, rows) in enumerate(errors.items()):
        shift = 0.17 * (i - (len(errors) - 1) / 2)
        _draw_dots(ax, conv_resets.damages(rows, "0"), shift, SERIES[name], TITLES[name])
    ax.set_xlabel("layer (stage.block)")
    ax.set_title(f"({'abcde'[len(grids)]}) checkpoint 0")
    ax.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(errors), columnspacing=1.2)
    return fig


def draw_statistics(found: pd.DataFrame) -> Figure:
    """Damage of every layer at ReRnd, 0 and 1, a panel a way to treat the running statistics.

    Intervals of DRAWS draws are long, and may run out of the panel.
    """
    ways = list(found.buffers.unique())
    fig = Figure(figsize=(style.PAGE, 1.6 * len(ways) + 0.3))
    axes = fig.subplots(len(ways), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for letter, ax, way in zip("abc", axes, ways, strict=False):
        errors = found[found.buffers == way]
        for i, (column, marks) in enumerate(COLUMNS.items()):
            if column in set(errors.column):
                label = column if column == RERANDOMISED else f"checkpoint {column}"
                _draw_dots(ax, conv_resets.damages(errors, column), 0.22 * (i - 1), marks, label)
        ax.set_title(f"({letter}) {BUFFER_TITLES[way]}")
    axes[0].set_ylim(-10, 100 * conv_resets.CHANCE)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(COLUMNS))
    axes[-1].set_xlabel("layer (stage.block)")
    return fig


def _draw_dots(
    ax: Axes, rows: pd.DataFrame, shift: float, marks: tuple[str, str], label: str
) -> None:
    """Damage by layer with its intervals, moved sideways by `shift` of a layer's place."""
    x = [i + 0.5 + shift for i in range(len(rows))]
    ends = rows[["damage", "low", "high"]].T.to_numpy()
    style.intervals(ax, x, *ends, color=marks[0], fmt=marks[1], label=label)
    conv_resets.label_layers(ax, rows.index)
    ax.set_ylabel("damage (points)")
