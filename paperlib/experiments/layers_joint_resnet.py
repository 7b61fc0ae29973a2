"""Figs. 6, 12 and 13 of `layers`: residual blocks reset together (§4, App. B).

The groups are the paper's, their members our reading. Random groups as large as the group of every
other block, as a baseline for it, are ours.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.markers import TICKDOWN
from matplotlib.transforms import ScaledTranslation

from paperlib.choices import check_choice
from paperlib.experiments import conv_resets, conv_runs, resetting, seeds
from paperlib.experiments.conv_resets import CHANCE
from paperlib.experiments.learned import unlearned
from paperlib.networks import resnet
from paperlib.report import claims, style
from paperlib.report.heatmap import ERROR
from paperlib.report.rules import Measured
from paperlib.robustness import joint
from paperlib.robustness.evaluate import FULL_MODEL, RERANDOMISED
from paperlib.training.runs import Spec

LATER, ALL = "all but first blocks", "all blocks"  # readings A and B of the paper's first group
OTHER, OUTER = "every other block", "stages 1 and 4"
GROUPS = {
    LATER: joint.later_blocks,
    ALL: joint.residual_blocks,
    OTHER: joint.alternate_blocks,
    OUTER: joint.outer_blocks,
}
SHALLOW = "resnet18"  # rather robust as a whole, says the paper, unlike the deeper ones (App. B)
WITH_FIRST, WITHOUT_FIRST = "with first blocks", "without first blocks"
SAME_GROUP = (
    "The stages have two blocks each, so that every other block is all but the first blocks: a "
    "deeper network is needed, such as resnet50."
)


class Tables(NamedTuple):
    """What `measure` returns; damage is in percentage points."""

    errors: pd.DataFrame
    """As of `conv_resets.measure`; `layer` is a layer, a name of GROUPS, or `fullmodel`."""
    distances: pd.DataFrame
    """As of `conv_resets.measure`, of single layers."""
    baseline: pd.DataFrame
    """A row each `network`, `seed` and random `group` ("stage1.resblk2+stage3.resblk1"), which is
    reset to its initial values: `kind` (WITH_FIRST or WITHOUT_FIRST), `size`, `damage` and the ends
    `low` and `high` of its 95 % interval over images."""


class Group(NamedTuple):
    """A group of GROUPS in one network; `label` also has the names of those with equal members."""

    label: str
    name: str
    members: tuple[str, ...]


def specs(
    networks: Sequence[str],
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
    """The runs that a figure needs: each ResNet on CIFAR-10, from each seed."""
    for network in networks:
        check_choice("ResNet", network, resnet.RESNETS)
    return conv_runs.specs(
        networks,
        base_width=base_width,
        lr=lr,
        epochs=epochs,
        train_images=train_images,
        seeds=seeds,
        warmup=warmup,
        augment=augment,
        precision=precision,
        device=device,
    )


def measure(
    specs: Sequence[Spec], test_images: int, rerandomise: int, random_groups: int, device: str
) -> Tables:
    """Every layer and every group of GROUPS reset to every checkpoint, random groups to the first.

    Args:
        specs: runs of ResNets; missing ones are trained.
        test_images: the first ones.
        rerandomise: draws of the ReRnd column.
        random_groups: from each of two pools, see `random`; 0 leaves them out.
        device: where to train and evaluate.
    """
    common = {"test_images": test_images, "device": device}
    alone = conv_resets.measure(specs, rerandomise=rerandomise, **common)
    together = conv_resets.measure(specs, rerandomise=rerandomise, groups=groups, **common).errors
    together = together[together.layer != FULL_MODEL]
    errors = pd.concat([alone.errors, together], ignore_index=True)
    if not random_groups:
        return Tables(errors, alone.distances, _baseline(together[:0]))
    drawn = conv_resets.measure(
        specs,
        rerandomise=0,
        groups=lambda layers: {"+".join(group): group for group in random(layers, random_groups)},
        checkpoints=[0],
        **common,
    ).errors
    drawn = drawn[(drawn.layer != FULL_MODEL) & (drawn.column == "0")]
    return Tables(errors, alone.distances, _baseline(drawn))


def groups(layers: Sequence[str]) -> dict[str, list[str]]:
    """The members of each of GROUPS in a network of these layers."""
    return {name: members(layers) for name, members in GROUPS.items()}


def distinct(layers: Sequence[str], names: Sequence[str]) -> list[Group]:
    """The groups of these names, those of the same members as one."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        labels.setdefault(tuple(GROUPS[name](layers)), []).append(name)
    return [Group(" = ".join(found), found[0], group) for group, found in labels.items()]


def random(layers: Sequence[str], most: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Random groups as large as that of every other block, none of them a group of GROUPS.

    Up to `most` of all residual blocks but the first of each stage, and up to `most` of all.
    """
    rng = np.random.default_rng(seed)
    size = len(joint.alternate_blocks(layers))
    pools = (joint.later_blocks(layers), joint.residual_blocks(layers))
    drawn = [group for pool in pools for group in joint.of_size(pool, size, most, rng)]
    named = {tuple(members) for members in groups(layers).values()}
    return [group for group in dict.fromkeys(drawn) if group not in named]


def _baseline(errors: pd.DataFrame) -> pd.DataFrame:
    members = errors.layer.str.split("+")
    later = [len(joint.later_blocks(group)) == len(group) for group in members]
    return pd.DataFrame(
        {
            "network": errors.network,
            "seed": errors.seed,
            "group": errors.layer,
            "kind": np.where(later, WITHOUT_FIRST, WITH_FIRST),
            "size": members.str.len(),
            **{name: errors[name] for name in ("damage", "low", "high")},
        }
    ).reset_index(drop=True)


def costs(tables: Tables, names: Sequence[str] = tuple(GROUPS)) -> pd.DataFrame:
    """Each network's groups: damage in points by `checkpoint 0` and `ReRnd`, beside single resets.

    Brackets hold 95 % intervals: over seeds, or of one seed over test images (ReRnd: over draws).
    `largest single` and `sum of singles` are the members' at checkpoint 0, mean over seeds, and so
    is `ratio` to the damage of all but the first blocks, if that is positive for every seed.
    """
    rows = []
    for network in _networks(tables):
        initial, layers = _initial(tables, network), _layers(tables, network)
        number = len(joint.residual_blocks(layers))
        for group in distinct(layers, names):
            singles = initial[list(group.members)]
            ratio = initial[group.name] / initial[LATER]
            rows.append(
                {
                    "network": network,
                    "group": group.label,
                    "blocks": f"{len(group.members)} of {number}",
                    "checkpoint 0": _text(spread(tables, network, group.name, "0")),
                    "ReRnd": _text(spread(tables, network, group.name, RERANDOMISED)),
                    "largest single": f"{singles.max(axis=1).mean():.1f}",
                    "sum of singles": f"{singles.sum(axis=1).mean():.1f}",
                    "ratio": f"{ratio.mean():.2f}" if (initial[LATER] > 0).all() else "",
                }
            )
    return pd.DataFrame(rows).set_index(["network", "group"])


def blocks(tables: Tables) -> pd.DataFrame:
    """All but the first blocks, each reset alone: damage in points and how far it has moved.

    Means over seeds; `moved` is the distance from initialisation over the norm there.
    """
    rows = []
    for network in _networks(tables):
        errors = conv_resets.part(tables.errors, network=network)
        distances = conv_resets.part(tables.distances, network=network)
        damage = resetting.grid(errors, "damage")
        moved = resetting.grid(distances, "relative").iloc[:, -1]
        for block in joint.later_blocks(_layers(tables, network)):
            found = damage.loc[block].reindex(["0", RERANDOMISED])
            rows.append((network, block, *found, moved[block]))
    columns = ["network", "block", "checkpoint 0", RERANDOMISED, "moved"]
    return pd.DataFrame(rows, columns=columns).set_index(["network", "block"])


def compared(tables: Tables) -> pd.DataFrame:
    """Every other block beside random groups of its size, by network: damage at checkpoint 0.

    Of the random groups, mean over seeds, the number, mean, smallest and largest. A kind of which
    there are none has no row.
    """
    rows = []
    for network in _networks(tables):
        own = _initial(tables, network)[OTHER].mean()
        drawn = conv_resets.part(tables.baseline, network=network)
        for kind in (WITHOUT_FIRST, WITH_FIRST):
            found = drawn[drawn.kind == kind].groupby("group").damage.mean()
            if len(found):
                rows.append(
                    (network, kind, own, len(found), found.mean(), found.min(), found.max())
                )
    columns = ["network", "random groups", OTHER, "number", "mean", "smallest", "largest"]
    return pd.DataFrame(rows, columns=columns).set_index(["network", "random groups"])


def spread(tables: Tables, network: str, layer: str, column: str) -> Measured | None:
    """Damage of a layer or group: mean over seeds with its interval, of one seed over images.

    For ReRnd of one seed the interval is over draws. None where nothing was measured.
    """
    errors = conv_resets.part(tables.errors, network=network, layer=layer, column=column)
    if errors.empty:
        return None
    if len(errors) > 1:
        return seeds.interval(errors.damage)
    row = errors.iloc[0]
    low, high = (row.damage if np.isnan(end) else end for end in (row.low, row.high))
    # The interval over images is centred a little nearer to zero.
    return Measured(row.damage, min(row.damage, low), max(row.damage, high))


def judge_groupings(tables: Tables) -> list[claims.Verdict]:
    """Verdict on C11-resnet (Fig. 6), by the network that does worst."""
    networks = _comparable(tables, _networks(tables))
    if not networks:
        return [claims.not_run("C11-resnet", SAME_GROUP)]
    if reason := _unlearned(tables, networks):
        return [claims.not_run("C11-resnet", reason)]
    ratios = []
    for network in networks:
        initial = _initial(tables, network)
        if (initial[LATER] <= 0).any():
            reason = f"All but the first blocks of {network} together cost nothing."
            return [claims.not_run("C11-resnet", reason)]
        ratios.append(initial[OTHER] / initial[LATER])
    worst = pd.concat(ratios, axis=1).max(axis=1)
    sample = _sample(tables, networks)
    return [claims.check("C11-resnet", seeds.interval(worst), sample=sample)]


def judge_depths(tables: Tables) -> list[claims.Verdict]:
    """Verdict on C10-resnet (Fig. 12), by the deeper network that does worst."""
    deeper = _deeper(tables)
    if not deeper:
        return [claims.not_run("C10-resnet", f"It needs a network deeper than {SHALLOW}.")]
    if reason := _unlearned(tables, deeper):
        return [claims.not_run("C10-resnet", reason)]
    smallest = {}
    for name, group in (("excess_a", LATER), ("excess_b", ALL)):
        excess = []
        for network in deeper:
            initial = _initial(tables, network)
            members = GROUPS[group](_layers(tables, network))
            excess.append(initial[group] - initial[members].max(axis=1))
        smallest[name] = seeds.interval(pd.concat(excess, axis=1).min(axis=1))
    return [claims.check("C10-resnet", smallest, sample=_sample(tables, deeper))]


def judge_alternatives(tables: Tables) -> list[claims.Verdict]:
    """Verdict on C24 (Fig. 13), by the deeper network that does worst."""
    deeper = _deeper(tables)
    if not deeper or SHALLOW not in _networks(tables):
        reason = f"It needs {SHALLOW} and a deeper network."
        return [claims.not_run("C24", reason)]
    deeper = _comparable(tables, deeper)
    if not deeper:
        return [claims.not_run("C24", SAME_GROUP)]
    if reason := _unlearned(tables, [SHALLOW, *deeper]):
        return [claims.not_run("C24", reason)]
    shallow = _initial(tables, SHALLOW)
    rows = []
    for network in deeper:
        initial = _initial(tables, network)
        rows.append(
            pd.DataFrame(
                {
                    "depth": initial[LATER] - shallow[LATER],
                    "two_stages": initial[LATER] - initial[OUTER],
                    "every_other": initial[OUTER] - initial[OTHER],
                }
            )
        )
    worst = pd.concat(rows).groupby(level=0).min()
    found = {name: seeds.interval(values) for name, values in worst.items()}
    note = "All stages is read as all but the first blocks."
    sample = _sample(tables, [SHALLOW, *deeper])
    return [claims.check("C24", found, sample=sample, note=note)]


def _networks(tables: Tables) -> list[str]:
    return list(tables.errors.network.unique())


def _deeper(tables: Tables) -> list[str]:
    return [network for network in _networks(tables) if network != SHALLOW]


def _layers(tables: Tables, network: str) -> list[str]:
    """The layers' names, in order."""
    found = conv_resets.part(tables.distances, network=network).layer.unique()
    return [layer for layer in found if layer != FULL_MODEL]


def _initial(tables: Tables, network: str) -> pd.DataFrame:
    """Damage at initial values: rows seeds, columns layers and groups."""
    return resetting.at(conv_resets.part(tables.errors, network=network), "0")


def _comparable(tables: Tables, networks: Sequence[str]) -> list[str]:
    """Those in which every other block is not the same as all but the first blocks."""
    return [n for n in networks if len(distinct(_layers(tables, n), (LATER, OTHER))) == 2]


def _unlearned(tables: Tables, networks: Sequence[str]) -> str | None:
    """Why these networks cannot be judged, if one has hardly learned; None where they can."""
    for network in networks:
        final = resetting.final_error(conv_resets.part(tables.errors, network=network))
        if reason := unlearned(final, CHANCE):
            return f"{network}: {reason}"
    return None


def _sample(tables: Tables, networks: Sequence[str]) -> str:
    return f"{tables.errors.seed.nunique()} seeds of {', '.join(networks)}"


def _text(m: Measured | None) -> str:
    return "" if m is None else f"{m.value:.1f} [{m.low:.1f}, {m.high:.1f}]"


def draw_groupings(tables: Tables) -> Figure:
    """Fig. 6: each layer alone, and two groups; below, damage against the size of the group."""
    networks = _networks(tables)
    fig, below = _draw_above(tables, networks, (LATER, OTHER), alone=True)
    axes = below.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for ax, network in zip(axes, networks, strict=True):
        _draw_sizes(ax, tables, network)
    axes[0].set_ylabel("damage (percentage points)")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), title="single blocks, random groups")
    return fig


def draw_depths(tables: Tables) -> Figure:
    """Fig. 12: both readings of the group in networks of several depths; below, their damage."""
    fig, below = _draw_above(tables, _networks(tables), (LATER, ALL))
    _draw_networks(below.subplots(), tables)
    return fig


def draw_alternatives(tables: Tables) -> Figure:
    """Fig. 13: three groups of the deeper networks; below, their damage in every network."""
    names = (LATER, OUTER, OTHER)
    fig, below = _draw_above(tables, _deeper(tables) or _networks(tables), names)
    _draw_groups(below.subplots(), tables, names)
    return fig


def _draw_above(
    tables: Tables, networks: Sequence[str], names: Sequence[str], *, alone: bool = False
) -> tuple[Figure, SubFigure]:
    """Test error by checkpoint and layer, a panel a group, whose members share their value.

    Returns the figure and what is left of it below the heatmaps.
    """
    grids, brackets = {}, []
    for network in networks:
        layers = _layers(tables, network)
        grid = resetting.grid(conv_resets.part(tables.errors, network=network), "error")
        singles = grid.loc[[*layers, FULL_MODEL]]
        if alone:
            grids[f"{network}: each layer alone"] = singles
            brackets.append([])
        for group in distinct(layers, names):
            rows = singles.copy()
            rows.loc[list(group.members)] = grid.loc[group.name].to_numpy()
            grids[f"{network}: {group.label} together"] = rows
            brackets.append([layers.index(member) for member in group.members])
    heights = [conv_resets.height(grids) + 0.1 * len(grids), 2.6]
    fig = Figure(figsize=(style.PAGE, sum(heights)))
    above, below = fig.subfigures(2, 1, height_ratios=heights)
    conv_resets.draw_panels(above, grids, colours=ERROR, high=CHANCE, label="test error")
    for ax, title, columns in zip(above.axes, grids, brackets, strict=False):  # last, a colour bar
        ax.set_title(title, pad=10 if columns else None)
        _bracket(ax, columns)
    return fig, below


def _bracket(ax: Axes, columns: Sequence[int]) -> None:
    """Mark the columns of a group by a bracket above the heatmap."""
    if not columns:
        return
    x = [column + 0.5 for column in columns]
    raised = ax.get_xaxis_transform() + ScaledTranslation(0, 5 / 72, ax.figure.dpi_scale_trans)
    line = {"color": style.BLACK, "linewidth": 1, "clip_on": False, "transform": raised}
    ax.plot([x[0], x[-1]], [1, 1], **line)
    ax.plot(x, [1] * len(x), marker=TICKDOWN, markersize=4, linestyle="", **line)


def _draw_sizes(ax: Axes, tables: Tables, network: str) -> None:
    """Damage at initial values against the number of blocks reset together."""
    layers, initial = _layers(tables, network), _initial(tables, network).mean()
    first = [b for b in joint.residual_blocks(layers) if b not in joint.later_blocks(layers)]
    singles = {WITH_FIRST: initial[first], WITHOUT_FIRST: initial[joint.later_blocks(layers)]}
    drawn = conv_resets.part(tables.baseline, network=network)
    mean = drawn.groupby(["kind", "size", "group"], as_index=False).damage.mean()
    for kind, colour in ((WITH_FIRST, style.ORANGE), (WITHOUT_FIRST, style.SKY)):
        found = mean[mean.kind == kind]
        x = [1] * len(singles[kind]) + [*found["size"]]
        y = [*singles[kind], *found.damage]
        x = np.array(x) - 0.15
        ax.scatter(x, y, s=12, color=colour, alpha=0.8, lw=0, label=kind)
    for group in distinct(layers, tuple(GROUPS)):
        m, x = spread(tables, network, group.name, "0"), len(group.members)
        style.intervals(ax, [x], [m.value], [m.low], [m.high], color=style.BLACK)
        near = {"textcoords": "offset points", "va": "center", "fontsize": style.SMALL}
        ax.annotate(group.label, (x, m.value), (6, 0), **near)
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    # Room for the name of the largest group.
    number = len(joint.residual_blocks(layers))
    ax.set_xlim(0.5, 1.2 * number)
    ax.set_xticks(range(1, number + 1))
    ax.set(xlabel="blocks reset together to their initial values", title=network)


def _draw_networks(ax: Axes, tables: Tables) -> None:
    """Damage of both groups by network, beside the worst of the members of the first alone."""
    networks = _networks(tables)
    series = [
        ("largest single, all but first blocks", None, "0", style.GREY, "D"),
        (f"A: {LATER}", LATER, "0", style.BLUE, "o"),
        (f"A, to fresh values ({RERANDOMISED})", LATER, RERANDOMISED, style.SKY, "s"),
        (f"B: {ALL}", ALL, "0", style.RED, "o"),
    ]
    for i, (label, name, column, colour, marker) in enumerate(series):
        found = [
            spread(tables, network, name or _worst(tables, network), column) for network in networks
        ]
        placed = [(x, m) for x, m in enumerate(found) if m is not None]
        ends = [[getattr(m, end) for _, m in placed] for end in ("value", "low", "high")]
        x = [x + 0.1 * (i - 1.5) for x, _ in placed]
        if placed:
            style.intervals(ax, x, *ends, color=colour, fmt=marker, label=label)
    _label_categories(ax, networks)
    ax.set_title("reset together, by network")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _worst(tables: Tables, network: str) -> str:
    """The member of the group LATER that costs most alone."""
    members = joint.later_blocks(_layers(tables, network))
    return str(_initial(tables, network)[members].mean().idxmax())


def _draw_groups(ax: Axes, tables: Tables, names: Sequence[str]) -> None:
    """Damage at initial values by group, a colour a network."""
    networks = _networks(tables)
    for i, (network, colour) in enumerate(zip(networks, style.family(len(networks)), strict=True)):
        found = [spread(tables, network, name, "0") for name in names]
        ends = [[getattr(m, end) for m in found] for end in ("value", "low", "high")]
        x = np.arange(len(names)) + 0.12 * (i - (len(networks) - 1) / 2)
        style.intervals(ax, x, *ends, color=colour, label=network)
    _label_categories(ax, names)
    ax.set_title("by group, reset to initial values")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _label_categories(ax: Axes, names: Sequence[str]) -> None:
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    ax.set_ylabel("damage (percentage points)")
