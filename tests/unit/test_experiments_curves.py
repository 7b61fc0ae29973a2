"""Curves, biases and counting: exact means, reproducible samples, verdicts that can fail."""

import pandas as pd
import pytest

from paperlib.experiments import length_curves
from paperlib.experiments.length_curves import Study

PARAMETERS = {
    "n_0": 3,
    "width": 8,
    "depth": 4,
    "n_L": 2,
    "bias_vars": [0.0, 0.01, 1.0],
    "nets": 800,
    "set_depths": [1, 10],
    "set_nets": 1500,
    "points_depth": 5,
    "points": [2, 5, 33],
    "points_nets": 60,
    "seed": 7,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def study() -> Study:
    return length_curves.sample(**PARAMETERS)


def verdicts(study: Study) -> dict[str, str]:
    return {verdict.id: verdict.verdict for verdict in length_curves.judge(study)}


def test_exact_values_of_the_architectures():
    table = length_curves.exact_table(5, 20, 10, 5, [1, 5, 10])
    assert list(table.architecture[:2]) == ["5-[20]×10-5", "5-[20]×1-1"]
    assert list(table["exact mean"].round(4)) == [0.6894, 0.3455, 0.3037, 0.2585]


def test_cells_cover_every_curve_and_bias_variance(study):
    assert len(study.cells) == 15
    assert study.cells.groupby(["curve", "bias_var"]).ngroups == 15
    short = study.cells[(study.cells.curve == "short segment") & (study.cells.bias_var > 0)]
    assert (short.variance / short.ceiling).between(0.8, 1.2).all()


def test_without_biases_the_length_of_a_centred_segment_does_not_matter(study):
    table = length_curves.variance_table(study.cells)
    segments = table.loc[["short segment", "unit segment", "long segment"], 0.0]
    assert segments.max() / segments.min() < 1.3


def test_image_set_is_shorter_than_the_image(study):
    sets = study.sets
    assert (sets.set_mean < sets["mean"]).all()
    assert sets.deficit.is_monotonic_increasing


def test_more_points_measure_more_and_never_too_much(study):
    for _, rows in study.points.groupby("setting"):
        assert rows.ratio.is_monotonic_increasing
        assert rows.ratio.between(0, 1).all()


def test_two_points_suffice_for_a_linear_network():
    linear = length_curves.sample(**PARAMETERS | {"points_depth": 0, "nets": 100, "set_nets": 100})
    assert linear.points.ratio.to_numpy() == pytest.approx(1.0, abs=1e-12)


def test_committed_verdicts_come_out_on_a_small_sample_too(study):
    assert verdicts(study) == {"L6a": "holds", "L6b": "fails", "L16a": "holds", "L16b": "fails"}


@pytest.mark.parametrize(
    ("table", "columns", "value", "id", "verdict"),
    [
        ("sets", ["z"], 5.0, "L6a", "fails"),
        ("sets", ["deficit", "deficit_low", "deficit_high"], 0.05, "L6b", "holds"),
        ("cells", ["z"], 3.0, "L16a", "fails"),
        ("cells", ["plain_variance", "plain_low", "plain_high"], 0.2, "L16b", "holds"),
    ],
)
def test_a_doctored_table_changes_the_verdict(study, table, columns, value, id, verdict):
    doctored = getattr(study, table).copy()
    doctored[columns] = value
    assert verdicts(study._replace(**{table: doctored}))[id] == verdict


def test_without_ten_hidden_layers_the_image_set_is_not_judged(study):
    shallow = study._replace(sets=study.sets[study.sets.hidden < 10])
    assert verdicts(shallow)["L6b"] == "not run"


def test_same_seed_same_tables_and_another_seed_others():
    small = PARAMETERS | {"nets": 100, "set_nets": 100, "points_nets": 20}
    first, again = length_curves.sample(**small), length_curves.sample(**small)
    other = length_curves.sample(**small | {"seed": 8})
    for name, frame in first.frames().items():
        pd.testing.assert_frame_equal(frame, again.frames()[name])
        assert not frame.equals(other.frames()[name])


def test_figure_has_four_panels(study):
    assert len(length_curves.draw(study).axes) == 4
