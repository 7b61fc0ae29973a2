"""Figs. 20 and 21 of `layers`: the error of every reset as lines over the layers (App. E)."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import networks
from paperlib.experiments import conv_resets, conv_runs, layers_regularised, resetting
from paperlib.experiments.layers_regularised import TITLES
from paperlib.experiments.layers_resnet import CHANCE, CIFAR, IMAGENET
from paperlib.report import style
from paperlib.robustness.evaluate import FULL_MODEL, RERANDOMISED
from paperlib.training.runs import Spec

DATA = {
    CIFAR: "CIFAR-10",
    IMAGENET: "ImageNet",
    "imagenette": "Imagenette",
    conv_runs.STANDIN: "CIFAR-10 enlarged, for ImageNet",
}
PANEL = ["data", "network", "configuration"]

specs = layers_regularised.specs


class Line(NamedTuple):
    """Test error by layer at one checkpoint: `error`, and `low` and `high` around it."""

    error: pd.Series
    low: pd.Series
    high: pd.Series


def specs_of_both(
    network: str,
    imagenet_network: str,
    configurations: Sequence[str],
    dataset: str,
    base_width: int,
    lr: float,
    epochs: int,
    train_images: int,
    imagenet_train_images: int,
    seeds: int,
    warmup: int,
    augment: bool,
    precision: str,
    device: str,
) -> list[Spec]:
    """The runs of Fig. 21: `network` on CIFAR-10, and `imagenet_network` on `dataset`."""
    common = {
        "configurations": configurations,
        "base_width": base_width,
        "lr": lr,
        "epochs": epochs,
        "seeds": seeds,
        "warmup": warmup,
        "augment": augment,
        "precision": precision,
        "device": device,
    }
    return [
        *specs(network, dataset=CIFAR, train_images=train_images, **common),
        *specs(imagenet_network, dataset=dataset, train_images=imagenet_train_images, **common),
    ]


def measure(
    trained: Sequence[Spec], test_images: int, rerandomise: int, device: str
) -> pd.DataFrame:
    """Errors of every layer reset to every checkpoint, as of `conv_resets.measure`, by `data`.

    Of every data set the first `test_images` are taken.
    """
    found = []
    for name in dict.fromkeys(spec.data for spec in trained):
        tables = conv_resets.measure(
            [spec for spec in trained if spec.data == name],
            test_images=test_images,
            rerandomise=rerandomise,
            device=device,
        )
        found.append(tables.errors.assign(data=name))
    table = pd.concat(found, ignore_index=True)
    return table[["data", *table.columns.drop("data")]]


def layers(trained: Sequence[Spec]) -> pd.DataFrame:
    """Each layer's number of parameters, a column a network and a row a layer."""
    found = {}
    for spec in trained:
        model = spec.build()
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        found[", ".join((DATA.get(spec.data, spec.data), *conv_resets.setting(spec)[:2]))] = {
            layer: sum(sizes.get(name, 0) for name in owned)
            for layer, owned in networks.layers(model).items()
        }
    return pd.DataFrame(found).rename_axis("layer")


def damages(errors: pd.DataFrame) -> pd.DataFrame:
    """Damage of every reset in points, mean over seeds: rows layers, columns checkpoints.

    `errors` are of one panel.
    """
    return resetting.grid(errors[errors.layer != FULL_MODEL], "damage").iloc[:, :-1]


def lines(errors: pd.DataFrame) -> dict[str, Line]:
    """The lines of one panel by column: means over seeds.

    Around ReRnd, one standard deviation over draws to either side, mean over seeds (NaN for one
    draw); around a checkpoint, the smallest and the largest over seeds.
    """
    found = {}
    for column in errors.column.unique():
        error = resetting.at(errors, column, "error")
        low, high = error.min(), error.max()
        if column == RERANDOMISED:
            spread = resetting.at(errors, column, "sd").mean()
            low, high = error.mean() - spread, error.mean() + spread
        found[column] = Line(error.mean(), low, high)
    return found


def draw(errors: pd.DataFrame) -> Figure:
    """Test error against layer, a line a column and a panel a data set and configuration."""
    panels = list(errors.groupby(PANEL, sort=False))
    fig = Figure(figsize=(style.PAGE, 1.85 * len(panels) + 0.5))
    axes = fig.subplots(len(panels), 1, squeeze=False)[:, 0]
    for letter, ax, (names, rows) in zip("abcdefgh", axes, panels, strict=False):
        _draw_panel(ax, rows)
        data, network, configuration = names
        place = [conv_runs.title(network), DATA.get(data, data), TITLES[configuration]]
        ax.set_title(f"({letter}) {', '.join(place)}")
        if data in CHANCE:
            ax.axhline(CHANCE[data], color=style.GREY, linewidth=0.8, linestyle=":", zorder=0)
    axes[-1].set_xlabel("layer (stage.block)")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return fig


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    found = lines(rows)
    checkpoints = [column for column in found if column != RERANDOMISED]
    colours = dict(zip(checkpoints, style.family(len(checkpoints)), strict=True))
    for column, (error, low, high) in found.items():
        x = [i + 0.5 for i in range(len(error))]
        drawn = column == RERANDOMISED
        look = {"color": style.RED, "linestyle": "--"} if drawn else {"color": colours[column]}
        label = RERANDOMISED if drawn else f"checkpoint {column}"
        style.band(ax, x, error, low, high, marker="s" if drawn else "o", label=label, **look)
    conv_resets.label_layers(ax, error.index)
    ax.set_ylabel("test error")
    ax.set_ylim(bottom=0)
