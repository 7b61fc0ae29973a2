"""Finished results: figures that appear whole or not at all, and the record to reuse them by."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paperlib import atomic
from paperlib.running.alike import same_result
from paperlib.running.key import checksum, difference


@dataclass(frozen=True)
class Record:
    """What the last successful run left.

    Attributes:
        key: the run's key, as JSON.
        outputs: checksum of each file that it left, by path relative to the project.
        seconds: how long it took.
    """

    key: dict[str, Any]
    outputs: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        """The record in `path`; None where there is none or it is damaged."""
        try:
            record = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        sound = (
            isinstance(record.key, dict)
            and isinstance(record.outputs, dict)
            and all(isinstance(value, str) for value in record.outputs.values())
            and isinstance(record.seconds, int | float)
        )
        return record if sound else None

    def write(self, path: Path) -> None:
        """Put the record into `path`, whole or not at all."""
        atomic.write_whole(path, json.dumps(vars(self), indent=1, sort_keys=True).encode() + b"\n")


def reason_to_run(record: Record | None, key: dict[str, Any], root: Path) -> str | None:
    """Why a notebook with this `key` has to run now, in words; None where its results stand."""
    if record is None:
        return "first run"
    try:
        changed = difference(record.key, key)
    except (KeyError, TypeError, AttributeError):
        return "the state of the last run is of another kind"
    if changed:
        return changed
    for name, expected in record.outputs.items():
        path = root / name
        if not path.is_file() or checksum(path.read_bytes()) != expected:
            return f"{name} is missing or was edited"
    return None


def publish(staged: Path, figures: Path, previous: list[Path]) -> list[Path]:
    """Move the files in `staged` into `figures`; drop `previous` ones that were not made again.

    Where `figures` holds the same result already (`alike.same_result`), all its files stay as they
    are, so that a rerun elsewhere leaves git quiet. Else all are replaced: a picture, its data and
    its json are always of one run.

    Returns:
        The files in `figures`, sorted.
    """
    files = sorted(path for path in staged.iterdir() if path.is_file())
    if files:
        figures.mkdir(parents=True, exist_ok=True)
    targets = [figures / path.name for path in files]
    pairs = list(zip(files, targets, strict=True))
    if not (all(present.is_file() for present in targets) and same_result(pairs)):
        atomic.write_all({figures / path.name: path.read_bytes() for path in files})
    for old in previous:
        if old.parent == figures and old not in targets:
            old.unlink(missing_ok=True)
    shutil.rmtree(staged)
    return targets
