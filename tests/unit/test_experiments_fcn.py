"""Fig. 1 of `layers`: verdicts from tables made by hand."""

import pandas as pd
import pytest

from paperlib.experiments import layers_fcn
from paperlib.experiments.resetting import Tables

LAYERS = ["layer1", "layer2", "layer3", "layer4", "fullmodel"]
FINAL = 0.02
# What the paper's Fig. 1 shows, by column.
PAPER = {
    "ReRnd": [0.9, 0.9, 0.9, 0.84, 0.9],
    "0": [0.38, 0.07, 0.02, 0.06, 0.9],
    "3": [0.03, 0.02, 0.02, 0.02, 0.03],
    "100": [FINAL] * 5,
}
MOVED = {"layer1": 0.13, "layer2": 0.09, "layer3": 0.08, "layer4": 0.48}


def tables(changes=None, moved=MOVED, seeds=5, columns=("ReRnd", "0", "3", "100")):
    """Tables of `seeds` networks, nearly alike; `changes` gives (layer, column) other errors."""
    rows = []
    for seed in range(seeds):
        for column in columns:
            for layer, error in zip(LAYERS, PAPER[column], strict=True):
                value = (changes or {}).get((layer, column), error) + 0.001 * (seed - 2)
                damage = 100 * (value - FINAL - 0.001 * (seed - 2))
                rows.append((seed, layer, column, value, 0.0, damage, damage, damage))
    names = ["seed", "layer", "column", "error", "sd", "damage", "low", "high"]
    distances = [
        {"seed": seed, "layer": layer, "column": "100"}
        | dict.fromkeys(("l2_fan_in", "l2_rms", "linf", "relative"), value)
        for seed in range(seeds)
        for layer, value in moved.items()
    ]
    return Tables(pd.DataFrame(rows, columns=names), pd.DataFrame(distances))


def verdicts(*args, **options):
    return {v.id: v for v in layers_fcn.judge(tables(*args, **options))}


def test_the_papers_own_figure_is_judged_as_it_claims():
    found = verdicts()
    assert {i: v.verdict for i, v in found.items()} == {
        "C1": "holds",
        "C2": "holds",
        "C3": "holds",
        "C5": "inconclusive",  # 5 of 5: Clopper-Pearson leaves 0.48
        "C20-fcn": "fails",
    }
    assert found["C2"].measured["gap"].value == pytest.approx(31)
    assert found["C20-fcn"].measured["share"].value == pytest.approx(0.36 / 0.88, abs=1e-3)


def test_many_seeds_settle_the_share():
    assert verdicts(seeds=40)["C5"].verdict == "holds"


def test_a_layer_that_moves_most_and_is_critical_contradicts():
    found = verdicts(moved=MOVED | {"layer1": 1.0}, seeds=40)["C5"]
    assert found.verdict == "fails"
    assert found.measured["share_l2"].value == 0


def test_two_layers_swapped_turn_the_verdict():
    changes = {("layer1", "0"): 0.07, ("layer2", "0"): 0.38}
    assert verdicts(changes)["C2"].verdict == "fails"


def test_a_reset_that_does_nothing_turns_the_verdicts():
    changes = {(layer, column): FINAL for layer in LAYERS for column in ("ReRnd", "0")}
    found = verdicts(changes)
    assert (found["C1"].verdict, found["C2"].verdict) == ("fails", "fails")


def test_one_layer_that_survives_fresh_values_refutes_c1():
    assert verdicts({("layer3", "ReRnd"): 0.5})["C1"].verdict == "fails"


def test_damage_that_stays_refutes_c3():
    assert verdicts({("layer1", "3"): 0.2})["C3"].verdict == "fails"


def test_one_seed_judges_nothing():
    found = verdicts(seeds=1)
    assert {found[i].verdict for i in ("C1", "C2", "C3", "C20-fcn")} == {"inconclusive"}


def test_one_seed_is_shown_without_an_interval():
    one = tables(seeds=1)
    assert layers_fcn.damages(one).loc["layer1", "0"] == "36.0 (one seed)"
    assert layers_fcn.correlations(one).rho["linf"] == "0.40 (one seed)"
    assert {v.id: v.ours for v in layers_fcn.judge(one)}["C2"] == "gap 31 (one seed: no interval)"


def test_networks_that_guess_are_not_judged():
    guessing = {(layer, column): 0.9 for layer in LAYERS for column in PAPER}
    found = verdicts(guessing)
    assert {v.verdict for v in found.values()} == {"not run"}
    assert found["C2"].reason.startswith("5 of 5 networks never learned")


def test_too_short_a_training_is_not_judged():
    found = verdicts(columns=("0", "100"))
    assert (found["C1"].verdict, found["C3"].verdict) == ("not run", "not run")


def test_beside_the_paper_stand_ours_with_their_range():
    row = layers_fcn.beside_paper(tables()).loc["layer1"]
    assert row.to_list() == pytest.approx([0.38, 0.378, 0.382, 0.38])
    assert layers_fcn.beside_paper(tables()).loc["final", "paper"] == 0.019


def test_damages_are_given_with_intervals():
    assert layers_fcn.damages(tables()).loc["layer1", "0"] == "36.0 [36.0, 36.0]"


def test_distances_are_ranked_against_damage():
    # Ranks by damage: layers 3, 4, 2, 1 from least to most; by distance 3, 2, 1, 4:
    # 1 − 6 (1 + 1 + 0 + 4)/60.
    assert layers_fcn.correlations(tables()).rho["linf"] == "0.40 [0.40, 0.40]"


def test_the_figure_shows_ours_beside_the_papers():
    fig = layers_fcn.draw(tables(columns=("ReRnd", "0", "3", "100")))
    panels = fig.axes
    texts = [text.get_text() for text in panels[0].texts]
    assert texts[:4] == ["0.90", "0.38", "0.03", "0.02"]
    assert "0.38" in [text.get_text() for text in panels[1].texts]
