"""Figs. 17-19 of `layers`: correlations and verdicts from tables made by hand."""

import math

import pandas as pd
import pytest

from paperlib.experiments import layers_distances
from paperlib.experiments.resetting import Tables

VGG = ["stage1.block1", "stage2.block1", "stage3.block1", "stage5.block1", "fc1"]
BLOCKS = [f"stage{s}.resblk{b}" for s in (1, 2) for b in (1, 2)]
RESNET = ["stage0", *BLOCKS, "final_linear"]

# Damage at checkpoint 0, ℓ2 and ℓ∞ distance at the end, by layer.
OF_VGG = {
    "stage1.block1": (50, 5, 1),
    "stage2.block1": (40, 4, 2),
    "stage3.block1": (30, 3, 3),
    "stage5.block1": (2, 2, 4),
    "fc1": (1, 1, 5),
}
# Ranks of the blocks' damages 4 1 3 2, of their distances 4 1 2 3: ρ = 1 − 6·2/(4·15) = 0.8.
OF_RESNET = {
    "stage0": (60, 0.1, 1),
    "stage1.resblk1": (40, 4, 1),
    "stage1.resblk2": (1, 1, 1),
    "stage2.resblk1": (30, 2, 1),
    "stage2.resblk2": (2, 3, 1),
    "final_linear": (0.5, 9, 1),
}


def tables(layers=OF_RESNET, seeds=3, configurations=("plain", "wd+bn"), early=0.5, final=0.4):
    """Tables of networks alike; `early` is the distance at checkpoint 1 over the final one, of all
    layers or by layer."""
    rows, moved = [], []
    for configuration in configurations:
        for seed in range(seeds):
            for layer, (points, l2, linf) in layers.items():
                share = early.get(layer, 0.5) if isinstance(early, dict) else early
                for column, part in (("0", 0), ("1", share), ("12", 1)):
                    own = {"0": points, "1": points / 2, "12": 0}[column]
                    ends = (final + own / 100, own, own - 1, own + 1)
                    rows.append((configuration, seed, layer, column, *ends))
                    sizes = (part * l2, part * linf, part * l2)
                    moved.append((configuration, seed, layer, column, *sizes))
            for column in ("0", "1", "12"):
                error = 0.9 if column != "12" else final
                whole = (error, 100 * (error - final), 0.0, 0.0)
                rows.append((configuration, seed, "fullmodel", column, *whole))
    names = ["configuration", "seed", "layer", "column"]
    return Tables(
        pd.DataFrame(rows, columns=[*names, "error", "damage", "low", "high"]),
        pd.DataFrame(moved, columns=[*names, "l2_fan_in", "linf", "relative"]),
    )


def verdicts(*args, dataset="cifar10", **options):
    return {v.id: v for v in layers_distances.judge(tables(*args, **options), dataset)}


def test_a_vgg_like_the_papers_holds():
    found = verdicts(OF_VGG, configurations=("plain",))["C17"]
    assert found.verdict == "holds"
    assert found.measured["spearman_l2"].value == pytest.approx(1)
    # Top layers: 4 and 5 in ℓ∞; all: median 3.
    assert found.measured["top_linf"].value == pytest.approx(4.5 / 3)


def test_two_norms_swapped_turn_the_verdict():
    swapped = {layer: (d, linf, l2) for layer, (d, l2, linf) in OF_VGG.items()}
    found = verdicts(swapped, configurations=("plain",))["C17"]
    assert found.verdict == "fails"
    assert found.measured["spearman_l2"].value == pytest.approx(-1)


def test_only_residual_blocks_are_correlated():
    found = verdicts()["C17b"]
    assert found.measured["spearman"].value == pytest.approx(0.8)
    assert found.verdict == "holds"
    rho = layers_distances.rhos(
        layers_distances.of(tables(), "plain"), "l2_fan_in", list(OF_RESNET)
    )
    # With stem and final layer, ranks 6 5 2 4 3 1 against 1 5 2 3 4 6: the sign turns.
    assert rho.to_list() == pytest.approx([1 - 6 * 52 / (6 * 35)] * 3)


def test_the_farthest_layer_at_checkpoint_1_is_judged():
    assert verdicts()["C16b"].verdict == "fails"
    found = verdicts(early={"stage2.resblk1": 3.0})["C16b"]
    assert found.verdict == "holds"
    assert found.measured["ratio"].value == pytest.approx(3)
    assert found.note == "Largest in stage2.resblk1; above 1 in 1 of 6 layers."


def test_what_is_missing_is_not_judged():
    found = verdicts(configurations=("plain",))
    assert (found["C16b"].verdict, found["C17b"].verdict) == ("not run", "holds")
    found = verdicts(configurations=("wd+bn",))
    assert found["C17b"].verdict == "not run"
    alike = {layer: (3, l2, linf) for layer, (_, l2, linf) in OF_RESNET.items()}
    assert verdicts(alike)["C17b"].verdict == "not run"
    assert {v.verdict for v in verdicts(final=0.89).values()} == {"not run"}


def test_one_seed_leaves_it_open_and_a_stand_in_judges_nothing():
    assert {v.verdict for v in verdicts(seeds=1).values()} == {"inconclusive"}
    found = verdicts(dataset="imagenet-standin")
    assert {id: v.verdict for id, v in found.items()} == {
        "C16b-imagenet": "not run",
        "C17b-imagenet": "not run",
    }
    assert verdicts(dataset="imagenet")["C17b-imagenet"].verdict == "holds"


def test_correlations_are_listed_by_configuration_group_and_distance():
    found = layers_distances.correlations(tables())
    assert len(found) == 2 * 2 * 3
    rows = found.set_index(["configuration", "layers", "distance"])
    assert rows.loc[("plain", "residual blocks", "l2_fan_in"), "rho"] == pytest.approx(0.8)
    assert math.isnan(rows.loc[("plain", "residual blocks", "linf"), "rho"])  # all moved alike
    of_vgg = layers_distances.correlations(tables(OF_VGG, configurations=("plain",)))
    assert of_vgg.rho.to_list() == pytest.approx([1, -1, 1])


def test_the_first_epoch_stands_beside_the_whole_training():
    found = layers_distances.early(tables(early={"stage0": 2.0}), "wd+bn").loc["stage0"]
    assert found.to_dict() == pytest.approx(
        {
            "damage 0": 60,
            "damage 1": 30,
            "moved by 1": 0.2,
            "moved by the end": 0.1,
            "ratio": 2,
            "∞ ratio": 2,
        }
    )


def test_layers_stand_beside_their_distances():
    found = layers_distances.by_layer(tables(seeds=1), "plain").loc["stage1.resblk1"]
    assert found.to_dict() == pytest.approx(
        {"damage": 40, "low": 39, "high": 41, "l2_fan_in": 4, "linf": 1, "relative": 4}
    )


def test_panels_are_lettered_as_in_the_paper():
    fig = layers_distances.draw(tables(), "cifar10")
    axes = [ax for part in fig.subfigs for ax in part.axes]
    titles = [ax.get_title() for ax in axes if ax.get_title()]
    assert [title[:3] for title in titles[:6]] == ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)"]
    assert titles[4] == "(e) 2-norm moved / √fan-in, weight decay and batch norm"
    assert titles[6:] == ["plain", "plain", "wd+bn", "wd+bn"]
    assert [ax.get_xlabel() for ax in axes[-4:]] == ["2-norm moved / √fan-in", "∞-norm moved"] * 2
