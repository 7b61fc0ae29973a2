"""Fig. 2: the table, the slope of the exact means on known grids, and the verdict."""

import math

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments import length_ratio as ratio
from paperlib.length import theory

DIMENSIONS = [1, 2, 5, 10, 20, 50]


def draw(seed: int = 1) -> pd.DataFrame:
    return ratio.sample([20] * 5, [2, 5], [1, 5, 20], 0.05, 2000, seed, "cpu")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return draw()


@pytest.fixture
def exact() -> pd.DataFrame:
    """The grid of the notebook with exact means in place of sampled ones, known to 1 %."""
    rows = [(a, b, theory.mean_length([a, *[20] * 5, b])) for b in DIMENSIONS for a in DIMENSIONS]
    frame = pd.DataFrame(rows, columns=["n_0", "n_L", "exact"])
    frame["ratio"] = frame.n_L / frame.n_0
    frame["mean"], frame["nets"], frame["z"] = frame.exact, 1000, 0.0
    return frame.assign(low=0.99 * frame.exact, high=1.01 * frame.exact)


def test_a_row_for_every_pair(table):
    assert list(zip(table.n_0, table.n_L, strict=True)) == [
        (2, 1), (5, 1), (2, 5), (5, 5), (2, 20), (5, 20),
    ]  # fmt: skip
    assert table.ratio.tolist() == [0.5, 0.2, 2.5, 1, 10, 4]
    assert table.exact[3] == pytest.approx(0.80993, abs=5e-6)


def test_what_is_left_of_the_mean_is_the_output_constant(table):
    c = table.n_L.map({1: 0.797885, 5: 0.951533, 20: 0.987579})
    assert table.relative.to_numpy() == pytest.approx(table["mean"] / table.exact * c, rel=1e-5)


def test_pooling_keeps_the_mean_and_halves_the_variance(table):
    rows = table[table.n_L == 20]
    pooled = ratio.pooled(table).loc[20]
    assert pooled.relative == pytest.approx(rows.relative.mean())
    half = (rows.relative_high - rows.relative_low) / 2
    assert pooled.high - pooled.relative == pytest.approx(math.hypot(*half) / 2)


def test_same_seed_same_table_another_seed_another(table):
    pd.testing.assert_frame_equal(table, draw())
    assert (table["mean"] != draw(2)["mean"]).all()


def test_the_slope_in_the_input_dimension_is_one_half(exact):
    assert ratio.slopes(exact).exact["n_0 alone"] == pytest.approx(0.5, abs=1e-12)


def test_the_slope_in_the_output_dimension_has_that_of_its_constant(exact):
    x = np.log(DIMENSIONS[2:])
    by_hand = np.polyfit(x, [math.log(theory.output_constant(n)) for n in DIMENSIONS[2:]], 1)[0]
    found = ratio.slopes(exact)
    assert found.exact["n_L alone, n_L ≥ 5"] == pytest.approx(0.5 + by_hand, abs=1e-12)
    assert found.sampled.to_numpy() == pytest.approx(found.exact.to_numpy())


def test_the_interval_of_the_slope_is_that_of_least_squares(exact):
    row = ratio.slopes(exact).loc[ratio.JUDGED]
    x = np.log(exact[exact.n_L >= 5].ratio)
    half = 0.01 / math.sqrt(((x - x.mean()) ** 2).sum())
    assert row.high - row.sampled == pytest.approx(half)
    assert row.cells == len(x)


def test_verdicts(exact):
    def verdict(frame: pd.DataFrame) -> tuple[str, str]:
        (result,) = ratio.judge(frame)
        return result.id, result.verdict

    assert verdict(exact) == ("L4", "holds")
    steeper = exact.ratio**0.1
    doctored = exact.assign(**{key: exact[key] * steeper for key in ("mean", "low", "high")})
    assert verdict(doctored) == ("L4", "fails")
    assert verdict(exact.assign(z=4.0)) == ("L4", "fails")
    assert verdict(exact[exact.n_L >= 5]) == ("L4", "not run")
    assert verdict(exact[exact.n_L <= 2]) == ("L4", "not run")


def test_the_figure_has_two_panels(table):
    assert len(ratio.draw(table).axes) == 2
