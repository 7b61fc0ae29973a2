"""Intervals over seeds against closed forms."""

import math

import numpy as np
import pytest

from paperlib.experiments.seeds import interval, share


def test_few_seeds_give_a_t_interval():
    found = interval([1.0, 2.0, 3.0])
    half = 4.302652730 * 1.0 / math.sqrt(3)  # t quantile of 2 degrees of freedom, 97.5 %
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - half, 2 + half))


def test_one_seed_judges_nothing():
    found = interval([0.4])
    assert (found.value, found.low, found.high) == (0.4, -math.inf, math.inf)


def test_a_few_equal_values_have_no_width():
    found = interval([0.75] * 3)
    assert (found.value, found.low, found.high) == (0.75, 0.75, 0.75)


def test_no_seeds_are_refused():
    with pytest.raises(ValueError, match="at least one seed"):
        interval([])


def test_ten_seeds_give_a_bootstrap_interval_that_repeats():
    sample = np.random.default_rng(1).exponential(size=40)
    found = interval(sample)
    assert found == interval(sample)
    half = 1.96 * sample.std(ddof=1) / math.sqrt(40)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), 0.15)


def test_equal_values_have_no_width():
    found = interval([0.1] * 12)
    assert found.low == pytest.approx(0.1) == found.high
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(5, 5, 0.025**0.2, 1.0), (0, 5, 0.0, 1 - 0.025**0.2), (36, 36, 0.025 ** (1 / 36), 1.0)],
)
def test_shares_have_clopper_pearson_intervals(hits, of, low, high):
    found = share([True] * hits + [False] * (of - hits))
    assert (found.value, found.low, found.high) == pytest.approx((hits / of, low, high))
