"""What a heatmap shows: every value in its cell, in the order of the table."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from paperlib.report.heatmap import DISTANCE, ERROR, heatmap

TABLE = pd.DataFrame(
    [[0.9, 0.38, 0.019], [0.84, 0.06, np.nan], [0.9, 0.9, 0.02]],
    index=["layer1", "layer2", "fullmodel"],
    columns=["ReRnd", "0", "100"],
)


def drawn(table=TABLE, **options):
    ax = Figure().subplots()
    heatmap(ax, table, **({"colours": ERROR, "high": 0.9} | options))
    return ax


def test_values_stand_in_their_cells():
    ax = drawn()
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert texts[(0.5, 0.5)] == "0.90"
    assert texts[(1.5, 0.5)] == "0.38"
    assert texts[(1.5, 1.5)] == "0.06"
    assert (2.5, 1.5) not in texts, "a missing value has no text"


def test_layers_and_checkpoints_keep_their_order_and_names():
    ax = drawn()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["ReRnd", "0", "100"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["layer1", "layer2", "fullmodel"]
    assert ax.yaxis_inverted(), "the first layer is on top"


def test_rerandomisation_and_the_full_model_are_set_apart():
    white = [line for line in drawn().lines if to_rgb(line.get_color()) == (1, 1, 1)]
    assert [line.get_xdata()[0] for line in white[:1]] == [1]
    assert [line.get_ydata()[0] for line in white[1:]] == [2]
    assert drawn(TABLE.drop(columns="ReRnd").drop(index="fullmodel")).lines[:] == []


def test_panels_share_a_scale():
    for colours in (ERROR, DISTANCE):
        mesh = drawn(colours=colours, high=2.0, digits=None).collections[0]
        assert mesh.get_clim() == (0, 2)
        lightness = mesh.get_cmap()(np.linspace(0, 1, 9))[:, :3] @ [0.2126, 0.7152, 0.0722]
        assert (np.diff(lightness) < 0).all(), "darker means more, in grey too"


def test_values_can_be_left_out():
    assert not drawn(digits=None).texts


@pytest.mark.parametrize("bar", ["", "test error"])
def test_a_colour_bar_is_there_if_it_has_a_label(bar):
    axes = drawn(bar=bar).get_figure().axes
    assert [ax.get_ylabel() for ax in axes[1:]] == ([bar] if bar else [])
