import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperlib.length import theory

width = st.integers(1, 300)
architecture = st.lists(width, min_size=2, max_size=12)


@given(st.integers(1, 2000))
def test_layer_factor_grows_with_width_and_stays_below_one(n):
    assert theory.layer_factor(n) < theory.layer_factor(n + 1) < 1


@given(st.integers(1, 500), st.floats(1e-3, 1.0))
def test_leaky_factor_lies_between_relu_and_linear(n, slope):
    low, high = theory.layer_factor(n), theory.layer_factor(n, 1.0)
    assert low - 1e-12 <= theory.layer_factor(n, slope) <= high + 1e-12


@given(architecture)
def test_bounds_stand_in_order(widths):
    chain = [
        theory.price_tanner_bound(widths),
        theory.raghu_bound(widths),
        theory.mean_length(widths),
        theory.mean_length_bound(widths),
        math.sqrt(widths[-1] / widths[0]),
    ]
    for low, high in pairwise(chain):
        assert low <= high * (1 + 1e-12)


@given(architecture)
def test_truncated_mean_is_an_upper_bound_unless_a_hidden_width_is_one(widths):
    if 1 not in widths[1:-1]:
        assert theory.mean_length(widths) <= theory.truncated_mean_length(widths) * (1 + 1e-12)


@given(architecture)
def test_second_moment_is_the_ratio_of_dimensions(widths):
    assert theory.moment_bound(widths, 2) == pytest.approx(widths[-1] / widths[0], rel=1e-11)


@given(architecture)
def test_first_moment_is_the_mean(widths):
    assert theory.moment_bound(widths, 1) == pytest.approx(theory.mean_length(widths), rel=1e-12)


@given(architecture, st.floats(1.0, 8.0), st.floats(0.1, 4.0))
def test_moments_obey_lyapunov(widths, m, step):
    low = theory.moment_bound(widths, m) ** (1 / m)
    high = theory.moment_bound(widths, m + step) ** (1 / (m + step))
    assert low <= high * (1 + 1e-10)


@given(architecture)
def test_sharp_variance_bound_is_the_variance_of_the_norm(widths):
    bound = theory.variance_bound(widths)
    variance = theory.moment_bound(widths, 2) - theory.mean_length(widths) ** 2
    assert bound.sharp == pytest.approx(variance, rel=1e-9, abs=1e-12 * bound.paper)
    assert 0 <= bound.sharp <= bound.paper


@given(architecture, st.floats(0.5, 2.0))
def test_scale_multiplies_the_mean_by_its_power(widths, c):
    expected = c ** (len(widths) - 1) * theory.mean_length(widths)
    assert theory.mean_length(widths, scale=c) == pytest.approx(expected, rel=1e-11)


@given(architecture, st.randoms(use_true_random=False), st.sampled_from(["linear", "relu"]))
def test_order_of_the_hidden_widths_does_not_matter(widths, random, output):
    inner = widths[1:-1]
    random.shuffle(inner)
    shuffled = [widths[0], *inner, widths[-1]]
    expected = theory.mean_length(widths, output=output)
    assert theory.mean_length(shuffled, output=output) == pytest.approx(expected, rel=1e-12)


@given(architecture)
def test_volume_of_dimension_one_is_length(widths):
    assert theory.mean_volume(widths, 1) == pytest.approx(theory.mean_length(widths), rel=1e-12)
    assert theory.volume_second_moment(widths, 1) == pytest.approx(widths[-1] / widths[0])


@given(st.lists(st.integers(1, 60), min_size=2, max_size=8), st.data())
def test_volume_bounds_stand_in_order(widths, data):
    d = data.draw(st.integers(1, widths[0]))
    root = math.sqrt(theory.volume_second_moment(widths, d))
    assert theory.mean_volume(widths, d) <= root * (1 + 1e-11)
    assert root <= theory.volume_bound(widths, d) * (1 + 1e-11)
    assert (theory.mean_volume(widths, d) == 0) == (d > min(widths))


@given(st.floats(0, math.pi), st.floats(0, math.pi))
def test_relu_angle_contracts_and_keeps_order(first, second):
    low, high = sorted((first, second))
    assert theory.relu_angle(low) <= theory.relu_angle(high) + 1e-15
    assert theory.relu_angle(high) <= high + 1e-15
