"""Figs. 20 and 21 of `layers`: lines from tables made by hand."""

import math

import pandas as pd
import pytest

from paperlib.experiments import conv_runs, layers_lines

LAYERS = ["stage0", "stage1.resblk1", "final_linear"]


def errors(data="cifar10", configurations=("plain",), seeds=2):
    rows = []
    for configuration in configurations:
        for seed in range(seeds):
            for layer in [*LAYERS, "fullmodel"]:
                for column, error, sd in (
                    ("ReRnd", 0.8, 0.04),
                    ("0", 0.6 + 0.1 * seed, math.nan),
                    ("12", 0.3, math.nan),
                ):
                    own = (error, sd, 100 * (error - 0.3))
                    rows.append((data, "resnet26b", configuration, seed, layer, column, *own))
    names = ["data", "network", "configuration", "seed", "layer", "column", "error", "sd", "damage"]
    return pd.DataFrame(rows, columns=names)


def test_bands_are_of_draws_for_rernd_and_of_seeds_for_checkpoints():
    found = layers_lines.lines(errors())
    assert list(found) == ["ReRnd", "0", "12"]
    drawn, initial = found["ReRnd"], found["0"]
    assert list(drawn.error.index) == LAYERS
    assert (drawn.low["stage0"], drawn.high["stage0"]) == pytest.approx((0.76, 0.84))
    assert tuple(line["stage0"] for line in initial) == pytest.approx((0.65, 0.6, 0.7))
    single = layers_lines.lines(errors(seeds=1))["0"]
    assert (single.low == single.high).all()


def test_damages_leave_the_last_checkpoint_out():
    found = layers_lines.damages(errors())
    assert list(found.columns) == ["ReRnd", "0"]
    assert list(found.index) == LAYERS
    assert found.loc["stage0", "0"] == pytest.approx(35)


def test_a_panel_is_a_data_set_and_a_configuration():
    both = pd.concat(
        [errors(configurations=("plain", "wd+bn")), errors("imagenet-standin")], ignore_index=True
    )
    fig = layers_lines.draw(both)
    assert [ax.get_title() for ax in fig.axes] == [
        "(a) ResNet-26b, CIFAR-10, neither",
        "(b) ResNet-26b, CIFAR-10, weight decay and batch norm",
        "(c) ResNet-26b, CIFAR-10 enlarged, for ImageNet, neither",
    ]
    labels = [text.get_text() for text in fig.legends[0].texts]
    assert labels == ["ReRnd", "checkpoint 0", "checkpoint 12"]
    (drawn, initial, _) = (line for line in fig.axes[0].lines if len(line.get_xdata()) == 3)
    assert list(drawn.get_ydata()) == pytest.approx([0.8] * 3)
    assert list(initial.get_ydata()) == pytest.approx([0.65] * 3)


def test_two_data_sets_are_measured_apart(monkeypatch):
    asked = []

    def measure(specs, **options):
        asked.append([spec.data for spec in specs])
        return layers_lines.resetting.Tables(errors().drop(columns="data"), None)

    monkeypatch.setattr(layers_lines.conv_resets, "measure", measure)
    specs = both_specs()
    found = layers_lines.measure(specs, 100, 1, "cpu")
    assert asked == [["cifar10"] * 2, [conv_runs.STANDIN] * 2]
    assert list(found.data.unique()) == ["cifar10", conv_runs.STANDIN]


def both_specs():
    return layers_lines.specs_of_both(
        "resnet26b",
        "resnet18",
        ["plain", "wd+bn"],
        conv_runs.STANDIN,
        base_width=4,
        lr=0.1,
        epochs=2,
        train_images=100,
        imagenet_train_images=50,
        seeds=1,
        warmup=0,
        augment=True,
        precision="float32",
        device="cpu",
    )


def test_either_data_set_has_its_network_and_number_of_images():
    found = [(spec.network, spec.data, spec.train_images) for spec in both_specs()]
    assert found == [("resnet26b", "cifar10", 100)] * 2 + [("resnet18", conv_runs.STANDIN, 50)] * 2


def test_parameters_are_counted_by_layer():
    found = layers_lines.layers(both_specs()[:1])
    assert list(found.columns) == ["CIFAR-10, resnet26b, plain"]
    # A 3×3 convolution of 3 to 4 channels with biases; 128 features to 10 classes.
    assert found.iloc[0, 0] == 3 * 3 * 3 * 4 + 4
    assert found.loc["final_linear"].item() == 128 * 10 + 10
