import pytest

from paperlib.running.errors import Refused
from paperlib.running.reference import deviations, read_tolerances

DEFAULT = {"default": {"rtol": 1e-3, "atol": 0.0}}
TEXT = "width,mean,law\n5,1.0,gaussian\n20,2.0,uniform\n"


@pytest.fixture
def compare(tmp_path):
    reference = tmp_path / "reference" / "fig.csv"
    reference.parent.mkdir()
    reference.write_text(TEXT)

    def against(text, tolerances=DEFAULT):
        produced = tmp_path / "fig.csv"
        produced.write_text(text)
        return deviations(produced, reference, tolerances)

    return against


def test_equal_data_pass(compare):
    assert compare(TEXT) == []


def test_noise_within_the_tolerance_passes(compare):
    assert compare(TEXT.replace("2.0", "2.0019")) == []


def test_a_number_outside_names_row_column_and_both_values(compare):
    assert compare(TEXT.replace("2.0", "2.1")) == [
        "fig.csv: row 2, column mean: 2.1 against 2.0, allowed 0.001 relative + 0"
    ]


def test_another_text_fails(compare):
    assert compare(TEXT.replace("uniform", "laplace")) == [
        "fig.csv: row 2, column law: laplace against uniform"
    ]


def test_an_empty_place_is_no_number(compare):
    assert len(compare(TEXT.replace("2.0", ""))) == 1


def test_a_missing_column_fails(compare):
    text = "\n".join(line.rpartition(",")[0] for line in TEXT.splitlines())
    assert compare(text) == ["fig.csv: columns differ: missing ['law'], unexpected []"]


def test_a_missing_row_fails(compare):
    assert compare(TEXT.rsplit("20", 1)[0]) == ["fig.csv: 1 rows, the reference has 2"]


def test_a_missing_file_fails(tmp_path):
    assert deviations(tmp_path / "a.csv", tmp_path / "r.csv", DEFAULT) == ["a.csv: was not made"]


@pytest.mark.parametrize(
    "own", [{"rtol": 0.1}, {"mean": {"rtol": 0.1}}, {"mean": {"ignore": True}}]
)
def test_a_file_or_a_column_may_have_its_own_tolerance(compare, own):
    assert compare(TEXT.replace("2.0", "2.1"), {**DEFAULT, "fig": own}) == []


def test_a_tolerance_for_a_column_that_is_not_there_fails(compare):
    assert compare(TEXT, {**DEFAULT, "fig": {"maen": {"rtol": 0.1}}}) == [
        "fig.csv: tolerance for an unknown column maen"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fgi]\nrtol = 1.0", "unknown table 'fgi'; did you mean 'fig'"),
        ("[fig]\nrtoll = 1.0", "unknown setting 'rtoll'; did you mean 'rtol'"),
        ("[fig.mean]\nrelative = 1.0", "unknown setting 'relative'"),
    ],
)
def test_a_misspelt_tolerance_is_refused(tmp_path, text, message):
    path = tmp_path / "tolerances.toml"
    path.write_text(text)
    with pytest.raises(Refused, match=message):
        read_tolerances(path, ["fig"])
