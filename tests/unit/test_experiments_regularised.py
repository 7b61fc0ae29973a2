"""Figs. 14-16 of `layers`: verdicts and tables from tables made by hand."""

from types import SimpleNamespace

import pandas as pd
import pytest

from paperlib.experiments import conv_resets, conv_runs, layers_regularised
from paperlib.experiments.layers_regularised import Tables

RESNET = ["stage0"] + [f"stage{s}.resblk{b}" for s in (1, 2) for b in (1, 2, 3)] + ["final_linear"]
VGG = ["stage1.block1", "stage3.block2", "stage4.block1", "stage5.block1", "fc1", "final_linear"]
FINAL = 0.4
CONFIGURATIONS = ("plain", "wd", "bn", "wd+bn")

# Damage in points of critical layers, and of the others.
DAMAGE = {"ReRnd": (45, 2), "0": (30, 1), "1": (20, 3), "12": (0, 0)}


def damage(layers, layer, column):
    """Stem, first blocks and final layer of a ResNet are critical; stages 1-3 of a VGG."""
    if layers is VGG:
        return DAMAGE[column][layer[:6] not in ("stage1", "stage3")]
    return DAMAGE[column][layer.endswith(("resblk2", "resblk3"))]


def tables(changes=None, layers=RESNET, seeds=3, configurations=CONFIGURATIONS, final=FINAL):
    """Tables of configurations alike; `changes` gives (configuration, layer, column) a damage."""
    rows, curves = [], []
    network = "vgg16" if layers is VGG else "resnet26b"
    for configuration in configurations:
        setting = (network, configuration, "full", 2)
        for seed in range(seeds):
            shift = 0.1 * (seed - (seeds - 1) / 2)
            for layer in [*layers, "fullmodel"]:
                for column in DAMAGE:
                    points = 0.0
                    if column != "12":
                        points = damage(layers, layer, column) if layer != "fullmodel" else 50
                        points = (changes or {}).get((configuration, layer, column), points) + shift
                    error = final + points / 100
                    ends = (points - 2, points + 2)
                    rows.append((*setting, seed, layer, column, error, 0.0, points, *ends))
            curves += [(*setting, seed, epoch, 1.0, 0.9 / epoch) for epoch in (1, 3)]
    setting = conv_resets.SETTING
    names = [*setting, "seed", "layer", "column", "error", "sd", "damage", "low", "high"]
    return Tables(
        pd.DataFrame(rows, columns=names),
        pd.DataFrame(columns=[*setting, "seed", "layer", "column", "relative"]),
        pd.DataFrame(curves, columns=[*setting, "seed", "epoch", "loss", "error"]),
    )


def verdicts(*args, dataset="cifar10", **options):
    return {v.id: v for v in layers_regularised.judge(tables(*args, **options), dataset)}


def outcomes(*args, **options):
    return {id: v.verdict for id, v in verdicts(*args, **options).items()}


def worse_at_1(configuration="wd+bn"):
    """Checkpoint 1 costs more than 0 in every layer."""
    return {(configuration, layer, "1"): damage(RESNET, layer, "0") + 5 for layer in RESNET}


def test_a_pattern_in_all_settings_survives():
    found = verdicts(worse_at_1())
    assert {id: v.verdict for id, v in found.items()} == {"C15": "holds", "C16": "holds"}
    assert found["C15"].measured["gap"].value == pytest.approx(29)
    assert found["C15"].measured["robust_median"].value == pytest.approx(1)
    # Four of the eight layers are critical, so that medians are halfway between the groups.
    assert found["C16"].measured["reversal"].value == pytest.approx(5)
    assert found["C16"].note == "8 of 8 layers lose more at checkpoint 1."


def test_one_setting_without_the_pattern_refutes_it():
    changes = {("bn", layer, "0"): 1 for layer in RESNET}
    assert outcomes(changes)["C15"] == "fails"
    assert verdicts(changes)["C15"].measured["gap"].value == pytest.approx(0)


def test_one_setting_with_damaged_blocks_refutes_it():
    changes = {("wd", layer, "0"): 12 for layer in RESNET if layer.endswith(("resblk2", "resblk3"))}
    found = verdicts(changes)["C15"]
    assert found.measured["robust_median"].value == pytest.approx(12)
    assert found.verdict == "fails"


def test_the_reversal_is_looked_for_in_the_network_with_both():
    assert outcomes()["C16"] == "fails"  # (30 + 1)/2 at 0 and (20 + 3)/2 at 1
    assert outcomes(worse_at_1("bn"))["C16"] == "fails"
    assert verdicts()["C16"].measured["reversal"].value == pytest.approx(-4)


def test_single_seeds_leave_it_open():
    assert outcomes(worse_at_1(), seeds=1) == {"C15": "inconclusive", "C16": "inconclusive"}


def test_a_vgg_is_judged_by_its_own_groups():
    found = verdicts(layers=VGG)
    assert {id: v.verdict for id, v in found.items()} == {"C15-vgg": "holds"}
    assert set(found["C15-vgg"].measured) == {"gap"}
    # Stage 4 is in neither group.
    changed = verdicts({(c, "stage4.block1", "0"): 99 for c in CONFIGURATIONS}, layers=VGG)
    assert changed["C15-vgg"].measured == found["C15-vgg"].measured


def test_what_is_missing_is_not_judged():
    assert outcomes(configurations=("plain", "wd+bn"))["C15"] == "not run"
    assert outcomes(configurations=("plain", "wd"))["C16"] == "not run"
    assert set(outcomes(final=0.89).values()) == {"not run"}


@pytest.mark.parametrize("dataset", ["imagenette", "imagenet-standin"])
def test_a_stand_in_judges_nothing(dataset):
    found = verdicts(worse_at_1(), dataset=dataset)
    assert {id: v.verdict for id, v in found.items()} == {
        "C15-imagenet": "not run",
        "C16-imagenet": "not run",
    }
    assert dataset in found["C15-imagenet"].reason


def test_imagenet_itself_is_judged():
    found = outcomes(worse_at_1(), dataset="imagenet", final=0.9)
    assert found == {"C15-imagenet": "holds", "C16-imagenet": "holds"}


def test_the_summary_has_a_row_a_configuration():
    found = layers_regularised.summary(tables(worse_at_1(), seeds=1))
    assert found.index.to_list() == list(CONFIGURATIONS)
    assert found.loc["plain"].to_dict() == {
        "test error": "40.0",
        "training error": "30.0",
        "critical": "30.0",
        "robust": "1.0",
        "gap": "29.0",
        "robust, ReRnd": "2.0",
        "1 − 0": "-4.0",
        "worse at 1": "4 of 8",
    }
    assert found.loc["wd+bn", "worse at 1"] == "8 of 8"
    assert layers_regularised.summary(tables()).loc["plain", "gap"] == "29.0 [29.0, 29.0]"


def test_layers_stand_beside_their_intervals():
    found = layers_regularised.by_layer(tables(seeds=1))
    assert found.loc["stage1.resblk1", "wd"] == "30.0 [28.0, 32.0]"
    # t of two degrees of freedom: 4.3027; s.d. of -0.1, 0, 0.1 is 0.1.
    assert layers_regularised.by_layer(tables()).loc["stage1.resblk1", "wd"] == "30.0 [29.8, 30.2]"


@pytest.fixture
def ways(monkeypatch):
    """`statistics` of a network that loses twice as much with statistics kept."""
    asked = []

    def measure(specs, *, buffers, **options):
        asked.append((buffers, [spec.configuration for spec in specs]))
        made = tables(seeds=1, configurations=("wd+bn",))
        factor = {"keep": 2, "recompute": 0}[buffers]
        ends = ["damage", "low", "high"]
        return made._replace(errors=made.errors.assign(**(factor * made.errors[ends])))

    def setting(spec):
        return "resnet26b", spec.configuration, "full", 2

    monkeypatch.setattr(layers_regularised.conv_resets, "measure", measure)
    monkeypatch.setattr(layers_regularised.conv_resets, "setting", setting)
    specs = [SimpleNamespace(configuration=name) for name in CONFIGURATIONS]
    found = layers_regularised.statistics(specs, tables(seeds=1), 50, 2, "cpu")
    return found, asked


def test_running_statistics_are_treated_in_three_ways(ways):
    found, asked = ways
    assert asked == [("keep", ["wd+bn"]), ("recompute", ["wd+bn"])]
    rows = found[(found.layer == "stage0") & (found.column == "0")]
    assert rows.set_index("buffers").damage.to_dict() == {"reset": 30, "keep": 60, "recompute": 0}
    table = layers_regularised.by_buffers(found)
    assert table["0"].to_list() == ["15.5", "31.0", "0.0"]  # medians of 30 and 1
    assert table["worse at 1"].to_list() == ["4 of 8", "4 of 8", "0 of 8"]
    fig = layers_regularised.draw_statistics(found)
    assert [ax.get_title() for ax in fig.axes] == [
        "(a) reset with the layer",
        "(b) kept from the final network",
        "(c) computed anew, everywhere",
    ]


def test_without_a_network_that_has_both_there_is_nothing_to_compare(monkeypatch):
    monkeypatch.setattr(
        layers_regularised.conv_resets, "setting", lambda spec: ("resnet26b", "wd", "full", 2)
    )
    found = layers_regularised.statistics([object()], tables(), 50, 2, "cpu")
    assert found.empty


def test_the_figure_has_a_panel_a_configuration_and_the_damages_below():
    fig = layers_regularised.draw(tables(), "cifar10")
    titles = [ax.get_title() for ax in fig.axes if ax.get_title()]
    assert titles == [
        "(a) neither",
        "(b) weight decay",
        "(c) batch norm",
        "(d) weight decay and batch norm",
        "(e) checkpoint 0",
    ]
    cells = [text.get_text() for text in fig.axes[0].texts]
    assert cells[: len(RESNET) + 1] == ["0.85", *["0.85", "0.42", "0.42"] * 2, "0.85", "0.90"]


def test_every_configuration_is_trained_from_every_seed():
    specs = layers_regularised.specs(
        "resnet26b",
        list(CONFIGURATIONS),
        "cifar10",
        base_width=4,
        lr=0.1,
        epochs=2,
        train_images=100,
        seeds=2,
        warmup=1,
        augment=False,
        precision="float32",
        device="cpu",
    )
    assert len({spec.folder_name for spec in specs}) == 8
    assert {spec.recipe.weight_decay for spec in specs} == {0, conv_runs.WEIGHT_DECAY}
    assert {spec.recipe.augment for spec in specs} == {False}
