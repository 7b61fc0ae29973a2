"""Fig. 3 of `layers`: verdicts and tables from tables made by hand."""

import pandas as pd
import pytest

from paperlib.experiments import conv_resets, layers_vgg
from paperlib.experiments.layers_vgg import Tables

# What the paper's figure of VGG-11 shows, by layer: ReRnd and checkpoint 0.
FINAL = 0.116
PAPER = {
    "stage1.block1": (0.88, 0.68),
    "stage2.block1": (0.90, 0.74),
    "stage3.block1": (0.90, 0.90),
    "stage3.block2": (0.88, 0.78),
    "stage4.block1": (0.90, 0.50),
    "stage4.block2": (0.90, 0.22),
    "stage5.block1": (0.90, 0.14),
    "stage5.block2": (0.84, 0.14),
    "fc1": (0.86, FINAL),
    "fc2": (0.90, FINAL),
    "final_linear": (0.74, FINAL),
    "fullmodel": (0.90, 0.90),
}
COLUMNS = ("ReRnd", "0", "100")


def tables(changes=None, seeds=3, columns=COLUMNS, networks=("vgg11",), final=FINAL):
    """Tables of networks nearly alike; `changes` gives (network, layer, column) other errors."""
    rows, moved = [], []
    for network in networks:
        for seed in range(seeds):
            for layer, (drawn, initial) in PAPER.items():
                for column, error in zip(COLUMNS, (drawn, initial, final), strict=True):
                    if column not in columns:
                        continue
                    value = (changes or {}).get((network, layer, column), error)
                    value += 0.001 * (seed - 1)
                    damage = 100 * (value - final - 0.001 * (seed - 1))
                    rows.append((network, seed, layer, column, value, damage, damage, damage))
                moved.append((network, seed, layer, columns[-1], 0.5))
    names = ["network", "seed", "layer", "column", "error", "damage", "low", "high"]
    return Tables(
        pd.DataFrame(rows, columns=names),
        pd.DataFrame(moved, columns=["network", "seed", "layer", "column", "relative"]),
        pd.DataFrame(
            [(n, s, e, 0.3, 0.2 / e) for n in networks for s in range(seeds) for e in (1, 2)],
            columns=["network", "seed", "epoch", "loss", "error"],
        ),
    )


def verdicts(*args, **options):
    return {v.id: v for v in layers_vgg.judge(tables(*args, **options))}


def test_the_papers_own_figure_holds():
    found = verdicts()
    assert {i: v.verdict for i, v in found.items()} == {"C7": "holds", "C20-vgg": "holds"}
    # Medians: (0.74 + 0.78)/2 of stages 1-3, and 0.116 of the five layers on top.
    assert found["C7"].measured["gap"].value == pytest.approx(64.4)
    assert found["C7"].measured["rerandomised"].value == pytest.approx(62.4)
    assert found["C20-vgg"].measured["share"].value == pytest.approx(0.644 / 0.784, rel=1e-3)


def test_one_seed_settles_nothing():
    assert {v.verdict for v in verdicts(seeds=1).values()} == {"inconclusive"}


def test_one_layer_that_survives_fresh_values_refutes_c7():
    assert verdicts({("vgg11", "fc1", "ReRnd"): 0.3})["C7"].verdict == "fails"


def test_the_network_against_the_claim_decides():
    changes = {("vgg13", layer, "0"): 0.12 for layer in PAPER if layer[:6] in ("stage1", "stage3")}
    found = verdicts(changes, networks=("vgg11", "vgg13"))
    assert {v.verdict for v in found.values()} == {"fails"}


def test_networks_that_learned_nothing_are_not_judged():
    found = verdicts(final=0.88)
    assert {v.verdict for v in found.values()} == {"not run"}
    assert "never learned" in found["C7"].reason


def test_without_draws_c7_is_not_judged():
    found = verdicts(columns=("0", "100"))
    assert (found["C7"].verdict, found["C20-vgg"].verdict) == ("not run", "holds")


def test_groups_cover_all_layers():
    found = {layer: layers_vgg.group(layer) for layer in PAPER if layer != "fullmodel"}
    assert [list(found.values()).count(g) for g in layers_vgg.GROUPS] == [4, 2, 2, 3]


def test_medians_by_group():
    found = layers_vgg.by_group(tables())
    assert found.loc[("vgg11", "stage 4"), "0"] == pytest.approx(100 * (0.36 - FINAL))
    assert found.loc[("vgg11", "fc layers"), "ReRnd"] == pytest.approx(100 * (0.86 - FINAL))
    assert list(found.columns) == ["ReRnd", "0"]


def test_the_papers_values_stand_beside_ours():
    found = layers_vgg.beside_paper(tables())
    assert found.loc["stage1.block1", "0"] == pytest.approx(0.68)
    assert found.loc["stage1.block1", "0*"] == "0.64-0.71"
    assert found.loc["final", "0"] == pytest.approx(FINAL)
    assert found.loc["final", "ReRnd*"] == "0.116"


def test_without_vgg11_the_papers_values_stand_alone():
    found = layers_vgg.beside_paper(tables(networks=("vgg16",)))
    assert list(found) == ["ReRnd*", "0*", "1*", "10*"]


def test_final_errors_are_of_the_last_epoch():
    made = tables()
    found = conv_resets.finals(made.errors, made.curves)
    assert found.loc["vgg11", "test error"] == pytest.approx(FINAL)
    assert found.loc["vgg11", "training error"] == pytest.approx(0.1)


def test_the_figure_has_a_heatmap_and_a_scatter_a_network():
    fig = layers_vgg.draw(tables(networks=("vgg11", "vgg13")))
    titles = [ax.get_title() for ax in fig.axes]
    assert sorted(filter(None, titles)) == ["VGG-11", "VGG-11", "VGG-13", "VGG-13"]
