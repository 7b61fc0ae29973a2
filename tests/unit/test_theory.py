import math
import time
from math import pi, sqrt

import numpy as np
import pytest
from scipy.special import ellipe

from paperlib.length import theory


def hidden(n_in, width, layers, n_out):
    return [n_in] + [width] * layers + [n_out]


# The exact product on the grid of Figure 1, 5-[n]x(L-1)-5, to the digits of our derivation.
GRID = {
    5: [0.8276, 0.5446, 0.2711, 0.0672, 0.0010, 0.0000],
    10: [0.8903, 0.7292, 0.5229, 0.2688, 0.0365, 0.0013],
    20: [0.9214, 0.8365, 0.7120, 0.5158, 0.1962, 0.0392],
    50: [0.9396, 0.9046, 0.8491, 0.7482, 0.5119, 0.2719],
    100: [0.9456, 0.9279, 0.8992, 0.8444, 0.6992, 0.5106],
}


@pytest.mark.parametrize("width", GRID)
def test_mean_length_on_the_grid_of_figure_1(width):
    got = [theory.mean_length(hidden(5, width, L - 1, 5)) for L in (2, 5, 10, 20, 50, 100)]
    assert got == pytest.approx(GRID[width], abs=5.1e-5)


@pytest.mark.parametrize(
    ("widths", "exact", "truncated", "bound", "price_tanner"),
    [
        (hidden(5, 20, 1, 5), 0.92136, 0.92226, 0.95153, 0.4502),
        (hidden(5, 20, 5, 5), 0.80993, 0.81389, 0.95153, 0.0456),
        (hidden(5, 20, 20, 5), 0.49949, 0.50932, 0.95153, 1e-5),
        (hidden(5, 5, 5, 5), 0.47367, 0.50932, 0.95153, 0.0456),
        (hidden(5, 50, 50, 5), 0.50545, 0.50932, 0.95153, 0.0),
        (hidden(10, 30, 10, 2), 0.32042, 0.32180, 0.39633, 0.0012),
        (hidden(5, 1, 3, 5), 0.17088, 0.14592, 0.95153, 0.1433),
        (hidden(5, 2, 5, 5), 0.17444, 0.19945, 0.95153, 0.0456),
    ],
)
def test_lengths_and_bounds_of_single_architectures(widths, exact, truncated, bound, price_tanner):
    assert theory.mean_length(widths) == pytest.approx(exact, abs=5.1e-6)
    assert theory.truncated_mean_length(widths) == pytest.approx(truncated, abs=5.1e-6)
    assert theory.mean_length_bound(widths) == pytest.approx(bound, abs=5.1e-6)
    assert theory.price_tanner_bound(widths) == pytest.approx(price_tanner, abs=6e-5)


def test_layer_factor_by_explicit_sums():
    chi1, chi2, chi3 = sqrt(2 / pi), sqrt(pi / 2), 2 * sqrt(2 / pi)
    assert theory.layer_factor(1) == pytest.approx(1 / sqrt(pi), rel=1e-14)
    assert theory.layer_factor(2) == pytest.approx(chi1 / 2 + chi2 / 4, rel=1e-14)
    by_hand = sqrt(2 / 3) * (3 * chi1 + 3 * chi2 + chi3) / 8
    assert theory.layer_factor(3) == pytest.approx(by_hand, rel=1e-14)


def test_layer_factor_of_wide_layers_follows_its_expansion():
    for n in (1000, 5000, 100_000):
        expansion = -5 / (8 * n) - 3 / (8 * n**2)
        assert math.log(theory.layer_factor(n)) == pytest.approx(expansion, rel=2 / n**2 + 1e-10)


def test_output_constant_is_the_0_9515_of_the_paper():
    assert theory.output_constant(5) == pytest.approx(
        sqrt(2 / 5) * 2 / (0.75 * sqrt(pi)), rel=1e-14
    )
    assert theory.output_constant(5) == pytest.approx(0.951533, abs=5e-7)
    values = [theory.output_constant(n) for n in (1, 2, 50)]
    assert values == pytest.approx([0.798, 0.886, 0.995], abs=5e-4)


def test_conventions_of_the_last_layer():
    widths = [5, 5]
    assert theory.mean_length(widths) == pytest.approx(0.951533, abs=5e-7)
    assert theory.mean_length(widths, output="linear-he") == pytest.approx(1.345671, abs=5e-7)
    assert theory.mean_length(widths, output="relu") == pytest.approx(0.869781, abs=5e-7)
    he = [theory.mean_length(hidden(5, 20, h, 5), output="linear-he") for h in (1, 4, 9, 19)]
    assert he == pytest.approx([1.303, 1.183, 1.007, 0.730], abs=6e-4)


def test_scale_multiplies_the_mean_by_its_power():
    widths = hidden(5, 20, 3, 5)
    assert theory.mean_length(widths, scale=1.5) == pytest.approx(
        1.5**4 * theory.mean_length(widths), rel=1e-13
    )
    assert theory.mean_length(widths, scale=0.0) == 0.0


def test_leaky_factor_of_widths_one_and_two_in_closed_form():
    for a in (1e-6, 0.01, 0.2, 0.5, 0.9, 1.0):
        one = (1 + a) / sqrt(pi * (1 + a**2))
        assert theory.layer_factor(1, a) == pytest.approx(one, rel=1e-11)
        mixed = 0.5 * ellipe(1 - a**2) + (1 + a) * pi / 8  # mean axis of a random ellipse
        two = sqrt(2 / (pi * (1 + a**2))) * mixed
        assert theory.layer_factor(2, a) == pytest.approx(two, rel=1e-11)


def test_leaky_factor_meets_relu_and_linear_networks():
    for n in (1, 3, 20, 1000, 100_000):
        assert theory.layer_factor(n, 1e-12) == pytest.approx(theory.layer_factor(n), rel=1e-11)
        assert theory.layer_factor(n, 1.0) == pytest.approx(theory.output_constant(n), rel=1e-11)


def test_leaky_factor_against_sampling():
    rng = np.random.default_rng(11)
    gates = np.where(rng.random((200_000, 6)) < 0.5, 0.3, 1.0)
    norms = np.sqrt(((gates * rng.standard_normal(gates.shape)) ** 2).sum(1) * 2 / (1.09 * 6))
    error = 4 * norms.std() / sqrt(len(norms))
    assert theory.layer_factor(6, 0.3) == pytest.approx(norms.mean(), abs=error)


def test_leaky_decay():
    got = [theory.leaky_decay(a) for a in (0, 0.1, 0.2, 0.5, 1)]
    assert got == pytest.approx([0.625, 0.610, 0.570, 0.385, 0.25], abs=5e-4)
    for a in (0.1, 0.5, 1.0):
        rate = -2000 * math.log(theory.layer_factor(2000, a))
        assert rate == pytest.approx(theory.leaky_decay(a), rel=1e-3)


def test_variance_bounds():
    for layers, ceiling in [(1, 0.151), (5, 0.344), (10, 0.525), (20, 0.751), (40, 0.931)]:
        bound = theory.variance_bound(hidden(5, 20, layers, 5))
        assert bound.paper == 1.0
        assert bound.sharp == pytest.approx(ceiling, abs=6e-4)
    assert theory.variance_bound([10, 30, 2]).paper == 0.2


def test_moments_of_wide_layers():
    depth, n = 200, 5000
    for m, rate in [(1, -0.6251), (2, 0), (3, 1.8745), (4, 4.9975), (6, 14.986)]:
        ratio = theory.moment_bound(hidden(3, n, depth, 3), m) / theory.moment_bound([3, 3], m)
        assert n / depth * math.log(ratio) == pytest.approx(rate, abs=5.1e-4)


def test_moments_by_hand():
    # E chi_n^4 = n(n+2), and E B(B+2) = n(n+5)/4, so that h_4(n) = 1 + 5/n and C_4(n) = 1 + 2/n.
    by_hand = (3 / 4) ** 2 * (1 + 5 / 7) * (1 + 5) * (1 + 2 / 3)
    assert theory.moment_bound([4, 7, 1, 3], 4) == pytest.approx(by_hand, rel=1e-13)
    assert theory.moment_bound(hidden(5, 20, 50, 5), 4) == pytest.approx(9.8e4, rel=0.01)


def test_log_normal_parameters():
    mean, variance = theory.log_normal(hidden(100, 100, 50, 100))
    assert variance == pytest.approx(5 * 0.5 + 2 / 100)
    assert mean == pytest.approx(-variance / 2)
    assert theory.log_normal([2, 10, 8]).mean == pytest.approx(math.log(4) - 0.375)


def test_dead_probability():
    assert theory.dead_probability(hidden(5, 5, 20, 5)) == pytest.approx(0.470, abs=5e-4)
    assert theory.dead_probability([5, 1, 2, 5]) == pytest.approx(1 - 0.5 * 0.75)
    assert str(theory.dead_probability([5, 5])) == "0.0"


def test_torch_default_factor():
    got = theory.torch_default_mean_length(hidden(5, 20, 5, 5))
    assert got == pytest.approx(0.00530, abs=5.1e-6)


def test_mean_square_norm():
    # 11.40, 12.65 and 23.90 at C_b = 0, 0.1, 1, for an input with (n_L/n_0) x² = 11.40.
    widths, norm = hidden(5, 20, 3, 5), sqrt(11.40)
    got = [theory.mean_square_norm(widths, norm, c) for c in (0, 0.1, 1)]
    assert got == pytest.approx([11.40, 12.65, 23.90], abs=1e-12)


@pytest.mark.parametrize(
    ("widths", "d", "exact", "leading"),
    [
        (hidden(5, 20, 3, 5), 2, 0.58320, 0.5927),
        (hidden(5, 20, 10, 5), 2, 0.27894, 0.2943),
        (hidden(5, 30, 5, 5), 3, 0.27745, 0.2871),
        (hidden(8, 40, 4, 8), 7, 0.01029, 0.01215),
        (hidden(2, 30, 10, 2), 2, 0.25081, 0.2567),
    ],
)
def test_volumes_of_single_architectures(widths, d, exact, leading):
    assert theory.mean_volume(widths, d) == pytest.approx(exact, abs=5.1e-6)
    assert theory.truncated_mean_volume(widths, d) == pytest.approx(leading, abs=5.1e-5)


def test_square_networks_multiply_determinants():
    # E|det| of a standard Gaussian 2 x 2 matrix is 1; both hidden units are on with probability ¼.
    assert theory.mean_volume([2, 2, 2], 2) == pytest.approx(1 / 4 * 1 / 2, rel=1e-14)
    # E det² = 2 before scaling.
    assert theory.volume_second_moment([2, 2, 2], 2) == pytest.approx((2 / 4) * (2 / 4), rel=1e-14)


def test_volume_decay_of_wide_layers():
    for d in range(1, 8):
        ratio = theory.mean_volume([8, 5000, 8], d) / theory.mean_volume([8, 8], d)
        assert -5000 * math.log(ratio) == pytest.approx(d * (3 * d + 2) / 8, rel=2e-3)


def test_volume_vanishes_above_the_smallest_width():
    for function in (
        theory.mean_volume,
        theory.truncated_mean_volume,
        theory.volume_second_moment,
        theory.volume_bound,
    ):
        assert function([5, 20, 2, 20, 5], 3) == 0.0
        assert function([5, 20, 2, 20, 5], 2) > 0.0


def test_relu_angle():
    assert theory.relu_angle(0.0) == 0.0
    assert theory.relu_angle(pi) == pytest.approx(pi / 2)
    assert theory.relu_angle(np.array([pi / 2])) == pytest.approx([math.acos(1 / pi)])
    # Small angles shrink as θ - θ²/(3π).
    assert theory.relu_angle(1e-3) == pytest.approx(1e-3 - 1e-6 / (3 * pi), abs=1e-9)
    assert theory.relu_angle(1e-9) == pytest.approx(1e-9, rel=1e-6)


def test_wide_and_deep_networks_neither_overflow_nor_warn():
    deep, wide = hidden(100_000, 100, 10_000, 100_000), hidden(5, 100_000, 10_000, 5)
    assert 0 < theory.mean_length(deep) < 1e-20
    assert theory.mean_length(wide) == pytest.approx(theory.truncated_mean_length(wide), rel=1e-5)
    assert theory.mean_length(deep, scale=10.0) == math.inf
    assert theory.moment_bound(deep, 6) == math.inf
    assert theory.moment_bound(wide, 2) == pytest.approx(1, rel=1e-7)
    assert theory.mean_volume(wide, 5) == pytest.approx(
        theory.truncated_mean_volume(wide, 5), rel=1e-4
    )
    assert 0 < theory.layer_factor(100_000, 0.1) < 1
    assert theory.dead_probability(wide) == 0.0
    assert theory.volume_second_moment(deep, 50) == 0.0 < theory.volume_second_moment(deep, 2)
    assert theory.raghu_bound(deep) == 0.0


def test_a_call_at_ordinary_sizes_takes_about_a_millisecond():
    widths = hidden(5, 20, 50, 5)
    theory.mean_length(widths)
    start = time.perf_counter()
    for _ in range(100):
        theory.mean_length(widths)
    assert time.perf_counter() - start < 1.0  # 0.01 s measured; room for a busy machine


def test_numpy_integers_are_accepted_and_floats_come_out():
    assert theory.mean_length(np.array([5, 20, 5])) == theory.mean_length([5, 20, 5])
    assert type(theory.mean_length(np.array([5, 20, 5]))) is float
    assert type(theory.mean_volume([5, 20, 5], np.int64(2))) is float


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.mean_length([5]), "at least two"),
        (lambda: theory.mean_length([5, 0, 5]), "integer of at least 1"),
        (lambda: theory.mean_length([5, 20.0, 5]), "integer"),
        (lambda: theory.mean_length([5, True, 5]), "integer"),
        (lambda: theory.mean_length("555"), "sequence"),
        (lambda: theory.mean_length([5, 5], output="linaer"), "did you mean 'linear'"),
        (lambda: theory.mean_length([5, 5], scale=-1), "at least 0"),
        (lambda: theory.mean_length([5, 5], slope=math.inf), "finite"),
        (lambda: theory.moment_bound([5, 5], 0.5), "at least 1"),
        (lambda: theory.moment_bound([5, 5], True), "finite number"),
        (lambda: theory.mean_volume([5, 20, 5], 0), "at least 1"),
        (lambda: theory.mean_volume([5, 20, 5], 6), "at most n_0 = 5"),
        (lambda: theory.mean_volume([5, 20, 5], 2.0), "integer"),
        (lambda: theory.volume_bound([5, 20, 5], True), "integer"),
        (lambda: theory.mean_square_norm([5, 5], -1.0, 0.1), "at least 0"),
        (lambda: theory.layer_factor(0), "at least 1"),
        (lambda: theory.output_constant(2.5), "integer"),
        (lambda: theory.relu_angle(4.0), "radians"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(call, message):
    with pytest.raises(ValueError, match=message):
        call()
