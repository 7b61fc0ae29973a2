"""Convolutional networks reset layer by layer: tables and heatmaps, from tables made by hand."""

import pandas as pd
import pytest

from paperlib.experiments import conv_resets
from paperlib.experiments.resetting import Tables

LAYERS = ["stage0", "stage1.resblk1", "stage1.resblk2", "final_linear"]


def grid(layers, columns=("ReRnd", "0", "100")):
    return pd.DataFrame(0.5, index=layers, columns=list(columns))


def tables(damages):
    """Tables of one network, a row of `damages` a seed; intervals over images are ± 1 point."""
    rows, moved = [], []
    for seed, by_layer in enumerate(damages):
        for layer, damage in zip(LAYERS, by_layer, strict=True):
            rows.append((seed, layer, "0", damage, damage - 1, damage + 1))
            moved += [(seed, layer, "0", 0.0), (seed, layer, "100", 0.1 * (seed + 1))]
    return Tables(
        pd.DataFrame(rows, columns=["seed", "layer", "column", "damage", "low", "high"]),
        pd.DataFrame(moved, columns=["seed", "layer", "column", "relative"]),
    )


def test_one_seed_has_the_interval_over_images():
    found = conv_resets.by_layer(tables([[50, 20, 1, 30]]))
    assert found.loc["stage0"].tolist() == pytest.approx([50, 49, 51, 0.1])


def test_several_seeds_have_their_own_interval():
    found = conv_resets.by_layer(tables([[50, 20, 1, 30], [54, 20, 1, 30]])).loc["stage0"]
    # t of one degree of freedom is 12.706; the standard error of 50 and 54 is 2.
    assert found.tolist() == pytest.approx([52, 52 - 25.41, 52 + 25.41, 0.15], abs=0.01)


def test_medians_split_the_layers_as_the_paper_does():
    found = conv_resets.medians(pd.DataFrame([[50.0, 20.0, 1.0, 30.0]], columns=LAYERS))
    assert found.loc[0].to_dict() == {"critical": 30, "robust": 1, "gap": 29}


def test_names_of_layers_are_short_and_all_there():
    layers = ["stage0", "stage2.block1", "stage3.resblk10", "fc1", "final_linear", "fullmodel"]
    fig = conv_resets.panels({"a": grid(layers)}, colours="Reds", high=0.9, label="test error")
    labels = [label.get_text() for label in fig.axes[0].get_xticklabels()]
    assert labels == ["stage0", "2.1", "3.10", "fc1", "final", "full"]


def test_a_heatmap_of_many_layers_names_all_of_them_and_prints_no_values():
    layers = ["stage0", *(f"stage3.resblk{i}" for i in range(1, 51)), "final_linear"]
    fig = conv_resets.panels({"a": grid(layers)}, colours="Reds", high=0.9, label="test error")
    assert len(fig.axes[0].get_xticklabels()) == 52
    assert not fig.axes[0].texts


def test_panels_share_a_scale_or_have_their_own():
    grids = {"a": grid(LAYERS), "b": 2 * grid(LAYERS)}
    shared, own = (
        conv_resets.panels(grids, colours="Reds", high=high, label="moved") for high in (2.0, None)
    )
    tops = [[ax.collections[0].get_clim()[1] for ax in fig.axes[:2]] for fig in (shared, own)]
    assert tops == [[2, 2], [0.5, 1]]
