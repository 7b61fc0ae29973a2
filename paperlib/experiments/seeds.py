"""Intervals over seeds: the unit of replication is the network trained anew, never the layer."""

import math
from collections.abc import Iterable

import numpy as np
from scipy import stats

from paperlib.report.rules import Measured

LEVEL = 0.95
BOOTSTRAP_FROM = 10  # seeds; a t interval before
RESAMPLES = 9999


def interval(values: Iterable[float]) -> Measured:
    """Mean over seeds with its 95 % interval: t, or percentile bootstrap from ten seeds on.

    One seed says nothing about the spread: its interval is (−∞, ∞), which judges nothing. Values
    that are all equal have an interval without width. That is right where they are equal by
    definition, as the ratio of a damage to itself. It says too much of numbers that take few
    values, such as a rank correlation over four layers, or errors on few test images: networks of
    several seeds then agree by coincidence. Networks that guess agree as well (they all give one
    answer), and are not judged: see `learned`.

    Raises ValueError for no values.
    """
    sample = np.asarray(list(values), dtype=float)  # (seeds,)
    if not sample.size:
        raise ValueError("an interval over seeds needs at least one seed.")
    mean = float(sample.mean())
    if sample.size == 1:
        return Measured(mean, -math.inf, math.inf)
    if sample.size >= BOOTSTRAP_FROM:
        rng = np.random.default_rng(0)
        means = rng.choice(sample, (RESAMPLES, sample.size)).mean(axis=1)
        low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        # Rounding may leave equal values a hair outside their own mean.
        return Measured(mean, min(mean, float(low)), max(mean, float(high)))
    half = stats.t.ppf((1 + LEVEL) / 2, sample.size - 1) * sample.std(ddof=1)
    half = float(half / math.sqrt(sample.size))
    return Measured(mean, mean - half, mean + half)


def share(hits: Iterable[bool]) -> Measured:
    """Share of seeds in which something happened, with its Clopper-Pearson 95 % interval."""
    sample = [bool(hit) for hit in hits]
    found = stats.binomtest(sum(sample), len(sample)).proportion_ci(LEVEL, "exact")
    return Measured(sum(sample) / len(sample), float(found.low), float(found.high))
