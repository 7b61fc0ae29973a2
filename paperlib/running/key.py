"""What a notebook's result depends on, and in one sentence how two such states differ.

The library sources that a notebook uses are found without importing anything: the import
statements of its code cells are followed through the package.
"""

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paperlib.report.provenance import versions
from paperlib.running.notebooks import CodeCell
from paperlib.running.parameters import TAG

DATA_SUFFIXES = (".toml", ".json", ".csv", ".yaml")


@dataclass(frozen=True)
class Key:
    """Everything that a result depends on, part by part.

    Attributes:
        parameters: values after all overrides.
        code: a checksum for each code cell but the parameters cell.
        sources: checksums of the library files that the cells import, directly or not.
        versions: of Python and the packages that numbers and pictures come from.
        device: where the notebook computes.
    """

    parameters: dict[str, Any]
    code: list[str]
    sources: dict[str, str]
    versions: dict[str, str]
    device: str

    @property
    def source(self) -> str:
        """Short checksum of parameters, code and sources: the same on every machine."""
        parts = [self.parameters, self.code, self.sources]
        return checksum(json.dumps(parts, sort_keys=True).encode())[:12]

    def as_json(self) -> dict[str, Any]:
        """The parts as they come back from a JSON file (tuples are lists there)."""
        return json.loads(json.dumps(asdict(self)))


def key_of(
    cells: Sequence[CodeCell], parameters: dict[str, Any], package: Path, device: str
) -> Key:
    """The present key of a notebook of these `cells`, run with `parameters` on `device`."""
    body = [cell.source for cell in cells if TAG not in cell.tags]
    files = used_files("\n".join(cell.source for cell in cells), package)
    return Key(
        parameters=parameters,
        code=[checksum(source.encode()) for source in body],
        sources={
            file.relative_to(package.parent).as_posix(): checksum(file.read_bytes())
            for file in files
        },
        versions=versions(),
        device=device,
    )


def checksum(content: bytes) -> str:
    """Short SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:32]


def used_files(code: str, package: Path) -> list[Path]:
    """Files of `package` that `code` imports, directly or through other modules, sorted.

    Data files that lie beside an imported module count too. Imports by a computed name are not
    seen.
    """
    # Lines that only IPython understands would stop the parser and import nothing.
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)
    pending = list(_imported(ast.parse(plain), package, inside=None))
    modules: set[Path] = set()
    while pending:
        file = pending.pop()
        if file not in modules:
            modules.add(file)
            pending += _imported(ast.parse(file.read_bytes()), package, inside=file)
    folders = {file.parent for file in modules}
    data = {f for folder in folders for f in folder.iterdir() if f.suffix in DATA_SUFFIXES}
    return sorted(modules | data)


def _imported(tree: ast.AST, package: Path, inside: Path | None) -> Iterator[Path]:
    """Source files of `package` named by the import statements in `tree`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name.split("."), package)
        elif isinstance(node, ast.ImportFrom):
            stem = node.module.split(".") if node.module else []
            if node.level:
                if inside is None:
                    continue
                folder = inside.parents[node.level - 1]
                stem = [*folder.relative_to(package.parent).parts, *stem]
            for alias in node.names:
                yield from _files([*stem, alias.name], package)


def _files(dotted: list[str], package: Path) -> Iterator[Path]:
    """The source files that importing `dotted` runs: each package on the way, then the module."""
    if dotted[0] != package.name:
        return
    for end in range(1, len(dotted) + 1):
        place = package.parent.joinpath(*dotted[:end])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file


def difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """How the key `new` differs from `old` (both `Key.as_json`), or None where it does not."""
    reasons = [
        *_changes("parameter ", old["parameters"], new["parameters"], repr),
        *_code_changes(old["code"], new["code"]),
        *_changes("", old["sources"], new["sources"]),
        *_changes("", old["versions"], new["versions"], str),
    ]
    if old["device"] != new["device"]:
        reasons.append(f"the device changed from {old['device']} to {new['device']}")
    return "; ".join(reasons) or None


def _changes(
    what: str,
    old: dict[str, Any],
    new: dict[str, Any],
    show: Callable[[Any], str] | None = None,
) -> Iterator[str]:
    for name in dict.fromkeys([*new, *old]):
        if name not in old:
            yield f"{what}{name} is new"
        elif name not in new:
            yield f"{what}{name} is no longer used"
        elif old[name] != new[name]:
            values = f" from {show(old[name])} to {show(new[name])}" if show else ""
            yield f"{what}{name} changed{values}"


def _code_changes(old: list[str], new: list[str]) -> Iterator[str]:
    if len(old) != len(new):
        yield "the notebook's code changed"
        return
    changed = [number for number, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b]
    if changed:
        cells = ", ".join(map(str, changed))
        yield f"the notebook's code changed (cell {cells}, not counting the parameters)"
