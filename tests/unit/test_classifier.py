import math

import pytest
import torch
from torch import nn

from paperlib import networks
from paperlib.networks import mlp
from paperlib.networks.initialisers import INITIALISERS, initialise_


def test_a_network_of_3_hidden_layers_has_four_layers_by_the_papers_names():
    net = mlp(3, 256)
    assert networks.layers(net) == {
        f"layer{i}": [f"layer{i}.weight", f"layer{i}.bias"] for i in (1, 2, 3, 4)
    }
    assert sum(p.numel() for p in net.parameters()) == (
        785 * 256 + 2 * 257 * 256 + 257 * 10  # counted by hand: (fan-in + 1) × fan-out
    )
    assert isinstance(networks.build("mlp", hidden=1, width=4), nn.Sequential)


def test_it_computes_what_the_formula_says():
    net = mlp(1, 6, image_shape=(3, 2, 2), classes=4, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    x = torch.rand(5, 3, 2, 2)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    flat = ((x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)).reshape(5, 12)
    hidden = (flat @ net.layer1.weight.T + net.layer1.bias).relu()
    torch.testing.assert_close(net(x), hidden @ net.layer2.weight.T + net.layer2.bias)


def test_a_seed_fixes_the_network():
    first, again, other = (mlp(2, 8, seed).layer2.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_distances_of_redrawn_layers_are_those_of_the_papers_figure_1c():
    # Digitised from the ReRnd column of Fig. 1(c); within the spread of a maximum over seeds.
    a, b = mlp(3, 256, 0).state_dict(), mlp(3, 256, 1).state_dict()
    moved = [
        (a[f"layer{i}.weight"] - b[f"layer{i}.weight"]).abs().max().item() for i in range(1, 5)
    ]
    assert moved == pytest.approx([0.141, 0.246, 0.246, 0.235], abs=0.012)


def _drawn(initialiser, *shape):
    weight, bias = torch.empty(shape), torch.full(shape[:1], math.nan)
    initialise_(weight, bias, initialiser, torch.Generator().manual_seed(0))
    return weight, bias


def test_the_laws_have_their_spreads_and_bounds():
    fan_out, fan_in = 300, 400
    sd = fan_in**-0.5
    weight, bias = _drawn("lecun-truncated", fan_out, fan_in)
    assert 1.99 * sd < weight.abs().max() <= 2 * sd
    # A standard normal cut at ±2 has variance 1 − 4φ(2)/(2Φ(2) − 1).
    cut = 1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2))
    assert weight.std().item() == pytest.approx(sd * math.sqrt(cut), rel=0.01)
    assert not bias.any()

    weight, bias = _drawn("torch", fan_out, fan_in)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = nn.Linear(fan_in, fan_out)
    assert weight.std().item() == pytest.approx(theirs.weight.std().item(), rel=0.01)
    assert bias.std().item() == pytest.approx(theirs.bias.std().item(), rel=0.1)
    assert max(weight.abs().max(), bias.abs().max()) <= sd

    weight, bias = _drawn("glorot", fan_out, fan_in)
    assert weight.std().item() == pytest.approx(math.sqrt(2 / 700), rel=0.01)
    assert weight.abs().max() <= math.sqrt(6 / 700)
    assert not bias.any()

    weight, bias = _drawn("he", fan_out, fan_in)
    assert weight.std().item() == pytest.approx(math.sqrt(2 / 400), rel=0.01)
    assert not bias.any()


def test_the_fan_in_of_a_convolution_counts_its_window():
    weight, _ = _drawn("lecun-truncated", 64, 32, 3, 3)
    assert weight.abs().max().item() == pytest.approx(2 * (32 * 9) ** -0.5, rel=0.01)


@pytest.mark.parametrize("initialiser", INITIALISERS)
def test_drawing_leaves_the_global_generator_alone(initialiser):
    before = torch.get_rng_state()
    mlp(1, 4, initialiser=initialiser)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initialiser": "glorto"}, "did you mean 'glorot'"),
        ({"hidden": 0}, "hidden must be an integer of at least 1"),
        ({"width": 2.5}, "width"),
        ({"image_shape": (28, 28)}, r"image_shape must be \(C, H, W\)"),
        ({"image_shape": (3, 32, 32)}, "with C values in mean"),
    ],
)
def test_what_is_not_allowed_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        mlp(**{"hidden": 2, "width": 8} | options)
