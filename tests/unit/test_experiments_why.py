"""§4's tables and verdicts: exact probabilities, reproducible samples, verdicts that can fail."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from paperlib.experiments import length_why
from paperlib.experiments.length_why import Study

PARAMETERS = {
    "widths": [10, 40],
    "depths": [10, 20],
    "nets": 400,
    "constants": [5, 10],
    "growth_widths": [10, 20],
    "growth_nets": 20,
    "overlap_width": 8,
    "overlap_nets": 500,
    "law_widths": [3, 6, 6, 3],
    "law_nets": 20000,
    "angle_nets": 400,
    "seed": 7,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def study() -> Study:
    return length_why.sample(**PARAMETERS)


def verdicts(study: Study) -> dict[str, str]:
    return {verdict.id: verdict.verdict for verdict in length_why.judge(study)}


def test_all_layers_within_c_over_n_at_width_one():
    # one neuron: √2 |g| with probability ½, else 0
    one = 0.5 + 0.5 * math.erf(math.exp(0.3) / 2)
    assert length_why.within_probability(1, 0.3, 4) == pytest.approx(one**4, rel=1e-12)


def test_no_constant_serves_all_widths():
    table = length_why.within_table([20, 50], [100, 1000, 10000], hidden=50)
    assert table.loc[20, 1000] < 0.001
    assert table.loc[50, 1000] == pytest.approx(0.025, abs=0.002)
    assert (table[10000] < 1e-6).all()


def test_sampled_probabilities_meet_the_exact_ones(study):
    inside = study.layers.exact.between(study.layers.low, study.layers.high)
    assert inside.sum() >= len(inside) - 1


def test_products_meet_the_log_normal_limit(study):
    wide = study.products[study.products.width == 40]
    assert np.allclose(wide["sd"], wide.predicted_sd, rtol=0.2)
    assert list(study.products[study.products.judged].hidden) == [10, 20, 10, 20]


def test_worst_case_bounds_the_norm_of_the_product(study):
    growth = study.growth
    assert (growth.jacobian <= growth.worst * (1 + 1e-9)).all()
    assert growth.worst_low.le(growth.worst).all() and growth.worst.le(growth.worst_high).all()


def test_committed_verdicts_come_out_on_a_small_sample_too(study):
    assert verdicts(study) == {"L11": "fails", "L11b": "holds", "L18": "holds", "L20": "holds"}


@pytest.mark.parametrize(
    ("table", "column", "change", "id", "verdict"),
    [
        ("layers", ["probability", "low", "high"], lambda x: 0 * x + 0.5, "L11", "holds"),
        ("products", ["median", "low", "high"], lambda x: 3 * x, "L11b", "fails"),
        ("growth", ["worst", "worst_low", "worst_high"], lambda x: 0 * x + 0.5, "L18", "fails"),
        ("tests", ["p_value"], lambda x: 0 * x, "L18", "fails"),
        ("angles", ["mean", "low", "high"], lambda x: x + 0.1, "L20", "fails"),
    ],
)
def test_a_doctored_table_changes_the_verdict(study, table, column, change, id, verdict):
    doctored = getattr(study, table).copy()
    doctored[column] = change(doctored[column])
    assert verdicts(study._replace(**{table: doctored}))[id] == verdict


def test_same_seed_same_tables_and_another_seed_others(study):
    small = PARAMETERS | {"law_nets": 200, "nets": 50}
    first, again = length_why.sample(**small), length_why.sample(**small)
    other = length_why.sample(**small | {"seed": 8})
    for name, frame in first.frames().items():
        pd.testing.assert_frame_equal(frame, again.frames()[name])
        assert not frame.equals(other.frames()[name])


def test_networks_that_are_all_off_are_borne():
    narrow = {"widths": [1, 2], "depths": [60], "nets": 30, "growth_widths": [4], "law_nets": 50}
    study = length_why.sample(**PARAMETERS | narrow)
    assert study.products["median"].iloc[-1] == -np.inf
    assert verdicts(study)["L11b"] == "fails"
    assert isinstance(length_why.draw(study), Figure)


def test_figure_has_six_panels(study):
    assert len(length_why.draw(study).axes) == 6
