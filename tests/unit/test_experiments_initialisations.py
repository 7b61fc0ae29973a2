"""Remarks on the initialisation: numbers known beforehand, tidy tables, and the verdicts."""

import math

import pandas as pd
import pytest

from paperlib.experiments import length_initialisations as figure
from paperlib.experiments import length_laws
from paperlib.length import theory

SCALES, SLOPES, DEPTHS = [0.5, 1.5], [0.1], [1, 4]


def draw_means(seed: int = 1) -> pd.DataFrame:
    return figure.sample(5, 20, 5, DEPTHS, SCALES, SLOPES, 1.0, 1000, seed, "cpu")


def draw_norms(seed: int = 1) -> pd.DataFrame:
    return figure.sample_square_norms(
        5, 20, 5, [1, 3], [0.0, 0.1, 1.0], math.sqrt(11.4), 2000, seed, "cpu"
    )


def draw_deviations(seed: int = 1) -> pd.DataFrame:
    return figure.sample_deviations(5, 20, 5, 3, 1.5, 1.0, 300, seed)


@pytest.fixture(scope="module")
def means() -> pd.DataFrame:
    return draw_means()


@pytest.fixture(scope="module")
def norms() -> pd.DataFrame:
    return draw_norms()


@pytest.fixture(scope="module")
def deviations() -> pd.DataFrame:
    return draw_deviations()


def verdicts(means, deviations, norms) -> dict[str, str]:
    return {v.id: v.verdict for v in figure.judge(means, deviations, norms)}


def test_means_are_tidy(means):
    assert means.family.tolist() == (
        ["scale"] * 4 + ["output"] * 6 + ["torch-default"] * 2 + ["slope"]
    )
    assert means.hidden.tolist() == [*DEPTHS * 6, 4]
    assert means.z.isna().tolist() == (means.family == "torch-default").tolist()
    assert (means.z.dropna().abs() < 4).all()


def test_exact_means_of_the_output_layers(means):
    output = means[means.family == "output"].set_index(["setting", "hidden"])
    assert output.exact["linear-he", 1] == pytest.approx(1.303, abs=5e-4)
    assert output.exact["linear-he", 4] == pytest.approx(1.183, abs=5e-4)
    assert output.bound["linear", 1] == pytest.approx(0.9515, abs=5e-5)
    assert output.exact["relu", 1] == pytest.approx(0.869781 / 0.951533 * 0.92136, abs=5e-5)


def test_pytorch_s_default_collapses():
    table = figure.sample(5, 20, 5, [5], [], [], 1.0, 3000, 1, "cpu")
    row = table[table.family == "torch-default"].iloc[0]
    assert row.exact == pytest.approx(0.00530, abs=5e-6)
    assert row.low < 0.00545 + 0.00009
    assert row.high > 0.00545 - 0.00009


def test_square_norms(norms):
    exact = norms[norms.hidden == 3].set_index("bias_var").exact
    assert exact.to_dict() == pytest.approx({0.0: 11.40, 0.1: 12.65, 1.0: 23.90})
    assert (norms.z.abs() < 4).all()


@pytest.mark.parametrize("widths", [[5, 20, 20, 5], [3, 4, 2]])
def test_standard_deviation_of_the_square_norm_without_biases_is_known_from_moments(widths):
    # without biases N(x) = J_x x, whose moments are those of a tangent vector
    fourth, square = theory.moment_bound(widths, 4), theory.moment_bound(widths, 2)
    expected = 1.5**2 * math.sqrt(fourth - square**2)
    assert figure.square_norm_sd(widths, 1.5, 0.0) == pytest.approx(expected, rel=1e-10)


def test_standard_deviation_of_one_layer_of_biases():
    # x = 0: N is a Gaussian vector of variance C_b, its square C_b χ²_5
    assert figure.square_norm_sd([3, 5], 0.0, 0.7) == pytest.approx(0.7 * math.sqrt(10))


def test_deviations(deviations):
    worst = deviations.groupby("treatment").deviation.max()
    assert worst["no biases"] < 1e-13
    assert worst["layer ℓ's bias × c^ℓ"] < 1e-13
    median = deviations.groupby("treatment").deviation.median()
    assert 0.3 < median["all biases × c"] < 0.7


def test_leaky_rates():
    table = figure.leaky_table([0, 0.1, 0.2, 0.5, 1], 5, 2000, 5, 3)
    rates = [0.625, 0.610, 0.570, 0.385, 0.25]
    assert table["rate as n → ∞"].tolist() == pytest.approx(rates, abs=5e-4)
    assert table["rate at this width"].tolist() == pytest.approx(rates, abs=1e-3)


def test_same_seed_same_tables_another_seed_others(means, norms, deviations):
    for table, draw in ((means, draw_means), (norms, draw_norms), (deviations, draw_deviations)):
        pd.testing.assert_frame_equal(draw(), table)
        assert not draw(2).equals(table)


def test_verdicts(means, deviations, norms):
    assert verdicts(means, deviations, norms) == {
        "L3b": "holds",
        "L7a": "fails",
        "L7b": "holds",
        "L8": "holds",
    }


def test_doctored_tables_fail(means, deviations, norms):
    lower = means.assign(**{c: means[c] / 2 for c in ("mean", "low", "high")})
    assert verdicts(lower, deviations, norms)["L3b"] == "fails"
    assert verdicts(means.assign(z=means.z + 5), deviations, norms)["L7b"] == "fails"
    biased = norms.z.where(norms.bias_var == 0, 6.0)
    assert verdicts(means, deviations, norms.assign(z=biased))["L8"] == "fails"
    exact = deviations.assign(deviation=1e-15)
    assert verdicts(means, exact, norms)["L7a"] == "holds"


def test_the_figure_has_six_panels(means, deviations, norms):
    rates = length_laws.sample_rates(5, [10, 20], 3, 20, 1, "cpu")
    directions = length_laws.sample_directions(5, 10, 5, [1, 2], 50, 1, "cpu")
    fig = figure.draw(means, deviations, norms, rates, directions)
    assert len(fig.axes) == 6
