"""Table 1 of `layers`: all but the first blocks of each stage reset, frozen or removed (§4)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats
from torch import fx, nn

from paperlib import devices
from paperlib.experiments import conv_resets, conv_runs, layers_joint_resnet, resetting, seeds
from paperlib.experiments.learned import unlearned
from paperlib.networks import resnet
from paperlib.progress import track
from paperlib.report import claims, style, tables
from paperlib.report.rules import Measured
from paperlib.robustness import evaluate, joint
from paperlib.robustness.evaluate import FULL_MODEL
from paperlib.training import data, runs
from paperlib.training.runs import Spec

FULL, SINGLE, JOINT, FROZEN, REMOVED = "full", "single resets", "joint reset", "frozen", "removed"
WAYS = (FULL, SINGLE, JOINT, FROZEN, REMOVED)
DEEP = ("resnet50", "resnet101", "resnet152")
CHANCE = {"cifar10": 0.9, "imagenet": 0.999}  # other data sets stand in for the paper's
LEVEL = 0.95


class Published(NamedTuple):
    """A row of the paper's Table 1: test errors in per cent, and the spread of single resets."""

    full: float
    single: float
    sd: float
    frozen: float
    removed: float


# As we remember the paper, tag RECALLED. One cell was checked: in a figure of an early version of
# the paper, single resets of ResNet-50 on ImageNet give 38.4 ± 5.4, population s.d. over blocks.
PAPER = {
    ("cifar10", "resnet50"): Published(8.40, 9.77, 1.38, 11.74, 9.23),
    ("cifar10", "resnet101"): Published(8.53, 8.87, 0.50, 9.21, 9.23),
    ("cifar10", "resnet152"): Published(8.54, 8.74, 0.39, 9.17, 9.23),
    ("imagenet", "resnet50"): Published(34.74, 38.54, 5.36, 44.36, 41.50),
    ("imagenet", "resnet101"): Published(32.78, 33.84, 2.10, 36.03, 41.50),
    ("imagenet", "resnet152"): Published(31.74, 32.42, 1.55, 35.75, 41.50),
}


def specs(
    networks: Sequence[str],
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
    """The runs that the table needs: each ResNet full and frozen, and what removal leaves of it.

    That is one network for all ResNets of one kind of block: it is trained once, as what is left of
    the first of them, with the recipe of that.
    """
    kinds = {_bottleneck(network): network for network in reversed(networks)}
    wanted = [(network, how) for network in networks for how in ("full", "frozen")]
    wanted += [(network, "removed") for network in networks if network in kinds.values()]
    return [
        conv_runs.spec(
            network,
            treatment=treatment,
            dataset=dataset,
            base_width=base_width,
            lr=lr,
            epochs=epochs,
            train_images=train_images,
            seed=seed,
            warmup=warmup,
            augment=augment,
            precision=precision,
            device=device,
        )
        for network, treatment in wanted
        for seed in range(seeds)
    ]


def measure(specs: Sequence[Spec], test_images: int, rerandomise: int, device: str) -> pd.DataFrame:
    """Test errors in per cent, a row each `network`, `seed`, `way` of WAYS and `block`.

    `block` names the block of a single reset, to its initial values, and is empty else. `low` and
    `high` are the ends of the 95 % Clopper-Pearson interval over test images.

    Args:
        specs: of `specs`; missing runs are trained.
        test_images: the first ones.
        rerandomise: draws of a column that is not shown, so that the other notebooks share it.
        device: where to train and evaluate.
    """
    by_treatment: dict[str, list[Spec]] = {}
    for spec in specs:
        by_treatment.setdefault(conv_resets.setting(spec)[2], []).append(spec)
    full = by_treatment.get("full", [])
    errors = layers_joint_resnet.measure(full, test_images, rerandomise, 0, device).errors
    rows = list(_of_full(errors))
    networks = dict.fromkeys(spec.network for spec in full)
    for spec in track([*by_treatment["frozen"], *by_treatment["removed"]], "trained networks"):
        error, way, names = _test_error(spec, test_images, device), FROZEN, [spec.network]
        if not spec.recipe.frozen:
            way = REMOVED
            names = [name for name in networks if _bottleneck(name) == _bottleneck(spec.network)]
        rows += [(name, spec.seed, way, "", error) for name in names]
    table = pd.DataFrame(rows, columns=["network", "seed", "way", "block", "error"])
    images = len(data.load(full[0].data, "test", limit=test_images))
    return _in_per_cent(table, images)


def _of_full(errors: pd.DataFrame) -> Iterator[tuple[str, int, str, str, float]]:
    """The rows of the full networks, from the errors of `layers_joint_resnet.measure`."""
    for network in errors.network.unique():
        own = conv_resets.part(errors, network=network)
        for seed, error in resetting.final_error(own).items():
            yield network, seed, FULL, "", error
        initial = resetting.at(own, "0", "error")
        for seed, row in initial.iterrows():
            yield network, seed, JOINT, "", row[layers_joint_resnet.LATER]
            for block in joint.later_blocks(initial.columns):
                yield network, seed, SINGLE, block, row[block]


def _test_error(spec: Spec, test_images: int, device: str) -> float:
    """Test error of a run's final network."""
    run = runs.get(spec, device=device)
    last = run.epochs[-1]
    test = data.load(spec.data, "test", limit=test_images)
    errors = evaluate.matrix(
        run.model().to(devices.resolve(device)),
        {last: run.state(last)},
        data.as_input(test.images),
        test.labels,
        rerandomise=0,
    )
    return float(errors.loc[FULL_MODEL, last])


def _in_per_cent(table: pd.DataFrame, images: int) -> pd.DataFrame:
    """Errors in per cent with their intervals over so many images."""
    found = [
        stats.binomtest(round(error * images), images).proportion_ci(LEVEL, "exact")
        for error in table.error
    ]
    ends = {"low": [100 * ci.low for ci in found], "high": [100 * ci.high for ci in found]}
    return table.assign(error=100 * table.error, **ends)


def _bottleneck(network: str) -> bool:
    return resnet.RESNETS[network]["bottleneck"]


def by_seed(errors: pd.DataFrame, network: str) -> pd.DataFrame:
    """One network's errors in per cent: rows seeds, columns WAYS and `sd`.

    The error of single resets is their mean over blocks, and `sd` their population standard
    deviation, as in the paper's table.
    """
    own = conv_resets.part(errors, network=network).groupby(["seed", "way"]).error
    found = own.mean().unstack()
    return found[list(WAYS)].assign(sd=own.std(ddof=0).unstack()[SINGLE])


def table(errors: pd.DataFrame, dataset: str) -> tables.Table:
    """Table 1: test error in per cent, ours (mean over seeds) and the paper's, by network."""
    ours = list(errors.network.unique())
    rows = []
    for network in [*ours, *(name for name in DEEP if name not in ours)]:
        if network in ours:
            rows.append(_row(network, "ours", by_seed(errors, network).mean()))
        if (dataset, network) in PAPER:
            published = PAPER[dataset, network]
            found = dict(zip(WAYS, [*published[:2], np.nan, *published[3:]], strict=True))
            rows.append(_row(network, "paper [RECALLED]", {**found, "sd": published.sd}))
    return tables.Table(pd.DataFrame(rows))


def _row(network: str, whose: str, found: Mapping[str, float]) -> dict[str, str]:
    texts = {way: f"{found[way]:.2f}" if np.isfinite(found[way]) else "–" for way in WAYS}
    texts[SINGLE] += f" ± {found['sd']:.2f}"
    return {"network": network, "whose": whose, **texts}


def differences(errors: pd.DataFrame) -> pd.DataFrame:
    """What is claimed of the table, in points: rows networks.

    Brackets hold 95 % intervals: over seeds, or of one seed over test images as if the two errors
    were of different images, which makes them too wide rather than too narrow.
    """
    rows = {
        network: {
            f"{way} − {other}": _text(_difference(errors, network, way, other))
            for way, other in ((FROZEN, SINGLE), (JOINT, FROZEN), (REMOVED, FULL))
        }
        for network in errors.network.unique()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def _difference(errors: pd.DataFrame, network: str, way: str, other: str) -> Measured:
    """Error one way minus error the other way, see `differences`."""
    found = by_seed(errors, network)
    if len(found) > 1:
        return seeds.interval(found[way] - found[other])
    own = conv_resets.part(errors, network=network)
    # Of single resets the mean over blocks has at most a single proportion's variance.
    a, b = (own[own.way == one][["error", "low", "high"]].mean() for one in (way, other))
    value = a.error - b.error
    below = np.hypot(a.error - a.low, b.high - b.error)
    above = np.hypot(a.high - a.error, b.error - b.low)
    return Measured(value, value - below, value + above)


def _text(m: Measured) -> str:
    return f"{m.value:.1f} [{m.low:.1f}, {m.high:.1f}]"


def remainders(base_width: int) -> dict[str, nn.Module]:
    """What removal leaves of the paper's three deep networks, as initialised from seed 0."""
    return {name: _spec(name, base_width, "removed").build(0) for name in DEEP}


def structure(base_width: int) -> pd.DataFrame:
    """The paper's three deep networks, full and after removal: blocks and parameters."""
    rows = {}
    for name, left in remainders(base_width).items():
        full = _spec(name, base_width, "full").build(0)
        rows[name] = {
            "blocks": len(resnet.residual_blocks(full)),
            "parameters": _parameters(full),
            "blocks left": len(resnet.residual_blocks(left)),
            "parameters left": _parameters(left),
            "tensors left": len(left.state_dict()),
            "operations left": len(_operations(left)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def _spec(network: str, base_width: int, treatment: str) -> Spec:
    """A run of which only the network matters."""
    return conv_runs.spec(
        network,
        treatment=treatment,
        base_width=base_width,
        lr=0.1,
        epochs=1,
        train_images=None,
        seed=0,
        precision="float32",
    )


def differing(models: Sequence[nn.Module]) -> int:
    """Tensors and operations in which networks differ from the first of them.

    Tensors are compared by name, shape and value, operations one by one in the order of the traced
    graph: kind, inputs, and the module with its sizes, strides and the like.
    """
    first, *others = models
    tensors, operations = first.state_dict(), _operations(first)
    number = 0
    for other in others:
        own = other.state_dict()
        number += sum(
            name not in own or name not in tensors or not torch.equal(own[name], tensors[name])
            for name in {**tensors, **own}
        )
        number += sum(a != b for a, b in zip_longest(operations, _operations(other)))
    return number


def _operations(model: nn.Module) -> list[tuple[str, ...]]:
    """The nodes of the network's graph, in order."""
    graph = fx.symbolic_trace(model).graph
    modules = dict(model.named_modules())
    return [
        (node.op, str(node.target), str(node.args), repr(modules.get(str(node.target))))
        for node in graph.nodes
    ]


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def judge(
    errors: pd.DataFrame, dataset: str, models: Mapping[str, nn.Module]
) -> list[claims.Verdict]:
    """Verdicts on C12, C13a, C13b and C14.

    The network that does worst is judged. `models` are those of `remainders`.
    """
    note = "Tensors by name, shape and initial values; operations of the traced graph."
    same = claims.check("C14", differing(list(models.values())), note=note)
    found = {network: by_seed(errors, network) for network in errors.network.unique()}
    reason = f"{dataset} is a stand-in data set."
    if dataset in CHANCE:
        reason = _unlearned(found, CHANCE[dataset])
    if reason:
        return [*(claims.not_run(id, reason) for id in ("C12", "C13a", "C13b")), same]

    def gap(way: str, other: str) -> pd.DataFrame:
        return pd.DataFrame({name: rows[way] - rows[other] for name, rows in found.items()})

    sample = f"{errors.seed.nunique()} seeds of {', '.join(found)}"
    order = {
        "above_single": seeds.interval(gap(FROZEN, SINGLE).min(axis=1)),
        "below_joint": seeds.interval(gap(JOINT, FROZEN).min(axis=1)),
    }
    verdicts = [claims.check("C12", order, sample=sample)]
    cost = gap(REMOVED, FULL)
    for id, wanted, worst in (("C13a", "cifar10", cost.max), ("C13b", "imagenet", cost.min)):
        if dataset == wanted:
            verdicts.append(claims.check(id, seeds.interval(worst(axis=1)), sample=sample))
        else:
            verdicts.append(claims.not_run(id, f'It needs dataset = "{wanted}".'))
    return [*verdicts, same]


def _unlearned(found: Mapping[str, pd.DataFrame], chance: float) -> str | None:
    """Why these networks cannot be judged, if one has hardly learned; None where they can."""
    for network, rows in found.items():
        if reason := unlearned(rows[FULL] / 100, chance):
            return f"{network}: {reason}"
    return None


def draw(errors: pd.DataFrame, dataset: str) -> Figure:
    """Test error in each way, a panel a network and a dot a seed, with intervals over images."""
    networks = errors.network.unique()
    fig = Figure(figsize=(style.PAGE, 3.5))
    axes = fig.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for ax, network in zip(axes, networks, strict=True):
        _draw_network(ax, errors, network)
        if (dataset, network) in PAPER:
            published = PAPER[dataset, network]
            x = [WAYS.index(way) for way in (FULL, SINGLE, FROZEN, REMOVED)]
            y = [published.full, published.single, published.frozen, published.removed]
            marks = {"markerfacecolor": "none", "color": style.ORANGE}
            ax.plot(np.array(x) + 0.3, y, "D", **marks, label="paper, from memory")
    axes[0].set_ylabel("test error (%)")
    axes[0].set_ylim(bottom=0)
    fig.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def _draw_network(ax: Axes, errors: pd.DataFrame, network: str) -> None:
    own = conv_resets.part(errors, network=network)
    number = own.seed.nunique()
    colours = (style.BLACK, style.GREY, style.RED, style.BLUE, style.GREEN)
    for x, (way, colour) in enumerate(zip(WAYS, colours, strict=True)):
        rows = own[own.way == way]
        offsets = 0.12 * (rows.seed - (number - 1) / 2)
        if way != SINGLE:
            ends = (rows.error, rows.low, rows.high)
            style.intervals(ax, x + offsets, *ends, color=colour)
            continue
        ax.scatter(
            x + offsets,
            rows.error,
            s=10,
            color=style.PURPLE,
            lw=0,
            alpha=0.8,
            label="one block reset",
        )
        mean = by_seed(errors, network)
        at = x + 0.12 * (mean.index - (number - 1) / 2) + 0.08
        ends = (mean[SINGLE], mean[SINGLE] - mean["sd"], mean[SINGLE] + mean["sd"])
        style.intervals(ax, at, *ends, color=colour, fmt="s", label="their mean ± s.d. over blocks")
    ax.set_xticks(range(len(WAYS)), WAYS, rotation=35, ha="right", rotation_mode="anchor")
    ax.set_xlim(-0.5, len(WAYS) - 0.5)
    ax.set_title(network)
