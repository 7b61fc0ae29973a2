import math

import pandas as pd
import pytest
import torch
from torch import nn

from paperlib.robustness.distances import KINDS, distance, rank_correlation, table
from paperlib.robustness.resets import fresh

ORIGIN = {
    "0.weight": torch.zeros(2, 4),
    "0.bias": torch.tensor([3.0, 4.0]),
    "1.weight": torch.ones(2),
    "1.running_mean": torch.zeros(2),
    "1.num_batches_tracked": torch.tensor(0),
}
MOVED = {
    "0.weight": torch.full((2, 4), 0.5),
    "0.bias": torch.tensor([3.0, 2.0]),
    "1.weight": torch.tensor([1.0, 4.0]),
    "1.running_mean": torch.full((2,), 100.0),
    "1.num_batches_tracked": torch.tensor(7),
}


@pytest.mark.parametrize(
    ("kind", "names", "expected"),
    [
        ("linf", ["0.weight"], 0.5),
        ("linf", ["0.weight", "0.bias"], 2.0),
        ("l2_rms", ["0.weight"], 0.5),
        ("l2_rms", ["0.weight", "0.bias"], math.sqrt((8 * 0.25 + 4) / 10)),
        ("l2_fan_in", ["0.weight", "0.bias"], math.sqrt(8 * 0.25 / 4 + 4 / 4)),
        ("l2_fan_in", ["1.weight"], 3.0),
        ("relative", ["0.weight", "0.bias"], math.sqrt(6) / 5),
    ],
)
def test_distances_by_hand(kind, names, expected):
    assert distance(MOVED, ORIGIN, names, kind) == pytest.approx(expected, rel=1e-15)


def test_fan_in_of_a_convolution_counts_its_window():
    origin = {"conv.weight": torch.zeros(5, 3, 2, 2), "conv.bias": torch.zeros(5)}
    moved = {"conv.weight": torch.ones(5, 3, 2, 2), "conv.bias": torch.ones(5)}
    found = distance(moved, origin, list(origin), "l2_fan_in")
    assert found == pytest.approx(math.sqrt(5 * 12 / 12 + 5 / 12))


@pytest.mark.parametrize("kind", KINDS)
def test_running_statistics_do_not_count(kind):
    layer = ["1.weight", "1.running_mean", "1.num_batches_tracked"]
    assert distance(MOVED, ORIGIN, layer, kind) == distance(MOVED, ORIGIN, ["1.weight"], kind)
    with pytest.raises(ValueError, match="no parameters to measure"):
        distance(MOVED, ORIGIN, layer[1:], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_at_no_distance_from_itself_and_prefixes_do_not_matter(kind):
    names = ["0.weight", "0.bias"]
    assert distance(ORIGIN, ORIGIN, names, kind) == 0
    wrapped = {f"_orig_mod.{name}": t for name, t in MOVED.items()}
    assert distance(wrapped, ORIGIN, names, kind) == distance(MOVED, ORIGIN, names, kind)


def test_a_layer_that_started_at_zero_has_no_relative_distance():
    assert math.isnan(distance(MOVED, ORIGIN, ["0.weight"], "relative"))


def test_unknown_kinds_tensors_and_states_are_refused():
    with pytest.raises(ValueError, match="did you mean 'linf'"):
        distance(MOVED, ORIGIN, ["0.weight"], "l_inf")
    with pytest.raises(ValueError, match=r"no tensor is named 2\.weight"):
        distance(MOVED, ORIGIN, ["2.weight"], "linf")
    with pytest.raises(ValueError, match=r"missing: 0\.weight"):
        distance({n: t for n, t in MOVED.items() if n != "0.weight"}, ORIGIN, ["0.bias"], "linf")


def build(seed: int) -> nn.Linear:
    return nn.Linear(3, 2)


def test_the_table_has_a_row_a_layer_and_the_mean_over_draws_first():
    states = {epoch: fresh(build, epoch + 10) for epoch in (4, 0, 1)}
    layers = {"layer1": ["weight", "bias"]}
    found = table(states, layers, "linf", build=build, rerandomise=3, seed=5)
    assert list(found.columns) == ["ReRnd", 0, 1, 4]
    assert found.loc["layer1", 0] == 0
    assert found.loc["layer1", 4] == distance(states[4], states[0], layers["layer1"], "linf")
    draws = [distance(fresh(build, 5, i), states[0], ["weight", "bias"], "linf") for i in range(3)]
    assert found.loc["layer1", "ReRnd"] == pytest.approx(sum(draws) / 3)
    assert list(table(states, layers, "linf").columns) == [0, 1, 4]
    with pytest.raises(ValueError, match=r"epoch 0; the states are of \[1, 4\]"):
        table({1: states[1], 4: states[4]}, layers, "linf")


def test_re_randomised_layers_are_as_far_away_as_in_the_figure():
    """Fig. 1(c), ReRnd: 0.141 and 0.246; truncated normal at 2σ, σ = 1/√fan-in (digitised)."""

    def truncated(seed: int) -> nn.Module:
        net = nn.Sequential(nn.Linear(784, 256), nn.Linear(256, 256))
        for linear in net:
            sigma = linear.in_features**-0.5
            nn.init.trunc_normal_(linear.weight, std=sigma, a=-2 * sigma, b=2 * sigma)
            nn.init.zeros_(linear.bias)
        return net

    layers = {"layer1": ["0.weight", "0.bias"], "layer2": ["1.weight", "1.bias"]}
    states = {0: fresh(truncated, 1)}
    linf = table(states, layers, "linf", build=truncated, rerandomise=2)["ReRnd"]
    assert linf.tolist() == pytest.approx([0.141, 0.246], abs=0.004)
    # E‖Δ‖²/fan-in = 2 · 0.774 σ² · (256 × fan-in)/fan-in; the cut normal's variance is 0.774 σ².
    fan_in = table(states, layers, "l2_fan_in", build=truncated, rerandomise=2)["ReRnd"]
    expected = [math.sqrt(2 * 0.774 * 256 / 784), math.sqrt(2 * 0.774)]
    assert fan_in.tolist() == pytest.approx(expected, rel=0.01)


def test_rank_correlation_goes_by_layer_and_not_by_order():
    damage = pd.Series({"layer1": 40.0, "layer2": 5.0, "layer3": 0.0, "layer4": 4.0})
    moved = pd.Series({"layer2": 0.09, "layer1": 0.13, "layer4": 0.48, "layer3": 0.08})
    # Ranks 4 3 1 2 and 3 2 1 4: 1 - 6·(1 + 1 + 0 + 4)/(4·15).
    assert rank_correlation(damage, moved) == pytest.approx(0.4)


def test_rank_correlation_is_not_made_up():
    layers = ["layer1", "layer2", "layer3"]
    damage, moved = pd.Series([1.0, 1.0, 1.0], layers), pd.Series([1.0, 2.0, 3.0], layers)
    assert math.isnan(rank_correlation(damage, moved))
    with pytest.raises(ValueError, match="distance of"):
        rank_correlation(damage, moved.rename({"layer1": "layer9"}))
    with pytest.raises(ValueError, match="three layers"):
        rank_correlation(damage[:2], moved[:2])
