"""A number with its interval against a margin: every outcome, and the cases at the margin."""

import pytest

from paperlib.report import tables
from paperlib.report.rules import Criterion, Measured, overall

INF = float("inf")
AT_MOST = Criterion("x", "at_most", -INF, 1.0, "x")
AT_LEAST = Criterion("x", "at_least", 1.0, INF, "x")
WITHIN = Criterion("x", "within", -1.0, 1.0, "x")


@pytest.mark.parametrize(
    ("criterion", "given", "outcome"),
    [
        (AT_MOST, 1.0, "holds"),
        (AT_MOST, 1.0 + 1e-12, "fails"),
        (AT_MOST, (0.5, 0.2, 1.0), "holds"),
        (AT_MOST, (0.5, 0.2, 1.1), "inconclusive"),
        (AT_MOST, (1.5, 1.0, 2.0), "inconclusive"),
        (AT_MOST, (1.5, 1.1, 2.0), "fails"),
        (AT_LEAST, 1.0, "holds"),
        (AT_LEAST, 0.999, "fails"),
        (AT_LEAST, (1.5, 1.0, 2.0), "holds"),
        (AT_LEAST, (1.5, 0.9, 2.0), "inconclusive"),
        (AT_LEAST, (0.5, 0.2, 0.9), "fails"),
        (WITHIN, (0.0, -1.0, 1.0), "holds"),
        (WITHIN, (0.0, -1.1, 1.0), "inconclusive"),
        (WITHIN, (0.0, -2.0, 2.0), "inconclusive"),
        (WITHIN, (2.0, 1.1, 3.0), "fails"),
        (WITHIN, (-2.0, -3.0, -1.1), "fails"),
        (WITHIN, 1.5, "fails"),
        (Criterion("x", "not_comparable", -INF, INF, "x"), 5.0, "not comparable"),
    ],
)
def test_outcome_depends_on_where_the_whole_interval_lies(criterion, given, outcome):
    assert criterion.judge(Measured.of("x", given)) == outcome


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "inconclusive"], "inconclusive"),
        (["inconclusive", "fails", "holds"], "fails"),
        (["not comparable", "fails"], "not comparable"),
    ],
)
def test_one_failure_fails_the_claim(outcomes, verdict):
    assert overall(outcomes) == verdict


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (float("nan"), "not_run"),
        ((1.0, 0.5, float("nan")), "not_run"),
        ((1.0, 1.5, 2.0), "low ≤ value ≤ high"),
        ((1.0, 2.0, 0.0), "low ≤ value ≤ high"),
        ((1.0, 2.0), r"\(value, low, high\)"),
        ("much", r"\(value, low, high\)"),
    ],
)
def test_a_value_that_cannot_be_judged_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Measured.of("x", given)


def test_a_criterion_reads_as_a_rule():
    assert [str(c) for c in (AT_MOST, AT_LEAST, WITHIN)] == [
        "at most 1",
        "at least 1",
        "between -1 and 1",
    ]


def test_one_seed_is_printed_without_an_interval():
    one = Measured(27.284, -INF, INF)
    assert str(one) == "27.28 (one seed: no interval)"
    assert tables.interval(one) == "27.3 (one seed)"
    assert tables.interval(Measured(0.144, -0.001, 0.4), 2) == "0.14 [0.00, 0.40]"
