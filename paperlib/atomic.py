"""Files that are replaced whole or not at all, however their writer ends.

Contents are written beside their place, under a hidden name that ends in `.part`, and then
renamed. This module imports nothing heavy, so that the runner may use it as well as the training.
"""

import os
from collections.abc import Mapping
from pathlib import Path

PART = ".part"  # suffix of a file that is not whole yet

Content = bytes | memoryview


def write_whole(path: Path, content: Content) -> None:
    """Put `content` into `path`: readers see the old file or the new one.

    Raises OSError as the system does; the old file then stays.
    """
    write_all({path: content})


def write_all(contents: Mapping[Path, Content]) -> None:
    """Write every content beside its file, then rename them all.

    Raises OSError as the system does; where that is a full disk, all old files stay.
    """
    # The process's id keeps writers apart that do not lock each other out.
    beside = {path: path.with_name(f".{path.name}.{os.getpid()}{PART}") for path in contents}
    try:
        for path, content in contents.items():
            with beside[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path in contents:
            os.replace(beside[path], path)
    finally:
        for path in beside.values():
            path.unlink(missing_ok=True)


def sweep(folder: Path, stem: str = "") -> None:
    """Remove what killed writers left of files whose names begin with `stem`.

    Only for a caller that keeps other writers of these files away.
    """
    for part in folder.glob(f".{stem}*{PART}"):
        part.unlink()
