"""Figs. 6, 12 and 13 of `layers`: members of groups, and verdicts from tables made by hand."""

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments import conv_resets, layers_joint_resnet, resetting
from paperlib.experiments.layers_joint_resnet import (
    ALL,
    LATER,
    OTHER,
    OUTER,
    WITH_FIRST,
    WITHOUT_FIRST,
    Tables,
)

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet26b": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
# Damage of the groups at initial values, in points, of three seeds; of a first block or the stem
# it is 70, of any other block 1, 2 and 3.
GROUPED = {
    "resnet18": {LATER: [10, 12, 14], ALL: [80, 80, 80], OTHER: [10, 12, 14], OUTER: [4, 5, 6]},
    "resnet26b": {LATER: [40, 42, 44], ALL: [80, 80, 80], OTHER: [40, 42, 44], OUTER: [9, 9, 9]},
    "resnet50": {LATER: [60, 62, 64], ALL: [80, 80, 80], OTHER: [6, 6.2, 6.4], OUTER: [50, 51, 52]},
}
FINAL = 0.1


def layers_of(network):
    blocks = [
        f"stage{s}.resblk{b}" for s, n in enumerate(BLOCKS[network], 1) for b in range(1, n + 1)
    ]
    return ["stage0", *blocks, "final_linear"]


def tables(*networks, seeds=3, changes=None):
    """Tables of `networks` with GROUPED, but for `changes` of the last network."""
    errors, distances, baseline = [], [], []
    for network in networks:
        layers = layers_of(network)
        later = set(layers_joint_resnet.joint.later_blocks(layers))
        damage = {name: [1, 2, 3] if name in later else [70] * 3 for name in layers}
        damage |= {"fullmodel": [80] * 3, **GROUPED[network]}
        if network == networks[-1]:
            damage |= changes or {}
        for seed in range(seeds):
            for layer, values in damage.items():
                for column, points in (
                    ("ReRnd", 2.0 * values[seed]),
                    ("0", values[seed]),
                    ("8", 0),
                ):
                    cell = (FINAL + points / 100, 0.0, points, points - 1.5, points + 1)
                    errors.append((network, seed, layer, column, *cell))
            distances += [(network, seed, layer, c, d) for layer in layers for c, d in MOVED]
            for i, group in enumerate(layers_joint_resnet.random(layers, 3)):
                points = 10.0 * (i + 1) + seed
                cell = (FINAL + points / 100, 0.0, points, points, points)
                baseline.append((network, seed, "+".join(group), "0", *cell))
    names = ["network", "seed", "layer", "column"]
    values = ["error", "sd", "damage", "low", "high"]
    return Tables(
        pd.DataFrame(errors, columns=names + values),
        pd.DataFrame(distances, columns=[*names, "relative"]),
        layers_joint_resnet._baseline(pd.DataFrame(baseline, columns=names + values)),
    )


MOVED = (("ReRnd", 1.4), ("0", 0.0), ("8", 0.3))


def test_equal_groups_are_named_once():
    deep = layers_joint_resnet.distinct(layers_of("resnet50"), (LATER, OTHER))
    assert [(group.label, len(group.members)) for group in deep] == [(LATER, 12), (OTHER, 7)]
    (one,) = layers_joint_resnet.distinct(layers_of("resnet26b"), (LATER, OTHER))
    assert (one.label, one.name) == (f"{LATER} = {OTHER}", LATER)
    assert one.members == tuple(f"stage{s}.resblk2" for s in range(1, 5))


def test_random_groups_are_as_large_as_every_other_block_and_none_has_a_name():
    layers = layers_of("resnet50")
    drawn = layers_joint_resnet.random(layers, 10)
    assert len(set(drawn)) == len(drawn) <= 20
    assert {len(group) for group in drawn} == {7}
    first = ["resblk1" in {name.split(".")[1] for name in group} for group in drawn]
    assert sum(first) >= 9, "of the groups from all blocks hardly one spares every first block"
    assert not any(first[:10])
    named = {tuple(members) for members in layers_joint_resnet.groups(layers).values()}
    assert not named & set(drawn)


def test_two_blocks_a_stage_leave_no_other_group_of_later_blocks():
    drawn = layers_joint_resnet.random(layers_of("resnet26b"), 100)
    # 70 groups of four of eight blocks; one of them is the pattern itself.
    assert len(drawn) == 69


def test_half_the_blocks_are_judged_by_the_deep_network():
    (found,) = layers_joint_resnet.judge_groupings(tables("resnet26b", "resnet50"))
    assert found.verdict == "holds"
    assert found.measured["ratio"].value == pytest.approx((6 / 60 + 6.2 / 62 + 6.4 / 64) / 3)
    assert found.sample == "3 seeds of resnet50"


def test_half_the_blocks_cannot_be_judged_where_the_groups_coincide():
    (found,) = layers_joint_resnet.judge_groupings(tables("resnet26b"))
    assert (found.id, found.verdict) == ("C11-resnet", "not run")
    assert "two blocks each" in found.reason


def test_without_joint_damage_there_is_no_ratio():
    made = tables("resnet50", changes={LATER: [0, 1, 2]})
    assert layers_joint_resnet.judge_groupings(made)[0].verdict == "not run"
    assert layers_joint_resnet.costs(made).ratio.to_list() == [""] * 4


def test_robust_together_is_judged_by_the_worst_of_the_deeper_networks():
    (found,) = layers_joint_resnet.judge_depths(tables("resnet18", "resnet26b", "resnet50"))
    # Reading A: 42 less 2 in the shallower of the two. Reading B: 80 less 70, a first block.
    assert found.measured["excess_a"].value == pytest.approx(((40 - 1) + (42 - 2) + (44 - 3)) / 3)
    assert found.measured["excess_b"].value == pytest.approx(10)
    assert found.verdict == "holds"
    assert layers_joint_resnet.judge_depths(tables("resnet18"))[0].verdict == "not run"


def test_joint_damage_no_larger_than_a_single_one_fails():
    (found,) = layers_joint_resnet.judge_depths(tables("resnet50", changes={ALL: [71, 71.5, 71]}))
    assert found.verdict == "fails"


def test_the_order_of_groups_and_depths():
    (found,) = layers_joint_resnet.judge_alternatives(tables("resnet18", "resnet50"))
    values = {name: m.value for name, m in found.measured.items()}
    assert values == pytest.approx({"depth": 50, "two_stages": 11, "every_other": 51 - 6.2})
    assert found.verdict == "holds"
    turned = tables("resnet18", "resnet50", changes={OUTER: [5, 5.2, 5.4]})
    assert layers_joint_resnet.judge_alternatives(turned)[0].verdict == "fails"


@pytest.mark.parametrize("networks", [("resnet50",), ("resnet18",), ("resnet18", "resnet26b")])
def test_the_order_needs_a_shallow_and_a_deep_network(networks):
    (found,) = layers_joint_resnet.judge_alternatives(tables(*networks))
    assert (found.id, found.verdict) == ("C24", "not run")


def test_one_seed_is_inconclusive():
    made = tables("resnet18", "resnet50", seeds=1)
    judges = ("judge_groupings", "judge_depths", "judge_alternatives")
    found = [getattr(layers_joint_resnet, judge)(made)[0] for judge in judges[1:]]
    (groupings,) = layers_joint_resnet.judge_groupings(tables("resnet50", seeds=1))
    assert {v.verdict for v in [*found, groupings]} == {"inconclusive"}


def test_costs_stand_beside_those_of_the_members():
    row = layers_joint_resnet.costs(tables("resnet50")).loc[("resnet50", LATER)]
    assert row["blocks"] == "12 of 16"
    # s.d. 2 of three seeds, times 4.3027 / √3.
    assert row["checkpoint 0"] == "62.0 [57.0, 67.0]"
    assert row["ReRnd"].startswith("124.0 [")
    assert (row["largest single"], row["sum of singles"], row["ratio"]) == ("2.0", "24.0", "1.00")


def test_one_seed_shows_its_interval_over_images():
    row = layers_joint_resnet.costs(tables("resnet50", seeds=1)).loc[("resnet50", OTHER)]
    assert row["checkpoint 0"] == "6.0 [4.5, 7.0]"


def test_later_blocks_are_listed_with_how_far_they_moved():
    found = layers_joint_resnet.blocks(tables("resnet18", "resnet50"))
    assert len(found) == 4 + 12
    assert found.loc[("resnet50", "stage3.resblk6")].to_list() == [2, 4, 0.3]


def test_random_groups_stand_beside_every_other_block():
    rows = [
        ("resnet50", seed, group, kind, 7, damage + seed, damage, damage)
        for seed in range(3)
        for group, kind, damage in (
            ("a", WITHOUT_FIRST, 10),
            ("b", WITHOUT_FIRST, 30),
            ("c", WITH_FIRST, 70),
        )
    ]
    columns = ["network", "seed", "group", "kind", "size", "damage", "low", "high"]
    made = tables("resnet50", "resnet26b")._replace(baseline=pd.DataFrame(rows, columns=columns))
    found = layers_joint_resnet.compared(made)
    assert found.loc[("resnet50", WITHOUT_FIRST)].to_list() == pytest.approx([6.2, 2, 21, 11, 31])
    assert found.loc[("resnet50", WITH_FIRST)].to_list() == pytest.approx([6.2, 1, 71, 71, 71])
    assert "resnet26b" not in found.index


def test_a_random_group_with_a_first_block_is_marked():
    kinds = tables("resnet50").baseline.set_index("group").kind
    for group, kind in kinds.items():
        has_first = any(name.endswith("resblk1") for name in group.split("+"))
        assert kind == (WITH_FIRST if has_first else WITHOUT_FIRST)


def test_the_figure_repeats_the_value_of_a_group_in_the_columns_of_its_members():
    fig = layers_joint_resnet.draw_groupings(tables("resnet50"))
    panels = {
        ax.get_title(): np.array([t.get_text() for t in ax.texts]).reshape(3, -1)[1]  # column 0
        for ax in fig.axes
        if len(ax.texts) == 3 * 19
    }
    titles = ["each layer alone", f"{LATER} together", f"{OTHER} together"]
    assert list(panels) == [f"resnet50: {title}" for title in titles]
    alone, later, other = panels.values()
    layers = layers_of("resnet50")
    assert alone[layers.index("stage1.resblk2")] == "0.12"
    for shown, group, text in ((later, LATER, "0.72"), (other, OTHER, "0.16")):
        members = set(layers_joint_resnet.groups(layers)[group])
        assert [layer in members for layer in layers] == [t == text for t in shown[:-1]]


@pytest.mark.parametrize("draw", ["draw_groupings", "draw_depths", "draw_alternatives"])
def test_figures_are_drawn_for_one_seed_and_several(draw):
    for seeds in (1, 3):
        fig = getattr(layers_joint_resnet, draw)(tables("resnet18", "resnet26b", seeds=seeds))
        fig.draw_without_rendering()


def test_measure_joins_single_layers_groups_and_random_groups(monkeypatch):
    calls = []

    def fake(specs, *, test_images, rerandomise, device, groups=None, checkpoints=None):
        layers = layers_of("resnet26b")
        names = list(layers if groups is None else groups(layers))
        calls.append((names, rerandomise, checkpoints))
        rows = [
            ("resnet26b", 0, name, column, 0.1, 0.0, 1.0, 0.5, 1.5)
            for name in [*names, "fullmodel"]
            for column in ("0", "8")
        ]
        columns = ["network", "seed", "layer", "column", "error", "sd", "damage", "low", "high"]
        return resetting.Tables(pd.DataFrame(rows, columns=columns), pd.DataFrame())

    monkeypatch.setattr(conv_resets, "measure", fake)
    found = layers_joint_resnet.measure([], 50, 2, 5, "cpu")
    assert [call[1:] for call in calls] == [(2, None), (2, None), (0, [0])]
    assert list(found.errors.layer.unique()) == [
        *layers_of("resnet26b"),
        "fullmodel",
        *layers_joint_resnet.GROUPS,
    ]
    assert not found.errors.duplicated(["layer", "column"]).any()
    assert set(found.baseline["size"]) == {4}
    assert set(found.baseline.kind) == {WITH_FIRST}
    assert layers_joint_resnet.measure([], 50, 2, 0, "cpu").baseline.empty


def test_only_residual_networks_have_such_groups():
    common = {"base_width": 2, "lr": 0.1, "epochs": 1, "train_images": 10, "seeds": 1}
    with pytest.raises(ValueError, match="ResNet"):
        layers_joint_resnet.specs(
            ["vgg16"], **common, warmup=0, augment=True, precision="float32", device="cpu"
        )
