"""Fig. 3: shapes, equal sums, the variance about a known mean, and the verdicts."""

from fractions import Fraction
from math import log

import pandas as pd
import pytest

from paperlib.experiments import length_mean_variance as figure
from paperlib.length import curves, ensemble, statistics, theory
from paperlib.networks import laws


def draw(seed: int = 1) -> pd.DataFrame:
    return figure.sample(["constant", "alternating"], [10], [2, 4], 5, 5, 0.03, 4000, seed, "cpu")


def draw_trend(seed: int = 1) -> pd.DataFrame:
    return figure.sample_trend([10, 20], [1, 5], 1.0, [0.01], 0.01, 500, 5, 5, seed, "cpu")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return draw()


@pytest.fixture(scope="module")
def trend() -> pd.DataFrame:
    return draw_trend()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("constant", [20, 20, 20, 20, 20]),
        ("bottleneck", [20, 20, 5, 20, 20]),
        ("growing", [10, 14, 20, 28, 40]),
        ("shrinking", [40, 28, 20, 14, 10]),
        ("alternating", [10, 40, 10, 40, 10]),
    ],
)
def test_shapes(shape, expected):
    assert figure.hidden_widths(shape, 20, 5) == expected


def test_an_unknown_shape_is_refused():
    with pytest.raises(ValueError, match="constant"):
        figure.hidden_widths("constnat", 20, 5)


def test_the_sums_are_one_half_exactly():
    assert {sum(Fraction(1, n) for n in hidden) for hidden in figure.HALVES} == {Fraction(1, 2)}


def test_exact_means_of_equal_sums():
    means = figure.equal_sums(5, 5)
    assert means.exact.is_monotonic_increasing
    assert means.exact.iloc[0] == pytest.approx(0.669, abs=5e-4)
    assert means.exact.iloc[-1] == pytest.approx(0.695, abs=5e-4)
    assert means.truncated.unique() == pytest.approx([0.696156], abs=5e-7)
    order = means.set_index("architecture").exact
    assert order["5-4-8-16-32-32-5"] == pytest.approx(order["5-32-32-16-8-4-5"], rel=1e-14)


def test_no_architecture_of_that_sum_lies_lower_than_two_layers_of_four():
    deficit = {n: n * (-log(theory.layer_factor(n))) - 0.625 for n in range(2, 400)}
    assert max(deficit, key=deficit.get) == 4
    assert min(deficit.values()) > 0
    assert figure.equal_sums(5, 5).architecture[0] == "5-[4]×2-5"


def test_tables_are_tidy(table, trend):
    assert table["shape"].tolist() == ["constant"] * 2 + ["alternating"] * 2
    assert table.architecture.tolist() == ["5-[10]×2-5", "5-[10]×4-5", "5-5-20-5", "5-5-20-5-20-5"]
    lines = trend[["width", "length", "hidden"]].to_numpy().tolist()
    assert lines == [[w, at, d] for w, at in ((10, 1), (20, 1), (10, 0.01)) for d in (1, 5)]
    assert figure.variance_by_depth(trend).shape == (3, 2)


def test_same_seed_same_tables_another_seed_others(table, trend):
    pd.testing.assert_frame_equal(table, draw())
    pd.testing.assert_frame_equal(trend, draw_trend())
    assert (table["mean"] != draw(2)["mean"]).all()
    assert (trend.variance != draw_trend(2).variance).all()


@pytest.mark.parametrize(("hidden", "length"), [([20], 1.0), ([20] * 5, 100.0)])
def test_variance_agrees_with_the_plain_variance_of_other_networks(hidden, length):
    widths, curve = [5, *hidden, 5], curves.segment(5, length)
    plain = float(ensemble.sample_lengths(widths, 20000, 6, curve=curve).var())
    drawn = ensemble.sample_images(widths, 2000, 5, curve=curve)
    found = statistics.variance_interval(drawn, statistics.mean_energy(widths))
    assert found.low - 0.03 * plain < plain < found.high + 0.03 * plain
    assert found.high - found.low < 0.2 * plain


def test_verdicts(table, trend):
    def verdicts(table: pd.DataFrame, trend: pd.DataFrame) -> dict[str, str]:
        return {result.id: result.verdict for result in figure.judge(table, trend)}

    expected = {"L5": "holds", "L9": "holds", "L10": "not comparable"}
    assert verdicts(table, trend) == expected
    doubled = table.assign(
        **{key: 4 * table[key] for key in ("plain_variance", "plain_low", "plain_high")}
    )
    assert verdicts(doubled, trend) == expected | {"L9": "fails"}


def test_mutation_a_sampler_that_is_too_wide_fails_l9(trend, monkeypatch):
    right = laws.draw
    monkeypatch.setattr(
        laws, "draw", lambda rng, law, shape, variance: right(rng, law, shape, 1.3 * variance)
    )
    (result,) = [v for v in figure.judge(draw(), trend) if v.id == "L9"]
    assert result.verdict == "fails"


def test_growth_is_that_of_the_first_line(table, trend):
    growth = figure.judge(table, trend)[2].measured["variance_growth"]
    assert growth.value == pytest.approx(trend.variance[1] / trend.variance[0])
    assert growth.low < growth.value < growth.high


def test_the_figure_has_four_panels(table, trend):
    assert len(figure.draw(table, trend).axes) == 4
