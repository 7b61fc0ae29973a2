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
        Refused: it is no notebook of format 4.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Refused(f"{path.name} is no valid notebook: {error}") from None
    if not isinstance(content, dict) or content.get("nbformat") != 4 or "cells" not in content:
        raise Refused(f"{path.name} is no notebook of format 4")
    return content


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
