import math

import numpy as np
import pytest
import torch
from scipy import stats

from paperlib.length import statistics, theory
from paperlib.length.ensemble import Sample, sample_images


def sample_of(lengths, energies):
    lengths, energies = (torch.as_tensor(np.asarray(x, float)) for x in (lengths, energies))
    return Sample(lengths, energies, torch.ones_like(lengths), lengths)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 3 / 5),
        ({"slope": 0.3}, 3 / 5),
        ({"output": "relu"}, 3 / 5),
        ({"output": "linear-he"}, 2 * 3 / 5),
        ({"scale": 1.5}, 1.5**6 * 3 / 5),
        ({"weight_law": "laplace"}, 3 / 5),
        ({"weight_law": "torch-default"}, (3 / 5) / (6 * 6 * 3)),
    ],
)
def test_mean_energy_follows_the_initialisation(options, expected):
    assert statistics.mean_energy([5, 20, 10, 3], **options) == pytest.approx(expected)


@pytest.mark.parametrize("output", ["linear", "linear-he", "relu"])
def test_mean_energy_of_a_single_layer(output):
    gain = {"linear": 1.0, "linear-he": 2.0, "relu": 1.0}[output]
    assert statistics.mean_energy([5, 10], output=output) == pytest.approx(2 * gain)


def test_sampled_energies_average_to_their_expectation():
    sample = sample_images([5, 20, 20, 5], 20_000, 0, slope=0.2, output="relu")
    error = float(sample.energies.std()) / math.sqrt(20_000)
    assert abs(float(sample.energies.mean()) - 1.0) < 4 * error


def test_interval_is_student_s_where_the_energy_is_the_expected_one():
    lengths = [0.5, 1.0, 1.5, 1.0] * 10
    value, low, high = statistics.mean_interval(sample_of(lengths, lengths), 1.0)
    assert value == 1.0
    t_39 = 2.0226909
    assert high - value == pytest.approx(t_39 * np.std(lengths, ddof=1) / math.sqrt(40))
    assert value - low == pytest.approx(high - value)


def test_interval_widens_where_the_sample_lacks_the_rare_networks():
    lengths, energies = [0.1, 0.2, 0.1, 1.0] * 10, [0.01, 0.04, 0.01, 1.0] * 10
    usual = statistics.mean_interval(sample_of(lengths, energies), float(np.mean(energies)))
    poor = statistics.mean_interval(sample_of(lengths, energies), 1.0)
    assert poor.value == usual.value and poor.high > usual.high


def test_dead_networks_have_no_spread():
    for nets in (1, 2, 40):
        dead = sample_of([0.0] * nets, [0.0] * nets)
        assert statistics.mean_interval(dead, 1.0) == (0, 0, 0)
        assert statistics.variance_interval(dead, 1.0) == (0, 0, 0)


@pytest.mark.parametrize("nets", [1, 2, 29])
def test_too_few_networks_give_no_interval(nets):
    sample = sample_of(np.linspace(1, 2, nets), np.linspace(1, 4, nets))
    for interval in (statistics.mean_interval, statistics.variance_interval):
        with pytest.raises(ValueError, match=f"at least 30 networks; got {nets}"):
            interval(sample, 1.0)


def test_a_control_variate_never_leaves_a_spread_of_zero():
    # energies far above their expectation would bring the variance down to nothing
    lengths = [1.0, 1.0, 1.0, 2.0] * 10
    sample = sample_of(lengths, [9.0, 9.0, 9.0, 36.0] * 10)
    assert statistics.variance_interval(sample, 0.1).value == pytest.approx(np.var(lengths))
    assert statistics.mean_interval(sample, 0.1).high > 1.25


def test_variance_interval_covers_the_exact_variance_of_short_curves():
    widths = [5, 20, 20, 5]
    short = torch.zeros(2, 5, dtype=torch.float64)
    short[1, 0] = 1e-6
    sample = sample_images(widths, 10_000, 3, curve=short)
    value, low, high = statistics.variance_interval(sample, 1.0)
    exact = theory.variance_bound(widths).sharp  # attained as the length of the curve tends to 0
    assert low < exact < high and low < value < high
    assert high - low < 0.2 * value


@pytest.mark.parametrize("widths", [[5, 50, 5], [5, *[10] * 10, 5]])
def test_variance_of_a_small_sample_is_near_that_of_a_large_one(widths):
    large = sample_images(widths, 40_000, 0, precision="single")
    expected = statistics.variance_interval(large, 1.0).value
    values = [
        statistics.variance_interval(sample_images(widths, 500, seed), 1.0).value
        for seed in range(1, 9)
    ]
    assert np.mean(values) == pytest.approx(expected, rel=0.1)
    assert np.std(values) < 0.15 * expected


def test_variance_interval_repeats_for_a_seed_and_changes_with_it():
    sample = sample_images([5, 20, 5], 500, 0)
    first, again, other = (
        statistics.variance_interval(sample, 1.0, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_plain_variance_takes_nothing_for_granted():
    sample = sample_images([5, 20, 20, 5], 2000, 3)
    doubled = sample_of(2 * sample.lengths.numpy(), 4 * sample.energies.numpy())
    plain, twice = statistics.variance_interval(sample), statistics.variance_interval(doubled)
    assert plain.value == pytest.approx(float(sample.lengths.var(correction=0)))
    assert twice == pytest.approx([4 * value for value in plain])


def test_nets_needed_gives_the_half_width_that_was_asked_for():
    nets = statistics.nets_needed(0.5, 0.8, 0.01, 10**9)
    assert 1.959964 * 0.8 / math.sqrt(nets) == pytest.approx(0.01 * 0.5, rel=1e-3)
    assert statistics.nets_needed(0.5, 0.8, 0.01, 1234) == 1234
    assert statistics.nets_needed(0.0, 0.8, 0.01, 1234) == 1234


def test_z_score_and_tail_are_those_of_the_normal_law():
    assert statistics.z_score([1.0, 3.0], 1.0, 2.0) == pytest.approx(1 / math.sqrt(2))
    assert statistics.z_tail([1.959964]) == pytest.approx(0.05, abs=1e-6)
    z = np.random.default_rng(0).standard_normal((2000, 40))
    tails = [statistics.z_tail(row) for row in z]
    assert stats.kstest(tails, "uniform").pvalue > 0.01


@pytest.mark.slow
def test_interval_covers_the_mean_of_deep_narrow_networks_where_a_normal_one_does_not():
    widths, nets, repeats = [5, *[20] * 50, 5], 200, 300
    sample = sample_images(widths, nets * repeats, 1, precision="single")
    exact = theory.mean_length(widths)
    covered = normal = 0
    for i in range(repeats):
        part = slice(i * nets, (i + 1) * nets)
        drawn = Sample(*(column[part] for column in vars(sample).values()))
        _, low, high = statistics.mean_interval(drawn, statistics.mean_energy(widths))
        covered += low <= exact <= high
        half = 1.96 * float(drawn.lengths.std()) / math.sqrt(nets)
        normal += abs(float(drawn.lengths.mean()) - exact) <= half
    assert 0.93 <= covered / repeats <= 0.97
    assert normal / repeats < 0.90
