"""Other weight laws: rates against the exact one, first-layer numbers, and the verdicts."""

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments import length_laws
from paperlib.length import jacobian


def draw_rates(seed: int = 1) -> pd.DataFrame:
    return length_laws.sample_rates(5, [10, 20], 4, 400, seed, "cpu")


@pytest.fixture(scope="module")
def rates() -> pd.DataFrame:
    return draw_rates()


@pytest.fixture(scope="module")
def directions() -> pd.DataFrame:
    return length_laws.sample_directions(5, 20, 5, [5], 2500, 1, "cpu")


def test_gaussian_rates_are_the_exact_ones(rates):
    rows = rates[rates.law == "gaussian"]
    error = (rows.high - rows.low) / (2 * 1.96)
    assert ((rows.rate - rows.gaussian).abs() < 4 * error).all()
    assert rows.gaussian.tolist() == pytest.approx([0.625 + 0.375 / n for n in (10, 20)], rel=5e-3)


def test_losses_give_the_mean_of_the_product():
    # the plain mean of the stretch, from other networks and another sampler
    widths, nets = [5, 20, 20, 20], 1000
    losses = length_laws._losses(5, 20, 3, nets, 3, "laplace", "cpu")
    norms = jacobian.sample_layer_norms([*widths, 1], 5000, 4, weight_law="laplace")[:, :3]
    stretch = norms.prod(dim=1).numpy() * np.sqrt(5 / 20)
    error = np.hypot(losses.sum(axis=1).std() / nets**0.5, stretch.std() / 5000**0.5)
    assert 1 - losses.sum(axis=1).mean() == pytest.approx(stretch.mean(), abs=4 * error)


def test_light_tails_slow_the_decay_and_heavy_tails_speed_it(rates):
    at_20 = rates[rates.width == 20].set_index("law")
    assert at_20.change_high["rademacher"] < 0 < at_20.change_low["laplace"]
    assert at_20.change_low["sparse"] > 1
    assert at_20.first_order["laplace"] == pytest.approx(0.36)


def test_narrower_widths_get_more_networks(rates):
    assert rates.groupby("width").nets.first().to_dict() == {10: 800, 20: 400}


@pytest.mark.parametrize(
    ("law", "known", "half"),
    [
        ("gaussian", 0.80993, 0.0),
        ("uniform", 0.835, 0.005),
        ("rademacher", 0.852, 0.005),
        ("laplace", 0.744, 0.005),
        ("sparse", 0.121, 0.008),
    ],
)
def test_means_along_an_axis(directions, law, known, half):
    row = directions[(directions.law == law) & (directions.direction == "e_1")].iloc[0]
    # both numbers are measured; a test of five laws uses wider intervals than 95 %
    assert abs(row["mean"] - known) < 1.6 * np.hypot(half, row.high - row["mean"])


def test_the_gaussian_law_knows_no_direction(directions):
    grid = length_laws.direction_grid(directions)
    assert grid.loc["gaussian", 5] == pytest.approx(1, abs=0.06)
    assert grid.loc["sparse", 5] < 0.8
    assert list(grid.index) == list(length_laws.EXCESS_KURTOSIS)


def test_same_seed_same_table_another_seed_another(rates):
    pd.testing.assert_frame_equal(draw_rates(), rates)
    assert not draw_rates(2).equals(rates)


def test_verdicts_come_from_both_ends_of_the_widths(rates):
    columns = ["change", "change_low", "change_high"]
    narrow, wide = rates.width.min(), rates.width.max()
    doctored = rates.copy()
    doctored[columns] = [0.02, 0.01, 0.03]
    doctored.loc[(doctored.width == narrow) & (doctored.law == "laplace"), columns] = 0.2
    doctored.loc[(doctored.width == wide) & (doctored.law == "sparse"), columns] = 0.2
    assert {v.id: v.verdict for v in length_laws.judge(doctored)} == {
        "L13-uniform": "holds",
        "L13-rademacher": "holds",
        "L13-laplace": "fails",
        "L13-sparse": "fails",
    }
