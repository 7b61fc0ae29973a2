"""Fig. 11 of `layers`: groups against plain forward passes, verdicts from tables made by hand."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from paperlib import networks
from paperlib.experiments import layers_joint, resetting
from paperlib.experiments.layers_joint import FIRST, OTHER, RELATIVE, THIRDS, Tables
from paperlib.report.heatmap import ERROR, heatmap
from paperlib.robustness import resets
from paperlib.training import data
from paperlib.training.data import Images

LAYERS = [f"layer{i}" for i in range(1, 7)]
# Damage at initial values, in points, of three networks.
DAMAGE = {
    "layer1": [30, 32, 34],
    "layer2": [1, 2, 3],
    "layer3": [0, 1, 0],
    "layer4": [2, 1, 1],
    "layer5": [0, 0, 0],
    "layer6": [1, 4, 2],
    FIRST: [50, 60, 70],
    THIRDS: [20, 30, 40],
    OTHER: [5, 6, 7],
    "fullmodel": [88, 88, 88],
}
FINAL = 0.02


def tables(changes=None, seeds=3):
    """Tables of `seeds` networks with DAMAGE, but for `changes`; every group of the survey that
    has layer 1 costs 50 points, any other 10 points a layer, less what the greedy search saves."""
    rows = []
    for layer, values in (DAMAGE | (changes or {})).items():
        for seed, damage in zip(range(seeds), values, strict=False):
            for column, points in (("ReRnd", 88.0), ("0", float(damage)), ("8", 0.0)):
                error = FINAL + points / 100
                rows.append((seed, layer, column, error, 0.0, points, points, points))
    names = ["seed", "layer", "column", "error", "sd", "damage", "low", "high"]
    kinds = [("any", group) for group in layers_joint.survey(LAYERS, 20)]
    kinds += layers_joint.patterns(LAYERS).items()
    groups = [
        (seed, kind, len(group), "+".join(group), 50.0 if "layer1" in group else 10.0 * len(group))
        for seed in range(seeds)
        for kind, group in kinds
    ]
    order = ["layer5", "layer3", "layer2", "layer4", "layer6", "layer1"]
    greedy = [
        (seed, size, order[size - 1], "+".join(sorted(order[:size])), size - 1.0, size + seed)
        for seed in range(seeds)
        for size in range(1, 7)
    ]
    return Tables(
        pd.DataFrame(rows, columns=names),
        pd.DataFrame(groups, columns=["seed", "kind", "size", "group", "damage"]),
        pd.DataFrame(greedy, columns=["seed", "size", "added", "group", "seen", "damage"]),
    )


def verdicts(*args, **options):
    return {v.id: v for v in layers_joint.judge(tables(*args, **options))}


def test_robust_alone_and_not_together_is_judged_as_claimed():
    found = verdicts()
    assert {id: v.verdict for id, v in found.items()} == {"C10-fcn": "holds", "C11-fcn": "holds"}
    excess = found["C10-fcn"].measured["excess"]
    assert excess.value == pytest.approx(((50 - 2) + (60 - 4) + (70 - 3)) / 3)
    # t of two degrees of freedom: 4.3027; s.d. of 48, 56, 67 is 9.539.
    assert excess.low == pytest.approx(57 - 4.3027 * 9.539 / 3**0.5, abs=0.01)
    ratio = found["C11-fcn"].measured["ratio"]
    assert ratio.value == pytest.approx((5 / 50 + 6 / 60 + 7 / 70) / 3)
    assert found["C11-fcn"].note == "Two in three layers, beside it: 0.4905 [0.2766, 0.7044]."


def test_one_critical_layer_in_the_group_refutes_c10():
    changes = {"layer1": DAMAGE["layer2"], "layer2": [48, 57, 66]}
    assert verdicts(changes)["C10-fcn"].verdict == "fails"


def test_layer_1_plays_no_part():
    found = verdicts({"layer1": [88, 88, 88]})
    assert found["C10-fcn"].measured == verdicts()["C10-fcn"].measured


def test_two_patterns_swapped_turn_the_verdict():
    changes = {FIRST: DAMAGE[OTHER], OTHER: DAMAGE[FIRST]}
    found = verdicts(changes)
    assert (found["C10-fcn"].verdict, found["C11-fcn"].verdict) == ("fails", "fails")


def test_networks_that_disagree_leave_it_open():
    found = verdicts({FIRST: [5, 40, 90], OTHER: [1, 2, 60]})
    assert {v.verdict for v in found.values()} == {"inconclusive"}
    assert {v.verdict for v in verdicts(seeds=1).values()} == {"inconclusive"}


def test_without_joint_damage_there_is_no_ratio():
    found = verdicts({FIRST: [0, 1, 2]})
    assert (found["C10-fcn"].verdict, found["C11-fcn"].verdict) == ("fails", "not run")
    assert layers_joint.ratios(tables({FIRST: [0, 1, 2]}))[RELATIVE].to_list() == ["", "", ""]


def test_the_patterns_stand_beside_their_worst_member():
    found = layers_joint.ratios(tables())
    assert found.layers.to_list() == ["2, 3, 4, 5, 6", "2, 3, 5, 6", "2, 4, 6"]
    assert found.loc[OTHER, "damage"] == "6.0 [3.5, 8.5]"
    assert found.loc[OTHER, "sum of singles"].startswith("5.7 [")  # of 4, 7 and 6
    assert found.loc[FIRST, "largest single"] == "3.0 [0.5, 5.5]"  # of 2, 4 and 3
    assert found.loc[THIRDS, "largest single"].startswith("2.7 [")  # without layer 4
    assert found.loc[FIRST, RELATIVE] == "1.00 [1.00, 1.00]"


def test_the_survey_has_every_group_or_so_many_of_a_size():
    every = layers_joint.survey(LAYERS, 20)
    assert len(set(every)) == len(every) == 2**6 - 1
    few = layers_joint.survey(LAYERS, 4)
    assert [sum(len(group) == size for group in few) for size in range(1, 7)] == [4, 4, 4, 4, 4, 1]
    assert set(few) < set(every)
    assert few == layers_joint.survey(LAYERS, 4) != layers_joint.survey(LAYERS, 4, seed=1)


def test_the_search_is_summed_up_by_size():
    row = layers_joint.searched(tables()).loc[2]
    assert row.added == "3 (3×)"
    assert row.seen == "1.0 [1.0, 1.0]"
    assert row.greedy == "3.0 [0.5, 5.5]"
    assert row["survey's best"] == "20.0 [20.0, 20.0]"
    # 5 of the 15 pairs have layer 1.
    assert row["survey's mean"] == "30.0 [30.0, 30.0]"


def test_beside_the_paper_stand_ours_with_their_range():
    found = layers_joint.beside_paper(tables())
    assert found.index.to_list() == [*LAYERS, "final"]
    assert found.loc["layer1"].to_list() == pytest.approx([0.34, 0.32, 0.36, "0.54-0.60"])
    assert found.loc["final", "ours"] == pytest.approx(FINAL)


def test_the_figure_repeats_the_value_of_a_group_in_the_rows_of_its_members():
    fig = layers_joint.draw(tables())
    first = {
        ax.get_title(): [text.get_text() for text in ax.texts][1::3]  # column 0, a text a row
        for ax in fig.axes[:4]
    }
    assert first == {
        "each layer alone": ["0.34", "0.04", "0.02", "0.03", "0.02", "0.04", "0.90"],
        "(a) all but first together": ["0.34", *["0.62"] * 5, "0.90"],
        "(b) two in three together": ["0.34", "0.32", "0.32", "0.03", "0.32", "0.32", "0.90"],
        "(c) every other together": ["0.34", "0.08", "0.02", "0.08", "0.02", "0.08", "0.90"],
    }
    bold = [label.get_fontweight() == "bold" for label in fig.axes[3].get_yticklabels()]
    assert bold == [False, True, False, True, False, True, False]


def test_a_heatmap_of_more_layers_than_names_has_its_brackets():
    layers = [f"layer{k}" for k in range(1, 31)]
    fig = Figure(figsize=(4, 1.5))
    ax = fig.subplots()
    heatmap(ax, pd.DataFrame(0.5, layers, ["0", "8"]), colours=ERROR, high=1)
    assert len(ax.get_yticklabels()) < len(layers)
    layers_joint._bracket(ax, {"layer1": 0, "layer2": 1, "layer30": 29})
    bold = {text.get_text() for text in ax.get_yticklabels() if text.get_fontweight() == "bold"}
    assert "layer1" in bold and bold <= {"layer1", "layer2", "layer30"}
    assert len(ax.lines) == 4


def test_networks_that_guess_are_not_judged():
    made = tables()
    made.errors["error"] = 0.9
    assert {v.verdict for v in layers_joint.judge(made)} == {"not run"}


def test_no_groups_are_refused_before_anything_is_trained():
    with pytest.raises(ValueError, match="most_groups must be an integer of at least 1; got 0"):
        layers_joint.measure([fake_run(3).spec], 50, 0, 0, "cpu")


def test_shares_of_seeds_are_those_of_the_greedy_groups():
    made = tables()
    swapped = made.greedy.group.mask((made.greedy.seed == 0) & (made.greedy["size"] == 1), "layer6")
    fig = layers_joint.draw(made._replace(greedy=made.greedy.assign(group=swapped)))
    panel = next(ax for ax in fig.axes if ax.get_title().startswith("(e)"))
    assert [text.get_text() for text in panel.texts][::6] == [
        *("0.00", "0.00", "0.00", "0.00", "0.67", "0.33")
    ]


OPTIONS = {"hidden": 2, "width": 6, "image_shape": (1, 3, 3), "classes": 4}


def fake_run(seed, store=None):
    """A "trained" run whose two checkpoints are fresh networks of other seeds."""

    def build(at=seed):
        return networks.build("mlp", seed=at, **OPTIONS)

    states = {epoch: build(100 * epoch + seed).state_dict() for epoch in (0, 4)}

    def model():
        network = build()
        network.load_state_dict(states[4])
        return network.eval()

    spec = SimpleNamespace(seed=seed, data="tiny", build=build, hash=f"run {seed}")
    return SimpleNamespace(
        spec=spec,
        epochs=[0, 4],
        state=states.get,
        model=model,
        folder=store,
        digest=lambda epoch: f"state {epoch} of {seed}",
    )


@pytest.fixture
def images(monkeypatch, tmp_path):
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (50, 1, 3, 3), generator=rng, dtype=torch.uint8)
    labels = torch.randint(4, (50,), generator=rng)
    tiny = Images(pixels, labels, "tiny", data.checksum(pixels, labels))
    found = {seed: fake_run(seed, tmp_path) for seed in (3, 8)}
    for module in (layers_joint, resetting):
        monkeypatch.setattr(module.runs, "get", lambda spec, device: found[spec.seed])
        monkeypatch.setattr(module.data, "load", lambda name, split, limit: tiny)
    return tiny


def damage_of(run, group, images, part):
    """Damage of a joint reset to initial values, by whole forward passes over part of the images"""
    names = [n for layer in group.split("+") for n in networks.layers(run.model())[layer]]
    wrong = []
    for state in (resets.reinitialise(run.state(4), run.state(0), names), run.state(4)):
        network = run.model()
        network.load_state_dict(state)
        with torch.no_grad():
            answers = network(data.as_input(images.images[part])).argmax(1)
        wrong.append(float((answers != images.labels[part]).double().mean()))
    return pytest.approx(100 * (wrong[0] - wrong[1]))


def test_every_group_costs_what_the_reset_network_costs(images):
    found = layers_joint.measure([fake_run(3).spec, fake_run(8).spec], 50, 0, 20, "cpu")
    initial = resetting.at(found.errors, "0")
    for seed in (3, 8):
        run = fake_run(seed)
        assert initial.loc[seed, FIRST] == damage_of(run, "layer2+layer3", images, slice(None))
        groups = found.groups[found.groups.seed == seed]
        assert groups.kind.to_list() == ["any"] * 7 + [FIRST, THIRDS, OTHER]
        for row in groups.itertuples():
            assert row.damage == damage_of(run, row.group, images, slice(1, None, 2))
        for row in found.greedy[found.greedy.seed == seed].itertuples():
            assert row.seen == damage_of(run, row.group, images, slice(0, None, 2))
            assert row.damage == damage_of(run, row.group, images, slice(1, None, 2))


def test_groups_are_chosen_on_other_images_than_those_that_judge_them(images):
    spec = fake_run(3).spec
    before = layers_joint.measure([spec], 50, 0, 20, "cpu").greedy
    images.labels[1::2] = (images.labels[1::2] + 1) % 4
    after = layers_joint.measure([spec], 50, 0, 20, "cpu").greedy
    pd.testing.assert_frame_equal(before.drop(columns="damage"), after.drop(columns="damage"))
    assert not before.damage.equals(after.damage)
