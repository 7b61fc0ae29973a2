"""Fig. 11 of `layers`: FCN 5×256 on MNIST, groups of layers reset together (§4, App. B).

The three patterns are the paper's, their members our reading. The search for a robust group of each
size, which the paper only muses about, and the survey of other groups of that size are ours.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from paperlib import devices, networks
from paperlib.experiments import fcn_runs, resetting, seeds
from paperlib.experiments.learned import unlearned
from paperlib.networks.laws import check_int
from paperlib.progress import track
from paperlib.report import claims, style
from paperlib.report.heatmap import DISTANCE, ERROR, heatmap
from paperlib.report.rules import Measured
from paperlib.report.tables import interval as text
from paperlib.robustness import evaluate, joint
from paperlib.robustness.evaluate import FULL_MODEL
from paperlib.training import data, runs
from paperlib.training.runs import Spec

FIRST, THIRDS, OTHER = "all but first", "two in three", "every other"
PATTERNS = {FIRST: joint.all_but_first, THIRDS: joint.two_in_three, OTHER: joint.every_other}
SURVEYED = "any"
RELATIVE = "of all but first"  # a column, of fractions
CHANCE = 0.9

# Test error with one layer of FCN 5×256 at its initial values, and of the final network, measured
# from the colours of the figure in an early version of the paper, whose two inversions differ.
PAPER = {
    "layer1": "0.54-0.60",
    "layer2": "0.04-0.05",
    "layer3": "0.02",
    "layer4": "0.02",
    "layer5": "0.02",
    "layer6": "0.04-0.05",
    "final": "0.018",
}


class Tables(NamedTuple):
    """What `measure` returns; damage is in percentage points, at initial values but in `errors`."""

    errors: pd.DataFrame
    """As of `resetting.measure`; `layer` is a layer, a name of PATTERNS, or `fullmodel`."""
    groups: pd.DataFrame
    """A row each `seed` and group of the survey (`kind` is "any") and of PATTERNS (`kind` is its
    name): `size`, `group` ("layer2+layer4") and `damage` on every second test image."""
    greedy: pd.DataFrame
    """A row each `seed` and `size`: the layer `added`, the `group`, its damage `seen` on the images
    that chose it, and `damage` on the others, which are those of `groups`."""


def specs(
    hidden: int, width: int, lr: float, epochs: int, train_images: int, seeds: int
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
    )


def measure(
    trained: Sequence[Spec], test_images: int, rerandomise: int, most_groups: int, device: str
) -> Tables:
    """Layers and patterns reset to every checkpoint, and groups of every size to initialisation.

    Args:
        trained: one network trained from several seeds; missing ones are trained.
        test_images: the first ones.
        rerandomise: draws of the ReRnd column.
        most_groups: of each size in the survey; at random where there are more.
        device: where to train and evaluate.
    """
    if not trained:
        raise ValueError(resetting.NO_NETWORKS)
    check_int("most_groups", most_groups, 1)
    layers = list(networks.layers(trained[0].build()))
    groups = {layer: [layer] for layer in layers} | patterns(layers)
    errors = resetting.measure(
        trained, test_images=test_images, rerandomise=rerandomise, device=device, groups=groups
    ).errors
    surveyed = survey(layers, most_groups)
    found = [_search(spec, surveyed, test_images, device) for spec in track(trained, "searches")]
    both = zip(*found, strict=True)
    return Tables(errors, *(pd.concat(tables, ignore_index=True) for tables in both))


def patterns(layers: Sequence[str]) -> dict[str, list[str]]:
    """The members of each of PATTERNS in a network of these layers."""
    return {name: members(layers) for name, members in PATTERNS.items()}


def survey(layers: Sequence[str], most: int, seed: int = 0) -> list[tuple[str, ...]]:
    """All groups of each size, or `most` of them drawn at random where there are more."""
    rng = np.random.default_rng(seed)
    sizes = range(1, len(layers) + 1)
    return [group for size in sizes for group in joint.of_size(layers, size, most, rng)]


def _search(
    spec: Spec, surveyed: Sequence[tuple[str, ...]], test_images: int, device: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables `groups` and `greedy` of one run."""
    run = runs.get(spec, device=device)
    model = run.model().to(devices.resolve(device))
    last = run.epochs[-1]
    states = {epoch: run.state(epoch) for epoch in (0, last)}
    layers = networks.layers(model)
    test = data.load(spec.data, "test", limit=test_images)
    # Alternate images: the first half of MNIST's test images is twice as hard as the second.
    images, labels = data.as_input(test.images), test.labels
    chosen = joint.greedy(model, states, images[::2], labels[::2])
    final = evaluate.matrix(model, {last: states[last]}, images[::2], labels[::2], rerandomise=0)

    kinds = [(SURVEYED, members) for members in surveyed] + list(patterns(list(layers)).items())
    groups = pd.DataFrame(
        [(spec.seed, kind, len(members), "+".join(members)) for kind, members in kinds],
        columns=["seed", "kind", "size", "group"],
    )
    greedy = pd.DataFrame(
        {
            "seed": spec.seed,
            "size": chosen["size"],
            "added": chosen.added,
            "group": ["+".join(members) for members in chosen.group],
            "seen": 100 * (chosen.error - final.loc[FULL_MODEL, last]),
        }
    )
    members = {group: group.split("+") for group in [*groups.group, *greedy.group]}
    errors = evaluate.matrix(
        model,
        states,
        images[1::2],
        labels[1::2],
        layers=joint.union(layers, members),
        rerandomise=0,
    )
    damage = 100 * (errors[0] - errors.loc[FULL_MODEL, last])
    return (
        groups.assign(damage=groups.group.map(damage)),
        greedy.assign(damage=greedy.group.map(damage)),
    )


def ratios(tables: Tables) -> pd.DataFrame:
    """Each pattern at initial values, mean over seeds with its 95 % interval, in points.

    `largest single` and `sum of singles` are of the members' damages when each is reset alone;
    RELATIVE is the damage as a fraction of that of the first row, if that is positive for every
    seed.
    """
    initial = resetting.at(tables.errors, "0")
    positive = (initial[FIRST] > 0).all()
    rows = {}
    for name, members in patterns(_layers(tables)).items():
        rows[name] = {
            "layers": ", ".join(_number(layer) for layer in members),
            "damage": text(seeds.interval(initial[name])),
            "largest single": text(seeds.interval(initial[members].max(axis=1))),
            "sum of singles": text(seeds.interval(initial[members].sum(axis=1))),
            RELATIVE: text(_ratio(initial, name), 2) if positive else "",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def searched(tables: Tables) -> pd.DataFrame:
    """The greedy groups by size beside the survey: damage in points, mean over seeds, 95 %.

    `survey's best` and `survey's mean` are over the groups of that size, on the same images; the
    best was chosen by those images themselves. `seen` is on the images that the search used.
    """
    survey = tables.groups[tables.groups.kind == SURVEYED].groupby(["size", "seed"]).damage
    rows = {}
    for size, found in tables.greedy.groupby("size"):
        added = found.added.map(_number).value_counts()
        rows[size] = {
            "added": ", ".join(f"{layer} ({count}×)" for layer, count in added.items()),
            "seen": text(seeds.interval(found.seen)),
            "greedy": text(seeds.interval(found.damage)),
            "survey's best": text(seeds.interval(survey.min()[size])),
            "survey's mean": text(seeds.interval(survey.mean()[size])),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("size")


def beside_paper(tables: Tables) -> pd.DataFrame:
    """Test error with each layer alone at its initial values, ours (range over seeds) and PAPER."""
    ours = resetting.at(tables.errors, "0", "error")[_layers(tables)]
    ours = ours.assign(final=resetting.final_error(tables.errors))
    return pd.DataFrame(
        {"ours": ours.mean(), "smallest": ours.min(), "largest": ours.max(), "paper 5×256": PAPER}
    ).reindex(ours.columns)


def judge(tables: Tables) -> list[claims.Verdict]:
    """Verdicts on C10-fcn and C11-fcn."""
    initial = resetting.at(tables.errors, "0")
    number = f"{len(initial)} networks"
    if reason := unlearned(resetting.final_error(tables.errors), CHANCE):
        return [claims.not_run(id, reason) for id in ("C10-fcn", "C11-fcn")]
    members = patterns(_layers(tables))[FIRST]
    excess = initial[FIRST] - initial[members].max(axis=1)
    robust = claims.check("C10-fcn", seeds.interval(excess), sample=number)
    if (initial[FIRST] <= 0).any():
        reason = "All layers but the first together cost nothing: there is no ratio to judge."
        return [robust, claims.not_run("C11-fcn", reason)]
    thirds = f"Two in three layers, beside it: {_ratio(initial, THIRDS)}."
    ratio = _ratio(initial, OTHER)
    return [robust, claims.check("C11-fcn", ratio, sample=number, note=thirds)]


def _ratio(initial: pd.DataFrame, name: str) -> Measured:
    """Damage of a pattern over that of all layers but the first, over seeds."""
    return seeds.interval(initial[name] / initial[FIRST])


def _layers(tables: Tables) -> list[str]:
    """The layers' names, in order."""
    apart = {*PATTERNS, FULL_MODEL}
    return [layer for layer in tables.errors.layer.unique() if layer not in apart]


def _number(layer: str) -> str:
    return layer.removeprefix("layer")


def draw(tables: Tables) -> Figure:
    """Error by layer and checkpoint, alone and in each pattern; below, groups of every size."""
    fig = Figure(figsize=(style.PAGE, 7.8))
    above, below = fig.subfigures(2, 1, height_ratios=[3, 2])
    _draw_patterns(above, tables)
    sizes, members = below.subplots(1, 2, width_ratios=[6, 5])
    _draw_sizes(sizes, tables)
    _draw_members(members, tables)
    return fig


def _draw_patterns(fig: SubFigure, tables: Tables) -> None:
    """Test error by layer and checkpoint: each layer alone, then each pattern's members alike."""
    axes = fig.subplots(2, 2)
    grid = resetting.grid(tables.errors, "error")
    groups = {"alone": [], **patterns(_layers(tables))}
    titles = [
        "each layer alone",
        *(f"({a}) {b} together" for a, b in zip("abc", PATTERNS, strict=True)),
    ]
    for ax, (name, members), title in zip(axes.flat, groups.items(), titles, strict=True):
        rows = grid.loc[[*_layers(tables), FULL_MODEL]].copy()
        for layer in members:
            rows.loc[layer] = grid.loc[name]
        heatmap(ax, rows, colours=ERROR, high=CHANCE)
        ax.set_title(title)
        _bracket(ax, {layer: rows.index.get_loc(layer) for layer in members})
    for ax in axes[0]:
        ax.set_xlabel("")
    bar = fig.colorbar(
        axes[0, 0].collections[0], ax=axes, label="test error", aspect=45, fraction=0.04, pad=0.01
    )
    bar.outline.set_visible(False)


def _bracket(ax: Axes, places: Mapping[str, int]) -> None:
    """Mark the rows of a group, by name, with bold names and a bracket right of the heatmap."""
    rows = list(places.values())
    right = ax.get_xlim()[1]
    line = {"color": style.BLACK, "linewidth": 1, "clip_on": False}
    if rows:
        ax.plot([1.035 * right] * 2, [rows[0] + 0.5, rows[-1] + 0.5], **line)
    for row in rows:
        ax.plot([1.01 * right, 1.035 * right], [row + 0.5] * 2, **line)
    for label in ax.get_yticklabels():  # of many rows, not all have one
        if label.get_text() in places:
            label.set_fontweight("bold")


def _draw_sizes(ax: Axes, tables: Tables) -> None:
    """Damage at initial values against the size of the group, on every second test image."""
    first = _layers(tables)[0]
    survey = tables.groups[tables.groups.kind == SURVEYED]
    mean = survey.groupby(["size", "group"], as_index=False).damage.mean()
    has_first = mean.group.str.split("+").str[0] == first
    for rows, colour, label in (
        (mean[has_first], style.ORANGE, "any group with layer 1"),
        (mean[~has_first], style.GREY, "any group without layer 1"),
    ):
        ax.scatter(rows["size"], rows.damage, s=10, color=colour, alpha=0.7, lw=0, label=label)
    found = tables.greedy.groupby("size").damage.apply(seeds.interval)
    ends = [[getattr(m, end) for m in found] for end in ("value", "low", "high")]
    style.intervals(ax, found.index - 0.15, *ends, color=style.BLUE, label="greedy group")
    named = tables.groups[tables.groups.kind != SURVEYED].groupby(["size", "kind"]).damage.mean()
    for (size, kind), damage in named.items():
        ax.plot(size, damage, "o", markersize=6, color=style.BLACK, markerfacecolor="none")
        near = {"textcoords": "offset points", "va": "center", "fontsize": style.SMALL}
        ax.annotate(kind, (size, damage), (7, 0), **near)
    ax.set(xlabel="layers reset together", ylabel="damage (percentage points)")
    ax.set_xticks(found.index)
    ax.set_title("(d) groups of every size, to checkpoint 0")
    ax.legend(loc="upper left")


def _draw_members(ax: Axes, tables: Tables) -> None:
    """Share of seeds whose greedy group of a size has a layer."""
    members = tables.greedy.set_index("size").group.str.get_dummies("+")  # (seeds · sizes, layers)
    shares = members.groupby("size").mean().T.loc[_layers(tables)]
    heatmap(ax, shares, colours=DISTANCE, high=1, bar="share of seeds")
    ax.set(xlabel="layers reset together")
    ax.set_title("(e) layers in the greedy group")
