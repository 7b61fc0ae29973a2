"""Notebook files read as plain JSON, which is all that planning and reusing need.

nbformat takes seconds to import and is left to what executes or rewrites notebooks.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paperlib.running.errors import Refused


@dataclass(frozen=True)
class CodeCell:
    """Source and tags of one code cell."""

    source: str
    tags: tuple[str, ...]


def load(path: Path) -> dict[str, Any]:
    """The content of the notebook file `path`.

    Raises:
        Refused: it cannot be read, or is no notebook of format 4.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path.name} is no valid notebook: {error}") from None
    if not isinstance(content, dict) or content.get("nbformat") != 4 or "cells" not in content:
        raise Refused(f"{path.name} is no notebook of format 4")
    if not _is_well_formed(content):
        raise Refused(f"{path.name} is no valid notebook: its metadata or a cell is malformed")
    return content


def _is_well_formed(content: Mapping[str, Any]) -> bool:
    return (
        isinstance(content.get("metadata"), dict)
        and isinstance(content.get("nbformat_minor"), int)
        and isinstance(content["cells"], list)
        and all(map(_is_cell, content["cells"]))
    )


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not isinstance(cell.get("metadata"), dict):
        return False
    kind, tags = cell.get("cell_type"), cell["metadata"].get("tags", [])
    if kind == "code" and not isinstance(cell.get("outputs"), list):
        return False
    return (
        kind in ("code", "markdown", "raw")
        and (isinstance(cell.get("source"), str) or _are_texts(cell.get("source")))
        and _are_texts(tags)
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def code_cells(content: Mapping[str, Any]) -> list[CodeCell]:
    """The code cells of a notebook, in order."""
    return [
        CodeCell(_text(cell["source"]), tuple(cell["metadata"].get("tags", ())))
        for cell in content["cells"]
        if cell["cell_type"] == "code"
    ]


def title(content: Mapping[str, Any]) -> str:
    """The first heading of a notebook, or nothing."""
    texts = (_text(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "markdown")
    lines = (line for text in texts for line in text.splitlines())
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), "")


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
