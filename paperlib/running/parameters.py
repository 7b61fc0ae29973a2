"""A notebook's parameters: read from its one `parameters` cell, and overridden with care.

papermill itself lets an unknown name or a wrong type pass with a warning at most, and the default
wins; here every override is checked before a kernel starts.
"""

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from paperlib.running.errors import Refused, require_known
from paperlib.running.notebooks import CodeCell

TAG = "parameters"


def parameters_cell(cells: Sequence[CodeCell], name: str) -> CodeCell:
    """The one cell tagged `parameters` among the `cells` of the notebook called `name`.

    Raises:
        Refused: no cell carries the tag, or more than one does.
    """
    tagged = [cell for cell in cells if TAG in cell.tags]
    if len(tagged) != 1:
        found = "no code cell" if not tagged else f"{len(tagged)} code cells"
        raise Refused(f"{name}: {found} tagged '{TAG}'; exactly one is needed")
    return tagged[0]


def defaults(cells: Sequence[CodeCell], name: str) -> dict[str, Any]:
    """Names and default values in the parameters cell, in its order.

    Raises:
        Refused: the cell is missing or doubled, or holds anything but `name = literal` lines.
    """
    source = parameters_cell(cells, name).source
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise Refused(f"{name}: the parameters cell is no valid Python: {error}") from None
    values: dict[str, Any] = {}
    for statement in body:
        target, value = _assignment(statement)
        if target is None or value is None:
            text = ast.get_source_segment(source, statement)
            raise Refused(f"{name}: the parameters cell may hold only 'name = literal', not {text}")
        try:
            values[target] = ast.literal_eval(value)
        except ValueError:
            text = ast.get_source_segment(source, value)
            raise Refused(
                f"{name}: the default of parameter {target} must be a literal, not: {text}"
            ) from None
    return values


def _assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value):
            return target, value
        case ast.AnnAssign(target=ast.Name(id=target), value=value):
            return target, value
    return None, None


def override(known: Mapping[str, Any], overrides: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`known` defaults with `overrides` put over them.

    An int is accepted for a float, a list for a tuple, and anything for a default of None.

    Raises:
        Refused: a parameter is unknown, or its value has another type than the default or holds a
            number that is not finite.
    """
    values = dict(known)
    for key, value in overrides.items():
        require_known(name, "parameter", key, known)
        try:
            values[key] = _like(value, known[key])
            _require_finite(values[key])
        except (TypeError, ValueError) as error:
            raise Refused(f"{name}: parameter {key}: {error}") from None
    return values


def _like(value: Any, default: Any) -> Any:
    """`value` in the type of `default`; TypeError where it has another one."""
    if default is None:
        return value
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list | tuple) and isinstance(value, list | tuple):
        return type(default)(_like_one_of(item, default) for item in value)
    if type(value) is type(default):
        return value
    raise TypeError(
        f"expected {type(default).__name__} like the default {default!r}, "
        f"got {type(value).__name__} {value!r}{_hint(value, default)}"
    )


def _require_finite(value: Any) -> None:
    """ValueError where `value` is NaN or infinite, or holds such a number."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not allowed, give a finite number")
    items = value.values() if isinstance(value, dict) else value
    if isinstance(items, Iterable) and not isinstance(items, str | bytes):
        for item in items:
            _require_finite(item)


def _like_one_of(item: Any, defaults: list[Any] | tuple[Any, ...]) -> Any:
    problem: TypeError | None = None
    for default in defaults:
        try:
            return _like(item, default)
        except TypeError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return item


def _hint(value: Any, default: Any) -> str:
    """What to write where `value` is a number of the default's type in another spelling."""
    if type(value) not in (str, float) or type(default) not in (int, float):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    if not math.isfinite(number) or (type(default) is int and not number.is_integer()):
        return ""
    if type(default) is int:
        return f"; write {int(number)}"
    # YAML 1.1 takes 1e-3 for text, since it lacks the point.
    return f"; YAML reads this as text, write {number!r} without quotes and with a point"


def from_text(text: str, default: Any) -> Any:
    """A value typed on the command line: text stays text where the default is text.

    Anything else is read as a Python literal, and where that fails as YAML (`true`, `[a, b]`).

    Raises:
        Refused: the text is neither.
    """
    if isinstance(default, str):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        pass
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        raise Refused(f"cannot read {text!r}: write a number, a text or [a, list]") from None
