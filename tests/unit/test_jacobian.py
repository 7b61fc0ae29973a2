import math

import numpy as np
import pytest
import torch
from scipy import stats

from paperlib.length import blocks, jacobian, theory
from paperlib.networks import laws


def rebuild(widths, nets, seed):
    """The networks, directions and points that the samplers draw in their first block."""
    rng = laws.generator(seed, 0)
    directions = blocks.random_frames(rng, nets, widths[0], 1)[:, :, 0]
    points = torch.randn(nets, widths[0], dtype=torch.float64, generator=rng)
    return directions, points, list(blocks.random_layers(rng, widths, nets))


def jacobians(layers, net, point):
    """Jacobians at `point` of the first 1, 2, …, L layers of a network, by autograd."""
    found = []
    for depth in range(1, len(layers) + 1):

        def forward(x, depth=depth):
            for layer in layers[:depth]:
                x = layer.weight[net] @ x + layer.bias[net]
                x = x.relu() if layer.gated else x
            return x

        found.append(torch.autograd.functional.jacobian(forward, point))
    return found


def test_layer_norms_and_growth_equal_autograd():
    widths, nets, seed = [4, 6, 5, 3], 15, 2
    norms = jacobian.sample_layer_norms(widths, nets, seed)
    growth = jacobian.worst_case_growth(widths, nets, seed)
    directions, points, layers = rebuild(widths, nets, seed)
    for net in range(nets):
        chain = jacobians(layers, net, points[net])
        along = torch.stack([torch.linalg.vector_norm(J @ directions[net]) for J in chain])
        torch.testing.assert_close(norms[net].cumprod(0), along, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(growth.direction[net], along, rtol=1e-9, atol=1e-12)
        spectral = torch.stack([torch.linalg.matrix_norm(J, 2) for J in chain])
        torch.testing.assert_close(growth.jacobian[net], spectral, rtol=1e-6, atol=1e-7)


def test_worst_case_is_the_product_of_the_layers_spectral_norms():
    growth = jacobian.worst_case_growth([4, 6, 3], 10, 5)
    _, points, (first, second) = rebuild([4, 6, 3], 10, 5)
    for net in range(10):
        gates = first.weight[net] @ points[net] + first.bias[net] > 0
        norms = [
            torch.linalg.matrix_norm(first.weight[net] * gates[:, None], 2),
            torch.linalg.matrix_norm(second.weight[net], 2),
        ]
        expected = torch.stack(norms).cumprod(0)
        torch.testing.assert_close(growth.worst[net], expected, rtol=1e-6, atol=1e-7)
    assert (growth.direction <= growth.jacobian * (1 + 1e-9)).all()
    assert (growth.jacobian <= growth.worst * (1 + 1e-9)).all()


def test_norm_of_the_jacobian_has_the_law_of_lemma_c2():
    widths = [5, 20, 20, 20, 5]
    sampled = jacobian.sample_layer_norms(widths, 4000, 1).prod(dim=1)
    drawn = jacobian.sample_product_law(widths, 4000, 2)
    assert stats.ks_2samp(sampled.numpy(), drawn.numpy()).pvalue > 1e-3
    for sample in (sampled, drawn):
        error = (sample.std() / math.sqrt(len(sample))).item()
        assert sample.mean().item() == pytest.approx(theory.mean_length(widths), abs=3.5 * error)


def test_factors_of_different_layers_are_uncorrelated_even_in_narrow_networks():
    norms = jacobian.sample_layer_norms([3, 3, 3, 3, 3], 4000, 6)
    correlation = np.corrcoef(norms.numpy().T)
    assert np.abs(correlation - np.eye(4)).max() < 4 / math.sqrt(4000)
    # Also behind a dead layer: width 3 is off with probability 1/8.
    assert (norms[:, 0] == 0).double().mean().item() == pytest.approx(1 / 8, abs=0.02)
    survivors = norms[norms[:, 0] == 0][:, 1]
    assert (survivors == 0).double().mean().item() == pytest.approx(1 / 8, abs=0.06)


def test_layer_fluctuations_are_root_five_over_four_n():
    logs = jacobian.sample_layer_norms([100, 100, 100], 4000, 0)[:, 0].log()
    assert logs.std().item() == pytest.approx(math.sqrt(5 / 400), rel=0.05)


def test_product_law_of_width_one_by_hand():
    # One hidden unit: off half of the time, else 2 χ²_1 χ²_1.
    sample = jacobian.sample_product_law([1, 1, 1], 40_000, 0)
    assert (sample == 0).double().mean().item() == pytest.approx(0.5, abs=0.01)
    assert sample.mean().item() == pytest.approx(math.sqrt(2) / math.pi, rel=0.03)


def test_overlaps_are_those_of_uniform_vectors():
    overlaps = jacobian.singular_overlaps(20, 2000, 3)
    assert overlaps.shape == (2000,)
    uniform = stats.beta(0.5, 19 / 2)
    assert stats.kstest((overlaps**2).numpy(), uniform.cdf).pvalue > 1e-3


def test_overlaps_equal_those_of_a_full_svd():
    overlaps = jacobian.singular_overlaps(6, 5, 9)
    rng = laws.generator(9, 0)
    points = torch.randn(5, 6, dtype=torch.float64, generator=rng)
    first, second = blocks.random_layers(rng, [6, 6, 6], 5, output="relu")
    for net in range(5):
        before = first.weight[net] @ points[net] + first.bias[net]
        after = second.weight[net] @ before.relu() + second.bias[net]
        left = torch.linalg.svd(first.weight[net] * (before > 0)[:, None]).U[:, 0]
        right = torch.linalg.svd(second.weight[net] * (after > 0)[:, None]).Vh[0]
        assert overlaps[net].item() == pytest.approx(abs((left @ right).item()), abs=1e-7)


def test_wide_layers_follow_the_infinite_width_angle_map():
    angles = [0.05, 0.5, 1.0, 2.0, 3.0]
    wide = jacobian.angle_map(1000, angles, 500, 0)
    error = (wide.mean.numpy() - theory.relu_angle(np.array(angles))) / wide.standard_error.numpy()
    assert np.abs(error).max() < 4
    narrow = jacobian.angle_map(3, angles, 5000, 0)
    assert (narrow.mean - wide.mean).abs().max() > 0.03


def test_angle_map_at_its_ends():
    ends = jacobian.angle_map(30, [0.0, math.pi], 50, 1)
    assert ends.mean[0].item() == pytest.approx(0, abs=1e-15)
    assert ends.mean[1].item() == pytest.approx(math.pi / 2, abs=1e-7)  # disjoint active units


def test_networks_without_an_angle_are_left_out():
    # Width 1: both inputs survive with probability (π-θ)/2π, and then point the same way.
    narrow = jacobian.angle_map(1, [1.0], 200, 0)
    assert narrow.mean.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "sample",
    [
        lambda seed: jacobian.sample_layer_norms([3, 8, 3], 20, seed),
        lambda seed: jacobian.sample_product_law([3, 8, 3], 20, seed),
        lambda seed: jacobian.worst_case_growth([3, 8, 3], 20, seed).worst,
        lambda seed: jacobian.singular_overlaps(5, 20, seed),
        lambda seed: jacobian.angle_map(8, [1.0], 20, seed).mean,
    ],
)
def test_a_seed_fixes_the_sample_and_another_changes_it(sample):
    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jacobian.sample_layer_norms([5], 10, 0), "at least two"),
        (lambda: jacobian.sample_product_law([5, 5], 0, 0), "nets"),
        (lambda: jacobian.sample_product_law([5, 5], 10, -1), "seed"),
        (lambda: jacobian.worst_case_growth([5, 5], 10, 0, device="gpu"), "device"),
        (lambda: jacobian.singular_overlaps(1, 10, 0), "width must be an integer of at least 2"),
        (lambda: jacobian.angle_map(5, [4.0], 10, 0), "radians"),
        (lambda: jacobian.angle_map(5, [1.0], 1, 0), "nets must be an integer of at least 2"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(call, message):
    with pytest.raises(ValueError, match=message):
        call()
