import math

import pytest
import torch

from paperlib.length import blocks, theory
from paperlib.length.volume import sample_volumes
from paperlib.networks import laws


def z_score(sample, mean):
    return ((sample.mean() - mean) / sample.std() * math.sqrt(len(sample))).item()


def test_volumes_equal_those_of_autograd_on_the_same_networks():
    widths, d, nets, seed = [4, 7, 6, 5], 3, 20, 8
    rng = laws.generator(seed, 0)
    frames = blocks.random_frames(rng, nets, 4, d)
    points = torch.randn(nets, 4, 1, dtype=torch.float64, generator=rng)[:, :, 0]
    layers = list(blocks.random_layers(rng, widths, nets))
    expected = []
    for net in range(nets):

        def forward(x, net=net):
            for layer in layers:
                x = layer.weight[net] @ x + layer.bias[net]
                x = x.relu() if layer.gated else x
            return x

        image = torch.autograd.functional.jacobian(forward, points[net]) @ frames[net]
        expected.append(torch.linalg.svdvals(image).prod())
    got = sample_volumes(widths, d, nets, seed)
    torch.testing.assert_close(got, torch.stack(expected), rtol=1e-9, atol=1e-13)
    assert got.gt(0).any()


@pytest.mark.parametrize(
    ("widths", "d"),
    [([5, 20, 20, 20, 5], 2), ([5, 20, 20, 20, 5], 5), ([2, 4, 3, 2], 2), ([8, 40, 40, 8], 7)],
)
def test_sample_agrees_with_the_closed_forms(widths, d):
    volumes = sample_volumes(widths, d, 5000, 1)
    assert volumes.shape == (5000,) and volumes.dtype == torch.float64
    assert abs(z_score(volumes, theory.mean_volume(widths, d))) < 3.5
    assert abs(z_score(volumes**2, theory.volume_second_moment(widths, d))) < 3.5


@pytest.mark.parametrize("output", ["linear", "linear-he", "relu"])
def test_lengths_agree_for_every_output_convention(output):
    volumes = sample_volumes([5, 10, 10, 3], 1, 5000, 2, output=output)
    assert abs(z_score(volumes, theory.mean_length([5, 10, 10, 3], output=output))) < 3.5


@pytest.mark.parametrize("law", laws.LAWS)
def test_second_moment_depends_on_the_variances_alone(law):
    volumes = sample_volumes([3, 10, 10, 6], 1, 20_000, 3, weight_law=law)
    scale = 6**-2 / 3 if law == "torch-default" else 1.0  # two hidden layers
    assert abs(z_score(volumes**2, 2 * scale)) < 3.5


def test_volume_is_zero_to_rounding_above_the_smallest_width():
    assert sample_volumes([5, 20, 2, 20, 5], 3, 500, 0).max() < 1e-13
    assert sample_volumes([5, 20, 2], 3, 500, 0).max() == 0.0
    assert sample_volumes([5, 20, 3, 20, 5], 3, 500, 0).max() > 1e-2


def test_a_linear_square_network_multiplies_volume_by_its_determinant():
    volumes = sample_volumes([2, 2], 2, 20_000, 5)  # E|det| of N(0, ½) entries is ½
    assert abs(z_score(volumes, 0.5)) < 3.5


def test_a_seed_fixes_the_sample_and_another_changes_it():
    first, again, other = (sample_volumes([5, 9, 5], 2, 50, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_blocks_hold_every_network_once_with_draws_of_their_own(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_NUMBERS", 1000)
    sizes = blocks.block_sizes([5, 9, 5], 50, 3)
    assert len(sizes) > 3 and sum(sizes) == 50
    volumes = sample_volumes([5, 9, 5], 2, 50, 1)
    assert len(set(volumes.tolist())) == 50


def test_neither_memory_cap_nor_progress_changes_the_result():
    small, large = (sample_volumes([5, 9, 5], 2, 50, 1, max_bytes=cap) for cap in (10**6, 10**9))
    assert torch.equal(small, large)
    assert torch.equal(small, sample_volumes([5, 9, 5], 2, 50, 1, progress=True))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([5, 20, 5], 6, 10, 0), {}, "at most n_0 = 5"),
        (([5, 20, 5], 0, 10, 0), {}, "dimension d must be an integer of at least 1"),
        (([5], 1, 10, 0), {}, "at least two"),
        (([5, 5], 1, 0, 0), {}, "nets must be an integer of at least 1"),
        (([5, 5], 1, 10, -1), {}, "seed"),
        (([5, 5], 1, 10, 0), {"output": "lin"}, "did you mean 'linear'"),
        (([5, 5], 1, 10, 0), {"weight_law": "gauss"}, "unknown weight law"),
        (([5, 5], 1, 10, 0), {"bias_var": -1.0}, "bias_var"),
        (([5, 5], 1, 10, 0), {"device": "gpu"}, "device"),
        (([5, 5], 1, 10, 0), {"max_bytes": 10}, "max_bytes must be an integer of at least"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        sample_volumes(*arguments, **options)
