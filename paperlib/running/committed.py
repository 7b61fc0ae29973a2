"""Committed notebooks: what keeps them comparable and quiet in git, and how they get outputs."""

import copy
import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

from paperlib.running.errors import Refused
from paperlib.running.execute import INJECTED
from paperlib.running.notebooks import code_cells
from paperlib.running.parameters import defaults

MAX_LINES = 25
# What nbval takes as a comment line of its own, or in small letters with dashes as a tag.
MARKERS = ("NBVAL_IGNORE_OUTPUT", "NBVAL_CHECK_OUTPUT", "NBVAL_SKIP")
TAGS = {marker.lower().replace("_", "-"): marker for marker in MARKERS}
UNCOMPARED = ("NBVAL_IGNORE_OUTPUT", "NBVAL_SKIP")
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/])/(?:home|root|Users|tmp|var|usr|opt|mnt|private|work|data|scratch)/\S*"
)


def problems(notebook: NotebookNode, name: str) -> list[str]:
    """What is wrong with a committed notebook; empty where nothing is."""
    found = list(_metadata_problems(notebook))
    try:
        defaults(code_cells(notebook), name)
    except Refused as error:
        found.append(str(error).removeprefix(f"{name}: "))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(cells, 1):
        found += (f"code cell {number}: {problem}" for problem in _cell_problems(cell))
    if not any(cell.outputs and not _ignored(cell) for cell in cells):
        found.append("no cell has an output that is compared; run make refresh")
    return found


def _metadata_problems(notebook: NotebookNode) -> Iterator[str]:
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != KERNELSPEC["name"]:
        yield f"kernelspec is {kernel!r}, not 'python3'"
    extra = set(notebook.metadata) - {"kernelspec", "language_info"}
    if extra:
        yield f"metadata of a run or an editor: {', '.join(sorted(extra))}"
    if "version" in notebook.metadata.get("language_info", {}):
        yield "language_info names a Python version"


def _cell_problems(cell: NotebookNode) -> Iterator[str]:
    extra = set(cell.metadata) - {"tags"}
    if extra:
        yield f"metadata of a run or an editor: {', '.join(sorted(extra))}"
    lines = cell.source.count("\n") + 1
    if lines > MAX_LINES:
        yield f"{lines} lines, more than {MAX_LINES}"
    if cell.execution_count is None:
        yield "was never run; run make refresh"
    for mark, text in _marks(cell):
        if mark not in MARKERS:
            yield f"{text!r} marks nothing; nbval wants the bare word, one of {', '.join(MARKERS)}"
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"holds the error {output.ename}"
        elif output.get("name") == "stderr":
            yield "wrote to stderr"
        elif _names_a_figure(output):
            yield "shows a figure as text and not as a picture; call style.use() before"
        for text in _texts(output):
            for path in ABSOLUTE_PATH.findall(text):
                yield f"shows the absolute path {path}"


def _marks(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    """Marks that are meant for nbval, as it reads them and as they are written."""
    for line in map(str.strip, cell.source.splitlines()):
        if line.startswith("#") and "NBVAL" in line.upper():
            yield line.lstrip("#").strip(), line
    for tag in cell.metadata.get("tags", []):
        if "nbval" in tag.lower():
            yield TAGS.get(tag, ""), tag


def _ignored(cell: NotebookNode) -> bool:
    return any(mark in UNCOMPARED for mark, _ in _marks(cell))


def _texts(output: NotebookNode) -> Iterator[str]:
    if "text" in output:
        yield output.text
    for kind, content in output.get("data", {}).items():
        if kind.startswith("text/"):
            yield content


def _names_a_figure(output: NotebookNode) -> bool:
    data = output.get("data", {})
    pictured = any(kind.startswith("image/") for kind in data)
    return not pictured and data.get("text/plain", "").startswith("<Figure ")


def with_outputs(committed: NotebookNode, executed: NotebookNode, name: str) -> NotebookNode:
    """A copy of `committed` with the outputs of `executed` and nothing that changes by itself.

    Raises:
        Refused: a cell wrote to stderr, which nobody should commit unread.
    """
    clean = copy.deepcopy(committed)
    clean.metadata = nbformat.from_dict(
        {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    )
    code = [cell for cell in clean.cells if cell.cell_type == "code"]
    sources = [
        cell
        for cell in executed.cells
        if cell.cell_type == "code" and INJECTED not in cell.metadata.get("tags", [])
    ]
    for number, (cell, source) in enumerate(zip(code, sources, strict=True), 1):
        cell.execution_count = number
        cell.outputs = [_plain(output, number, name) for output in source.outputs]
    for cell in clean.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
    return clean


def _plain(output: NotebookNode, number: int, name: str) -> NotebookNode:
    if output.get("name") == "stderr":
        raise Refused(f"{name}: code cell {number} wrote to stderr: {output.text.strip()}")
    plain = copy.deepcopy(output)
    if "execution_count" in plain:
        plain.execution_count = number
    if "metadata" in plain:
        plain.metadata = nbformat.from_dict({})
    return plain


def as_bytes(notebook: NotebookNode) -> bytes:
    """The notebook as it is committed: the same bytes for the same content."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n").encode() + b"\n"
