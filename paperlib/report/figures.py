"""A figure as four files: png, svg, its data as csv, and a json that says how it was made.

A rerun with the same parameters writes the same bytes.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib import paths
from paperlib.report import provenance
from paperlib.report.claims import Verdict
from paperlib.report.style import RC

DIGITS = 6  # significant digits in csv and json


def save(
    fig: Figure,
    data: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    name: str,
    parameters: Mapping[str, Any],
    claims: Iterable[Verdict] = (),
) -> None:
    """Write <name>.png, .svg, .csv and .json into `paths.figures_dir()`; the figure stays open.

    Either all files are replaced or none. Numbers keep six significant digits.

    Args:
        fig: the figure.
        data: tidy frame of what is drawn, or several: key "" → <name>.csv, another key →
            <name>_<key>.csv. The index is not written.
        name: the notebook's name: small letters, digits and underscores.
        parameters: all parameters of the notebook.
        claims: verdicts that this figure's data led to.

    Raises:
        ValueError: a bad name, or data without a main frame.
        OSError: the folder cannot be written to.
    """
    frames = {"": data} if isinstance(data, pd.DataFrame) else dict(data)
    if "" not in frames:
        raise ValueError(f'data has {sorted(frames)}: its main frame goes under the key "".')
    for part in (name, *filter(None, frames)):
        if not re.fullmatch(r"[a-z0-9_]+", part):
            raise ValueError(f"name {part!r}: use small letters, digits and underscores.")
    record = {
        "name": name,
        "parameters": parameters,
        "profile": provenance.profile(),
        "key": provenance.source_key(),
        "device": parameters.get("device", "cpu"),
        "threads": provenance.threads(),
        "versions": provenance.versions(),
        "claims": [verdict.row() for verdict in claims],
    }
    with _all_or_none(paths.figures_dir()) as part, matplotlib.rc_context(RC):
        fig.savefig(part(f"{name}.png"), format="png", metadata={"Software": None})
        fig.savefig(part(f"{name}.svg"), format="svg", metadata={"Date": None, "Creator": None})
        for key, frame in frames.items():
            path = part(f"{name}_{key}.csv" if key else f"{name}.csv")
            text = frame.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
            path.write_text(text, encoding="utf-8", newline="\n")
        text = json.dumps(
            _plain(record), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False
        )
        part(f"{name}.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def read(name: str, table: str = "") -> tuple[pd.DataFrame, dict[str, Any]]:
    """A saved figure's data and its record, from `paths.figures_dir()`.

    `table` is the key of a further frame that was saved beside the main one.
    """
    folder = paths.figures_dir()
    frame = pd.read_csv(folder / (f"{name}_{table}.csv" if table else f"{name}.csv"))
    return frame, json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@contextmanager
def _all_or_none(folder: Path) -> Iterator[Any]:
    """Hand out temporary paths in `folder`, renamed when the block ends and removed if it fails."""
    parts: dict[Path, Path] = {}

    def part(name: str) -> Path:
        return parts.setdefault(folder / name, folder / f".{name}.{os.getpid()}.part")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield part
        for path, temporary in parts.items():
            os.replace(temporary, path)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write figures to {folder}: {error.strerror or error}; free some space, or "
            "set PAPERLIB_FIGURES to a folder that can be written to",
        ) from error
    finally:
        for temporary in parts.values():
            temporary.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """`value` as json can hold it: NaN becomes null, an infinity its name."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        if math.isfinite(value):
            return float(f"{value:.{DIGITS}g}")
        return None if math.isnan(value) else str(value)
    return value
