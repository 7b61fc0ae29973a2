"""Tables measured on a trained run, kept in the run's folder: each is computed once, and verified.

The name of a file carries a hash of all that its tables depend on, which the file repeats for
people to read. Whoever needs the same tables at the same time waits for those who compute them.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from paperlib import atomic, progress
from paperlib.training import files
from paperlib.training.files import Damaged, StoreError

Tables = Mapping[str, pd.DataFrame]


def get(
    folder: Path, name: str, inputs: Mapping[str, Any], compute: Callable[[], Tables]
) -> dict[str, pd.DataFrame]:
    """The tables that `compute` makes of `inputs`, from `folder` or computed now.

    A damaged file is set aside as `.bad` with a UserWarning, and computed anew. Where the folder
    cannot be written, the tables are computed and not kept.

    Args:
        folder: of the run.
        name: what is measured; begins the file's name.
        inputs: all that the tables depend on, JSON values.
        compute: makes tables of numbers and text, by name. Their index is not kept.

    Raises StoreError for a file of a later version of the library.
    """
    inputs = json.loads(json.dumps(inputs))
    text = json.dumps(inputs, sort_keys=True)
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, Damaged):
        return _read(path, inputs)
    with _only_writer(path) as writable:
        if writable:
            atomic.sweep(folder, path.name)
            with suppress(FileNotFoundError), files.aside():
                return _read(path, inputs)  # another process was faster
        columns = {key: table.to_dict("list") for key, table in compute().items()}
        if writable:
            try:
                files.write_record(path, {"inputs": inputs, "tables": columns})
            except StoreError as error:
                progress.say(f"{path.name} is not kept: {error.__cause__}")
    return _frames(columns)


def _read(path: Path, inputs: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    record = files.read_record(path)
    if record.get("inputs") != inputs:
        raise Damaged(path, "holds the tables of something else")
    return _frames(record["tables"])


def _frames(columns: Mapping[str, Mapping[str, list]]) -> dict[str, pd.DataFrame]:
    # What was computed is made of its columns too, so that it has the types of what is read.
    return {key: pd.DataFrame(table) for key, table in columns.items()}


@contextmanager
def _only_writer(path: Path) -> Iterator[bool]:
    """Keep other writers of `path` away; yield whether its folder can be written at all."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire()
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
