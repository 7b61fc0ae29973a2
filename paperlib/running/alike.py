"""Whether two sets of a figure's files show the same result, computed here or on another machine.

Another processor rounds sums in another order: the data then differ in their last digits, and by
less than `tests/reference` allows for data that are not trained. Training magnifies rounding, so
data of trained networks differ by more, which is a change like any other.
"""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Fields of a figure's json that tell where it was computed, and by which state of the sources.
PROVENANCE = ("device", "key", "threads", "versions")

RTOL, ATOL = 1e-3, 1e-6  # as [default] in tests/reference/tolerances.toml
Z_ATOL = 5e-3  # of z scores, which lie near 0
POINTS = 0.5  # that a mark of a picture may be moved by

# Attributes of an svg that hold coordinates, and those that hold names made of a drawing's content.
_PLACES = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')
_NAMES = re.compile(r'(?:\bid="|href="#|url\(#)[^")]*')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_PNG_SIZE = slice(16, 24)  # bytes of width and height in the header


def same_result(pairs: Sequence[tuple[Path, Path]]) -> bool:
    """Whether the files of each pair (new, old) hold the same result; both must be there.

    - csv: equal text, and numbers within 0.1 % (z scores: columns `z` and `…_z`, within 0.005).
    - json: equal parameters and verdicts, and measured values within 0.1 %. What it says about
      machine and sources plays no part, nor does the reason of a verdict, which repeats the values.
    - svg: equal where all csv files are, and else drawn alike: equal but for coordinates, and
      those within half a point.
    - png: equal, or of the same size beside an svg that is drawn alike.

    Pictures may differ, too, where the same sources met other versions of what draws them.
    """
    tables, records, vectors, pixels = (
        [pair for pair in pairs if pair[0].suffix == suffix]
        for suffix in (".csv", ".json", ".svg", ".png")
    )
    others = [pair for pair in pairs if pair not in tables + records + vectors + pixels]
    read = [(_record(new), _record(old)) for new, old in records]
    if not (
        all(map(_same_bytes, others))
        and all(_same_table(*pair) for pair in tables)
        and all(_same_record(*pair) for pair in read)
    ):
        return False
    if read and all(
        new.get("key") == old.get("key") and new.get("versions") != old.get("versions")
        for new, old in read
    ):
        return True
    exact = all(map(_same_bytes, tables))
    alike = {
        pair[0].stem: _same_bytes(pair) or (not exact and _drawn_alike(*pair)) for pair in vectors
    }
    return all(alike.values()) and all(
        _same_bytes(pair) or (alike.get(pair[0].stem, False) and _same_size(*pair))
        for pair in pixels
    )


def _same_bytes(pair: tuple[Path, Path]) -> bool:
    return pair[0].read_bytes() == pair[1].read_bytes()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _same_table(new: Path, old: Path) -> bool:
    rows = [list(csv.reader(_text(path).splitlines())) for path in (new, old)]
    if len(rows[0]) != len(rows[1]) or rows[0][:1] != rows[1][:1]:
        return False
    names = rows[0][0] if rows[0] else []
    return all(
        len(a) == len(b) == len(names) and all(map(_same_cell, names, a, b))
        for a, b in zip(rows[0][1:], rows[1][1:], strict=True)
    )


def _same_cell(name: str, a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        return _close(float(a), float(b), Z_ATOL if re.fullmatch(r"(.*_)?z", name) else ATOL)
    except ValueError:
        return False


def _close(a: float, b: float, atol: float = ATOL) -> bool:
    return a == b or abs(a - b) <= atol + RTOL * min(abs(a), abs(b))


def _record(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _same_record(new: dict[str, Any], old: dict[str, Any]) -> bool:
    try:
        return _fixed(new) == _fixed(old) and all(
            a == b or (isinstance(a, float) and isinstance(b, float) and _close(a, b))
            for a, b in zip(_measured(new), _measured(old), strict=True)
        )
    except (AttributeError, TypeError, ValueError):  # claims that somebody has edited
        return False


def _fixed(record: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: all but the provenance, and of claims all but numbers."""
    fixed = {name: value for name, value in record.items() if name not in PROVENANCE}
    claims = [dict(claim) for claim in record.get("claims", [])]
    for claim in claims:
        claim.pop("reason", None)
        claim["measured"] = {name: len(m) for name, m in claim.get("measured", {}).items()}
    return fixed | {"claims": claims}


def _measured(record: dict[str, Any]) -> list[Any]:
    return [
        number
        for claim in record.get("claims", [])
        for _, numbers in sorted(claim.get("measured", {}).items())
        for number in numbers
    ]


def _drawn_alike(new: Path, old: Path) -> bool:
    texts = [_NAMES.sub("", _text(path)) for path in (new, old)]
    marks = [_PLACES.sub(lambda place: _NUMBER.sub("#", place[0]), text) for text in texts]
    if marks[0] != marks[1]:
        return False
    places = [
        [float(number) for place in _PLACES.findall(text) for number in _NUMBER.findall(place)]
        for text in texts
    ]
    return all(abs(a - b) <= POINTS for a, b in zip(*places, strict=True))


def _same_size(new: Path, old: Path) -> bool:
    return new.read_bytes()[_PNG_SIZE] == old.read_bytes()[_PNG_SIZE]
