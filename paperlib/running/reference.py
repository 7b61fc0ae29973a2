"""Data of figures against the reference data, within stated tolerances."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperlib.running.errors import require_known

SETTINGS = ("rtol", "atol", "ignore")


def read_tolerances(path: Path, references: list[str]) -> dict[str, Any]:
    """Tolerances by csv name, with those of its columns inside; see `deviations`.

    Raises:
        Refused: a table is meant for no reference file, or a setting is unknown.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, table in tables.items():
        require_known(path.name, "table", name, ["default", *references])
        for settings in (table, *(v for v in table.values() if isinstance(v, dict))):
            for setting in (k for k, v in settings.items() if not isinstance(v, dict)):
                require_known(path.name, "setting", setting, SETTINGS)
    return tables


def deviations(produced: Path, reference: Path, tolerances: dict[str, Any]) -> list[str]:
    """How the csv file `produced` departs from `reference`; empty where it does not.

    Numbers may differ by atol + rtol·|reference|; text and empty places must agree.

    Args:
        tolerances: as `read_tolerances` gives them. The table of the file goes over `default`, the
            table of a column within it over both.
    """
    if not produced.is_file():
        return [f"{produced.name}: was not made"]
    new, old = pd.read_csv(produced), pd.read_csv(reference)
    if list(new.columns) != list(old.columns):
        missing = [name for name in old if name not in new]
        extra = [name for name in new if name not in old]
        return [f"{produced.name}: columns differ: missing {missing}, unexpected {extra}"]
    if len(new) != len(old):
        return [f"{produced.name}: {len(new)} rows, the reference has {len(old)}"]
    own = tolerances.get(reference.stem, {})
    found = []
    for column in old.columns:
        settings = {**tolerances["default"], **own, **own.get(column, {})}
        if not settings.get("ignore", False):
            found += _column(new, old, column, settings, produced.name)
    unknown = [n for n, v in own.items() if isinstance(v, dict) and n not in old.columns]
    found += [f"{produced.name}: tolerance for an unknown column {name}" for name in unknown]
    return found


def _column(
    new: pd.DataFrame, old: pd.DataFrame, column: str, settings: dict[str, Any], name: str
) -> Iterator[str]:
    a, b = new[column], old[column]
    if pd.api.types.is_numeric_dtype(a) and pd.api.types.is_numeric_dtype(b):
        x, y = a.to_numpy(np.float64), b.to_numpy(np.float64)
        rtol, atol = settings["rtol"], settings["atol"]
        bad = ~np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
        allowed = f", allowed {rtol:g} relative + {atol:g}"
    else:
        bad = ~((a == b) | (a.isna() & b.isna())).to_numpy()
        allowed = ""
    rows = np.flatnonzero(bad)
    if len(rows):
        row = rows[0]
        more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
        place = f"row {row + 1}, column {column}"
        yield f"{name}: {place}: {a[row]} against {b[row]}{allowed}{more}"
