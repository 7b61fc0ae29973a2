"""Table 1 of `layers`: its runs, networks that differ, and verdicts from a table made by hand."""

import numpy as np
import pandas as pd
import pytest
from torch import nn

from paperlib import networks
from paperlib.experiments import layers_freeze, layers_joint_resnet
from paperlib.experiments.layers_freeze import FROZEN, FULL, JOINT, REMOVED, SINGLE, WAYS

COMMON = {
    "base_width": 2,
    "lr": 0.1,
    "epochs": 1,
    "train_images": 10,
    "seeds": 2,
    "warmup": 0,
    "augment": True,
    "precision": "float32",
    "device": "cpu",
}
BLOCKS = [f"stage{stage}.resblk2" for stage in range(1, 5)]
# Test errors in per cent of three seeds; single resets are those of the four blocks.
ERRORS = {
    FULL: [8.0, 8.2, 8.4],
    SINGLE: [[8.0, 9.0, 10.0, 13.0], [8.2, 9.2, 10.2, 13.2], [8.4, 9.4, 10.4, 13.4]],
    JOINT: [60.0, 61.0, 62.0],
    FROZEN: [12.0, 12.1, 12.2],
    REMOVED: [8.9, 9.0, 9.1],
}


def table(changes=None, seeds=3, networks=("resnet50",)):
    """Errors of `networks`, all the same, but for `changes` of the last."""
    rows = []
    for network in networks:
        errors = ERRORS | ((changes or {}) if network == networks[-1] else {})
        for way, values in errors.items():
            for seed in range(seeds):
                blocks = BLOCKS if way == SINGLE else [""]
                for block, error in zip(blocks, np.atleast_1d(values[seed]), strict=True):
                    rows.append((network, seed, way, block, error, error - 2, error + 3))
    columns = ["network", "seed", "way", "block", "error", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


MODELS = {"a": nn.Linear(2, 1)}


def verdicts(errors, dataset="cifar10", models=None):
    return {v.id: v for v in layers_freeze.judge(errors, dataset, models or MODELS)}


def test_what_removal_leaves_is_trained_once_for_each_kind_of_block():
    specs = layers_freeze.specs(["resnet18", "resnet50", "resnet101"], "cifar10", **COMMON)
    removed = [spec for spec in specs if "blocks" in spec.options]
    assert [(spec.network, spec.seed) for spec in removed] == [
        *(("resnet18", 0), ("resnet18", 1)),
        *(("resnet50", 0), ("resnet50", 1)),
    ]
    frozen = [spec for spec in specs if spec.recipe.frozen]
    assert [len(spec.recipe.frozen) for spec in frozen] == [4, 4, 12, 12, 29, 29]
    assert len(specs) == 6 + 6 + 4


def test_the_three_deep_networks_leave_one():
    left = layers_freeze.remainders(base_width=2)
    assert layers_freeze.differing(list(left.values())) == 0
    found = layers_freeze.structure(base_width=2)
    assert found.blocks.to_list() == [3 + 4 + 6 + 3, 3 + 4 + 23 + 3, 3 + 8 + 36 + 3]
    assert found["blocks left"].to_list() == [4, 4, 4]
    assert found["parameters left"].nunique() == 1
    assert found.parameters.nunique() == 3


def small(**options):
    made = {"bottleneck": True, "base_width": 2, "blocks": (1, 1, 1, 1)} | options
    return networks.build("resnet50", **made)


@pytest.mark.parametrize(
    "options", [{"version": 1}, {"stem": "imagenet"}, {"seed": 1}, {"blocks": (2, 1, 1, 1)}]
)
def test_networks_that_differ_are_found_out(options):
    assert layers_freeze.differing([small(), small()]) == 0
    assert layers_freeze.differing([small(), small(), small(**options)]) > 0


def test_equal_tensors_in_another_graph_are_not_the_same_network():
    def two(activation):
        network = nn.Sequential(nn.Linear(2, 2), activation)
        nn.init.ones_(network[0].weight)
        nn.init.zeros_(network[0].bias)
        return network

    assert layers_freeze.differing([two(nn.ReLU()), two(nn.Tanh())]) == 1
    assert layers_freeze.differing([two(nn.ReLU()), two(nn.ReLU())]) == 0


def test_the_spread_of_single_resets_is_the_population_s():
    found = layers_freeze.by_seed(table(), "resnet50")
    assert found[SINGLE].to_list() == pytest.approx([10, 10.2, 10.4])
    # Of 8, 9, 10, 13: squares of 2, 1, 0, 3 over four.
    assert found["sd"].to_list() == pytest.approx([3.5**0.5] * 3)


def test_the_paper_s_row_stands_below_ours():
    found = layers_freeze.table(table(), "cifar10").frame
    ours, paper, *others = found.to_dict("records")
    assert (ours["network"], ours["whose"]) == ("resnet50", "ours")
    assert [ours[way] for way in WAYS] == ["8.20", "10.20 ± 1.87", "61.00", "12.10", "9.00"]
    assert (paper["network"], paper["whose"]) == ("resnet50", "paper [RECALLED]")
    assert [paper[way] for way in WAYS] == ["8.40", "9.77 ± 1.38", "–", "11.74", "9.23"]
    assert [row["network"] for row in others] == ["resnet101", "resnet152"]


def test_another_data_set_has_no_published_row():
    assert layers_freeze.table(table(), "imagenet-standin").frame.whose.to_list() == ["ours"]
    assert len(layers_freeze.table(table(), "imagenet").frame) == 4


def test_the_order_of_the_table_is_judged_over_seeds():
    found = verdicts(table())
    assert found["C12"].verdict == found["C13a"].verdict == found["C14"].verdict == "holds"
    values = {name: m.value for name, m in found["C12"].measured.items()}
    assert values == pytest.approx({"above_single": 1.9, "below_joint": 48.9})
    assert found["C13a"].measured["difference"].value == pytest.approx(0.8)
    assert found["C13b"].verdict == "not run"
    assert found["C13b"].reason == 'It needs dataset = "imagenet".'


def test_the_network_that_does_worst_decides():
    both = {"networks": ("resnet18", "resnet50")}
    assert verdicts(table({FROZEN: [9.0, 9.1, 9.2]}, **both))["C12"].verdict == "fails"
    assert verdicts(table({REMOVED: [12.0, 12.1, 12.3]}, **both))["C13a"].verdict == "fails"


def test_removal_costs_on_imagenet_and_a_stand_in_judges_nothing():
    errors = table({REMOVED: [12.0, 12.1, 12.3]})
    found = verdicts(errors, "imagenet")
    assert (found["C13a"].verdict, found["C13b"].verdict) == ("not run", "holds")
    found = verdicts(errors, "imagenet-standin")
    assert {found[id].verdict for id in ("C12", "C13a", "C13b")} == {"not run"}
    assert found["C14"].verdict == "holds"


def test_one_seed_is_inconclusive_and_networks_near_chance_are_not_judged():
    assert verdicts(table(seeds=1))["C12"].verdict == "inconclusive"
    found = verdicts(table({FULL: [89.0, 89.5, 90.0]}))
    assert {found[id].verdict for id in ("C12", "C13a")} == {"not run"}
    assert "never learned" in found["C12"].reason


def test_differences_of_one_seed_have_intervals_over_images():
    found = layers_freeze.differences(table(seeds=1)).loc["resnet50"]
    # Half widths 2 below and 3 above, each way: √13.
    assert found[f"{JOINT} − {FROZEN}"] == "48.0 [44.4, 51.6]"
    found = layers_freeze.differences(table()).loc["resnet50"]
    # s.d. 0.1 of three seeds, times 4.3027 / √3.
    assert found[f"{REMOVED} − {FULL}"] == "0.8 [0.6, 1.0]"


def test_measured_rows_have_all_ways_of_every_network(monkeypatch):
    specs = layers_freeze.specs(["resnet26b", "resnet50"], "cifar10", **COMMON | {"seeds": 1})

    def fake(given, test_images, rerandomise, random_groups, device):
        assert not [s for s in given if s.recipe.frozen or "blocks" in s.options]
        rows = [
            (spec.network, spec.seed, layer, column, error)
            for spec in given
            for layer, error in (
                ("stage1.resblk1", 0.9),
                ("stage1.resblk2", 0.3),
                (layers_joint_resnet.LATER, 0.6),
                ("fullmodel", 0.2),
            )
            for column in ("0", "1")
        ]
        names = ["network", "seed", "layer", "column", "error"]
        return layers_joint_resnet.Tables(pd.DataFrame(rows, columns=names), None, None)

    monkeypatch.setattr(layers_joint_resnet, "measure", fake)
    monkeypatch.setattr(
        layers_freeze, "_test_error", lambda spec, *_: 0.4 if spec.recipe.frozen else 0.25
    )
    monkeypatch.setattr(layers_freeze.data, "load", lambda *_, limit: range(limit))
    found = layers_freeze.measure(specs, 200, 5, "cpu")
    for network in ("resnet26b", "resnet50"):
        rows = found[found.network == network].set_index("way")
        assert rows.error.to_dict() == pytest.approx(
            {FULL: 20, SINGLE: 30, JOINT: 60, FROZEN: 40, REMOVED: 25}
        )
        assert rows.block[SINGLE] == "stage1.resblk2"
    # Clopper-Pearson for 40 of 200.
    assert found.low[0] == pytest.approx(14.69, abs=0.01)
    assert found.high[0] == pytest.approx(26.22, abs=0.01)


def test_the_figure_has_the_paper_s_values_where_there_are_any():
    fig = layers_freeze.draw(table(networks=("resnet18", "resnet50")), "cifar10")
    fig.draw_without_rendering()
    left, right = fig.axes
    assert [ax.get_title() for ax in fig.axes] == ["resnet18", "resnet50"]
    labels = [line.get_label() for line in right.lines]
    assert "paper, from memory" in labels
    assert "paper, from memory" not in [line.get_label() for line in left.lines]
