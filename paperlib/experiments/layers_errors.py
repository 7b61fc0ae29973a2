"""Table 3 of `layers`: test errors with and without weight decay and batch norm (App. C)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from paperlib import devices
from paperlib.experiments import conv_resets, conv_runs, seeds
from paperlib.experiments.layers_regularised import BOTH, SERIES, TITLES
from paperlib.experiments.layers_resnet import CHANCE
from paperlib.experiments.learned import unlearned
from paperlib.progress import track
from paperlib.report import claims, style
from paperlib.report.rules import Measured
from paperlib.robustness import evaluate
from paperlib.training import data, runs
from paperlib.training.runs import Spec

PLAIN = "plain"
LEVEL = 0.95

_NAN = float("nan")
# Test errors in per cent as we remember the paper, tag RECALLED, in the order of
# conv_runs.CONFIGURATIONS. Two agree with figures of an early version: 11.6 of VGG-11 on CIFAR-10,
# 34.7 of ResNet-50 on ImageNet, both plain.
PAPER = {
    ("cifar10", "resnet18"): (10.4, 7.5, 6.9, 5.5),
    ("cifar10", "resnet50"): (8.4, 6.9, 9.9, 5.0),
    ("cifar10", "resnet101"): (8.5, 6.9, 9.8, 5.0),
    ("cifar10", "resnet152"): (8.5, 7.3, 9.7, 4.7),
    ("cifar10", "vgg11"): (11.8, 10.7, 9.4, 8.2),
    ("cifar10", "vgg13"): (10.3, 8.8, 8.4, 6.7),
    ("cifar10", "vgg16"): (11.0, 11.4, 8.5, 6.7),
    ("cifar10", "vgg19"): (12.1, _NAN, 8.6, 6.9),
    ("imagenet", "resnet18"): (41.1, 33.1, 33.5, 31.5),
    ("imagenet", "resnet50"): (34.7, _NAN, _NAN, 25.0),
}


def specs(
    vggs: Sequence[str],
    resnets: Sequence[str],
    regularised: Sequence[str],
    dataset: str,
    vgg_base_width: int,
    vgg_lr: float,
    vgg_warmup: int,
    resnet_base_width: int,
    resnet_lr: float,
    resnet_warmup: int,
    augment: bool,
    epochs: int,
    train_images: int,
    seeds: int,
    precision: str,
    device: str,
) -> list[Spec]:
    """The runs that the table needs.

    Args:
        vggs, resnets: networks that are trained without weight decay and batch norm.
        regularised: those of them that are trained in the other configurations, too.
    """
    common = {
        "dataset": dataset,
        "augment": augment,
        "epochs": epochs,
        "train_images": train_images,
        "seeds": seeds,
        "precision": precision,
        "device": device,
    }
    families = (
        (vggs, {"base_width": vgg_base_width, "lr": vgg_lr, "warmup": vgg_warmup}),
        (resnets, {"base_width": resnet_base_width, "lr": resnet_lr, "warmup": resnet_warmup}),
    )
    made = []
    for names, own in families:
        for name in names:
            used = list(conv_runs.CONFIGURATIONS) if name in regularised else [PLAIN]
            made += conv_runs.specs([name], configurations=used, **common, **own)
    return made


def measure(trained: Sequence[Spec], test_images: int, device: str) -> pd.DataFrame:
    """Final errors in per cent, a row each `network`, `configuration` and `seed`.

    `error` is of the first `test_images`, with the 95 % Clopper-Pearson interval `low`, `high`
    over images; `training` of the last epoch, on augmented images while they were being learned.
    Missing runs are trained.
    """
    rows = []
    for spec in track(trained, "trained networks"):
        run = runs.get(spec, device=device)
        last = run.epochs[-1]
        test = data.load(spec.data, "test", limit=test_images)
        wrong = evaluate.outcomes(
            spec.build().to(devices.resolve(device)),
            {last: run.state(last)},
            data.as_input(test.images),
            test.labels,
            rerandomise=0,
        ).final
        interval = stats.binomtest(int(wrong.sum()), wrong.size).proportion_ci(LEVEL, "exact")
        network, configuration, *_ = conv_resets.setting(spec)
        ends = (wrong.mean(), interval.low, interval.high, 1 - run.history.accuracy.iloc[-1])
        rows.append((network, configuration, spec.seed, *(100 * float(end) for end in ends)))
    columns = ["network", "configuration", "seed", "error", "low", "high", "training"]
    return pd.DataFrame(rows, columns=columns)


def table(errors: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 3: test error in per cent by network and configuration, ours and below it the paper's.

    Ours is the mean over seeds with its 95 % interval over seeds; of one seed, over images. "–"
    stands for what was not trained, or what we do not remember.
    """
    ours = list(errors.network.unique())
    rows = []
    for network in [*ours, *(n for d, n in PAPER if d == dataset and n not in ours)]:
        own = conv_resets.part(errors, network=network)
        if network in ours:
            found = {c: _text(own[own.configuration == c]) for c in conv_runs.CONFIGURATIONS}
            rows.append({"network": conv_runs.title(network), "whose": "ours", **found})
        if (dataset, network) in PAPER:
            texts = ["–" if np.isnan(e) else f"{e:.1f}" for e in PAPER[dataset, network]]
            found = dict(zip(conv_runs.CONFIGURATIONS, texts, strict=True))
            whose = "paper [RECALLED]"
            rows.append({"network": conv_runs.title(network), "whose": whose, **found})
    return pd.DataFrame(rows)


def _text(own: pd.DataFrame) -> str:
    """Errors of one network in one configuration."""
    if own.empty:
        return "–"
    if len(own) == 1:
        m = Measured(*own.iloc[0][["error", "low", "high"]])
    else:
        m = seeds.interval(own.error)
    return f"{m.value:.1f} [{m.low:.1f}, {m.high:.1f}]"


def gains(errors: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Points that weight decay, batch norm and both take off the error, a row a network.

    Brackets hold 95 % intervals: over seeds, or of one seed over images as if the two errors were
    of different images, which makes them too wide rather than too narrow. Beside ours, those of
    the paper [RECALLED].
    """
    rows = {}
    for network in _regularised(errors):
        plain = _rows(errors, network, PLAIN)
        found = {c: _gain(plain, _rows(errors, network, c)) for c in list(TITLES)[1:]}
        rows[conv_runs.title(network)] = {
            TITLES[c]: f"{m.value:.1f} [{m.low:.1f}, {m.high:.1f}]" for c, m in found.items()
        }
        published = PAPER.get((dataset, network))
        theirs = "–" if published is None else f"{published[0] - published[-1]:.1f}"
        rows[conv_runs.title(network)]["paper, both"] = theirs
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def training_errors(errors: pd.DataFrame) -> pd.DataFrame:
    """Training error in per cent by network (rows) and configuration, mean over seeds."""
    found = errors.pivot_table(index="network", columns="configuration", values="training")
    found = found.reindex(index=errors.network.unique(), columns=list(conv_runs.CONFIGURATIONS))
    return found.rename(index=conv_runs.title)


def _rows(errors: pd.DataFrame, network: str, configuration: str) -> pd.DataFrame:
    own = conv_resets.part(errors, network=network, configuration=configuration)
    return own.set_index("seed")


def _regularised(errors: pd.DataFrame) -> list[str]:
    """Networks that were trained in all configurations."""
    number = errors.groupby("network", sort=False).configuration.nunique()
    return list(number.index[number == len(conv_runs.CONFIGURATIONS)])


def _gain(plain: pd.DataFrame, other: pd.DataFrame) -> Measured:
    if len(plain) > 1:
        return seeds.interval(plain.error - other.error)
    a, b = plain.iloc[0], other.iloc[0]
    value = a.error - b.error
    below = np.hypot(a.error - a.low, b.high - b.error)
    above = np.hypot(a.high - a.error, b.error - b.low)
    return Measured(value, value - below, value + above)


def judge(errors: pd.DataFrame, dataset: str) -> list[claims.Verdict]:
    """Verdicts on C23a for CIFAR-10 and C23b for ImageNet; `not run` where it is the other.

    Of several networks the one counts, seed by seed, whose gain is farthest from the middle of
    the range that is claimed.
    """
    return [_judge(errors, dataset, *of) for of in (("C23a", "cifar10"), ("C23b", "imagenet"))]


def _judge(errors: pd.DataFrame, dataset: str, id: str, wanted: str) -> claims.Verdict:
    if dataset != wanted:
        return claims.not_run(id, f'It needs dataset = "{wanted}"; this is {dataset}.')
    names = _regularised(errors)
    if not names:
        return claims.not_run(id, "No network was trained in all four configurations.")
    judged = errors[errors.network.isin(names)]
    if reason := unlearned(judged.error / 100, CHANCE[dataset]):
        return claims.not_run(id, reason)
    by_network = pd.DataFrame(
        {n: _rows(errors, n, PLAIN).error - _rows(errors, n, BOTH).error for n in names}
    )
    (criterion,) = claims.claim(id).criteria
    middle = (criterion["low"] + criterion["high"]) / 2
    farthest = [row.loc[(row - middle).abs().idxmax()] for _, row in by_network.iterrows()]
    sample = f"{len(by_network)} seeds of {', '.join(map(conv_runs.title, names))}"
    return claims.check(id, seeds.interval(farthest), sample=sample)


def draw(errors: pd.DataFrame, dataset: str) -> Figure:
    """Test error by network, a mark a configuration and seed with intervals over images.

    Hollow marks are the paper's, as we remember them.
    """
    names = list(errors.network.unique())
    fig = Figure(figsize=(style.PAGE, 3.4))
    ax = fig.subplots()
    for i, (configuration, (colour, mark)) in enumerate(SERIES.items()):
        own = conv_resets.part(errors, configuration=configuration)
        place = np.array([names.index(network) for network in own.network]) + 0.19 * (i - 1.5)
        x = place + 0.04 * (own.seed - own.seed.mean())
        label = TITLES[configuration]
        ends = (own.error, own.low, own.high)
        style.intervals(ax, x, *ends, color=colour, fmt=mark, label=label)
        published = {
            n: PAPER[dataset, n][i] for n in names if (dataset, n) in PAPER and not own.empty
        }
        at = [names.index(n) + 0.19 * (i - 1.5) for n in published]
        ax.plot(at, list(published.values()), mark, color=colour, markerfacecolor="white")
    ax.plot([], [], "o", color=style.BLACK, markerfacecolor="white", label="the paper, from memory")
    ax.set_xticks(range(len(names)), [conv_runs.title(name) for name in names])
    ax.set_ylim(bottom=0)
    ax.set_ylabel("test error (%)")
    ax.grid(axis="x", visible=False)
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return fig
