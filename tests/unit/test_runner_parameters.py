import pytest

from paperlib.running.errors import Refused
from paperlib.running.notebooks import CodeCell
from paperlib.running.parameters import defaults, from_text, override


def cells(source, *more):
    return [CodeCell(text, ("parameters",)) for text in (source, *more)]


def test_defaults_are_read_without_running_anything():
    source = """
# how many networks
nets: int = 500
widths = [5, 20]  # hidden
pair = (1, 2.5)
rate = -1e-3
device = "cpu"
cap = None
"""
    assert defaults(cells(source), "x") == {
        "nets": 500,
        "widths": [5, 20],
        "pair": (1, 2.5),
        "rate": -0.001,
        "device": "cpu",
        "cap": None,
    }


def test_no_parameters_cell_is_refused():
    with pytest.raises(Refused, match="no code cell tagged 'parameters'; exactly one"):
        defaults([CodeCell("nets = 1", ())], "x")


def test_two_parameters_cells_are_refused():
    with pytest.raises(Refused, match="2 code cells tagged"):
        defaults(cells("a = 1", "b = 1"), "x")


@pytest.mark.parametrize("source", ["import os", "a = b = 1", "a, b = 1, 2", "a: int", "f()"])
def test_only_plain_assignments_are_parameters(source):
    with pytest.raises(Refused, match="may hold only 'name = literal'"):
        defaults(cells(source), "x")


@pytest.mark.parametrize("source", ["a = 2**10", "a = range(3)", "a = f'{1}'"])
def test_a_default_must_be_a_literal(source):
    with pytest.raises(Refused, match="default of parameter a must be a literal"):
        defaults(cells(source), "x")


def test_broken_python_is_refused():
    with pytest.raises(Refused, match="no valid Python"):
        defaults(cells("a = ("), "x")


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(Refused, match="unknown parameter 'net'; did you mean 'nets'"):
        override({"nets": 1, "seed": 0}, {"net": 2}, "x")


@pytest.mark.parametrize(
    ("default", "value", "result"),
    [
        (1, 2, 2),
        (1.0, 2, 2.0),
        ("a", "b", "b"),
        (True, False, False),
        (None, [1, "x"], [1, "x"]),
        ([1, 2], [3], [3]),
        ([1.0], [2, 3], [2.0, 3.0]),
        ((1, 2), [3, 4, 5], (3, 4, 5)),
        ([[1, 2]], [[3], [4, 5]], [[3], [4, 5]]),
        ([], ["anything"], ["anything"]),
        ([1, "auto"], ["auto", 5], ["auto", 5]),
    ],
)
def test_values_of_the_default_s_type_pass(default, value, result):
    found = override({"p": default}, {"p": value}, "x")["p"]
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("default", "value"),
    [
        (1, 2.0),
        (1, "2"),
        (1, True),
        (1.0, True),
        (True, 1),
        ("a", 1),
        ("a", None),
        ([1], 1),
        ([1], [1.5]),
        ([1], [True]),
        ([[1]], [1]),
        (1, [1]),
    ],
)
def test_a_value_of_another_type_is_refused(default, value):
    with pytest.raises(Refused, match="parameter p: expected"):
        override({"p": default}, {"p": value}, "x")


def test_yaml_s_text_for_a_float_is_refused_with_what_to_write():
    with pytest.raises(Refused, match=r"YAML reads this as text, write 0\.001 without quotes"):
        override({"lr": 0.1}, {"lr": "1e-3"}, "x")


@pytest.mark.parametrize("value", ["1e3", 1000.0])
def test_an_integer_in_another_spelling_is_refused_with_what_to_write(value):
    with pytest.raises(Refused, match=r"expected int .*; write 1000$"):
        override({"nets": 1}, {"nets": value}, "x")


@pytest.mark.parametrize("value", [1.5, "a", "nan", "1e999"])
def test_no_integer_is_proposed_where_there_is_none(value):
    with pytest.raises(Refused, match=r"got (float|str) \S+$"):
        override({"nets": 1}, {"nets": value}, "x")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, [-float("inf")]]])
def test_numbers_that_are_not_finite_are_refused(value):
    default = 1.0 if isinstance(value, float) else None
    with pytest.raises(Refused, match=r"parameter p: .* not allowed, give a finite number"):
        override({"p": default}, {"p": value}, "x")


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("100", 1, 100),
        ("1e-3", 0.1, 0.001),
        ("[5, 20]", [1], [5, 20]),
        ("true", False, True),
        ("100", "a", "100"),
        ("circle", "segment", "circle"),
        ("circle", 1, "circle"),
    ],
)
def test_values_from_the_command_line(text, default, value):
    assert from_text(text, default) == value


def test_an_unreadable_value_from_the_command_line_is_refused():
    for text in ("[1, ", "2020-13-45"):
        with pytest.raises(Refused, match="cannot read"):
            from_text(text, [1])
