"""Trained runs reset layer by layer: errors, damages and distances as tidy tables (§2, Fig. 1)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from paperlib import devices, networks, robustness
from paperlib.experiments.seeds import interval
from paperlib.progress import track
from paperlib.robustness import distances, evaluate, joint
from paperlib.robustness.evaluate import FULL_MODEL, RERANDOMISED
from paperlib.training import data, runs, tables
from paperlib.training.data import Images
from paperlib.training.runs import Run, Spec

NO_NETWORKS = "there are no networks to reset: seeds must be at least 1, and no list empty."
DISTANCES = ("l2_fan_in", "l2_rms", "linf", "relative")
CALIBRATION = 500  # training images that running statistics are computed anew from

# What turns a run into its tables; an edit of any of these files lets them be measured anew.
SOURCES = (
    *sorted(Path(networks.__file__).parent.glob("*.py")),
    *sorted(Path(robustness.__file__).parent.glob("*.py")),
    Path(__file__),
)


class Tables(NamedTuple):
    """What `measure` returns; `column` is "ReRnd" or an epoch as text, "0" the initialisation."""

    errors: pd.DataFrame
    """A row each `seed`, `layer` (and `fullmodel`) and `column`: test `error` (for ReRnd the mean
    over draws, whose sample standard deviation is `sd`), and `damage`, error minus that of the
    final network on the same images in percentage points, with the ends `low` and `high` of its
    95 % interval: over images, or for ReRnd over draws."""
    distances: pd.DataFrame
    """A row each `seed`, `layer` and `column`: distance from initialisation by each kind of
    DISTANCES."""


def measure(
    specs: Sequence[Spec],
    *,
    test_images: int,
    rerandomise: int,
    device: str,
    groups: Mapping[str, Sequence[str]] | None = None,
    checkpoints: Collection[int] | None = None,
    buffers: str = "reset",
) -> Tables:
    """Reset every layer, or every group of layers, of every run; runs are trained if missing.

    The tables of a run are kept beside it, and shared by all who ask for the same.

    Args:
        test_images: the first ones of the run's data set.
        rerandomise: draws of the ReRnd column, others for every run.
        groups: name to layers that are reset together; by default each layer alone.
        checkpoints: epochs to reset to, 0 among them; by default all that were kept. The last is
            always there.
        buffers: what becomes of BatchNorm's running statistics, see `evaluate.outcomes`;
            "recompute" takes the first CALIBRATION of the run's training images.

    Raises ValueError for no specs.
    """
    if not specs:
        raise ValueError(NO_NETWORKS)
    found = []
    for spec in track(specs, "trained networks"):
        run = runs.get(spec, device=device)
        layers = networks.layers(spec.build())
        if groups is not None:
            layers = joint.union(layers, groups)
        wanted = sorted(run.epochs if checkpoints is None else {*checkpoints, run.epochs[-1]})
        test = data.load(spec.data, "test", limit=test_images)
        resets = _Resets(run, wanted, layers, test, rerandomise, devices.resolve(device), buffers)
        kept = tables.get(run.folder, "resets", resets.inputs(), resets.measure)
        found.append([kept[name].assign(seed=spec.seed) for name in Tables._fields])
    return Tables(*(_seed_first(pd.concat(parts)) for parts in zip(*found, strict=True)))


def grid(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Mean over seeds of a column of `measure`'s tables: rows layers, columns checkpoints."""
    mean = table.groupby(["layer", "column"], sort=False)[value].mean().unstack()
    return mean.reindex(index=table.layer.unique(), columns=table.column.unique())


def at(errors: pd.DataFrame, column: str, value: str = "damage") -> pd.DataFrame:
    """One column of the errors, e.g. "0": rows seeds, columns layers; without `fullmodel`."""
    rows = errors[(errors.column == column) & (errors.layer != FULL_MODEL)]
    return rows.pivot(index="seed", columns="layer", values=value)[rows.layer.unique()]


def over_seeds(errors: pd.DataFrame, column: str) -> pd.DataFrame:
    """Damage by layer at a column, in points: `damage`, `low`, `high` (95 % over seeds)."""
    found = {layer: interval(values) for layer, values in at(errors, column).items()}
    rows = [(layer, m.value, m.low, m.high) for layer, m in found.items()]
    return pd.DataFrame(rows, columns=["layer", "damage", "low", "high"]).set_index("layer")


def final_error(errors: pd.DataFrame) -> pd.Series:
    """Test error of the final network by seed."""
    full = errors[errors.layer == FULL_MODEL]
    return full[full.column == full.column.iloc[-1]].set_index("seed").error


@dataclass(frozen=True)
class _Resets:
    """The resets of one run: `layers` map names to the tensors that are reset together."""

    run: Run
    epochs: Sequence[int]
    layers: Mapping[str, Sequence[str]]
    test: Images
    rerandomise: int
    device: torch.device
    buffers: str

    def inputs(self) -> dict[str, Any]:
        """All that the tables depend on, as JSON values."""
        return {
            "spec": self.run.spec.hash,
            "states": {str(epoch): self.run.digest(epoch) for epoch in self.epochs},
            "layers": [[layer, list(names)] for layer, names in self.layers.items()],
            "test_images": len(self.test),
            "test": self.test.checksum,
            "rerandomise": self.rerandomise,
            "device": self.device.type,
            "buffers": self.buffers,
            "torch": torch.__version__,
            "sources": {
                f"{file.parent.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()
                for file in SOURCES
            },
        }

    def measure(self) -> dict[str, pd.DataFrame]:
        """The tables of this run without the seed, by their names in `Tables`."""
        spec = self.run.spec
        states = {epoch: self.run.state(epoch) for epoch in self.epochs}
        # Errors and distances draw the same networks, which are built once.
        draws = {"build": cache(spec.build), "rerandomise": self.rerandomise, "seed": spec.seed}
        outcomes = evaluate.outcomes(
            spec.build().to(self.device),
            states,
            data.as_input(self.test.images),
            self.test.labels,
            layers=self.layers,
            buffers=self.buffers,
            calibration=self._calibration(),
            **draws,
        )
        return {
            "errors": _errors(outcomes),
            "distances": _distances(states, self.layers, draws),
        }

    def _calibration(self) -> torch.Tensor | None:
        if self.buffers != "recompute":
            return None
        spec = self.run.spec
        limit = min(CALIBRATION, spec.train_images or CALIBRATION)
        return data.as_input(data.load(spec.data, "train", limit=limit).images)


def _errors(outcomes: evaluate.Outcomes) -> pd.DataFrame:
    table = evaluate.errors(outcomes)
    rows = evaluate.damage(outcomes)
    rows["error"] = [table.loc[row.layer, row.column] for row in rows.itertuples()]
    spread = table.attrs.get("sd", {})
    rows["sd"] = rows.layer.map(spread).where(rows.column == RERANDOMISED)
    rows["column"] = rows.column.astype(str)
    return rows[["layer", "column", "error", "sd", "damage", "low", "high"]]


def _distances(
    states: evaluate.States, layers: Mapping[str, Sequence[str]], draws: Mapping[str, Any]
) -> pd.DataFrame:
    by_kind = {kind: distances.table(states, layers, kind, **draws).stack() for kind in DISTANCES}
    rows = pd.DataFrame(by_kind).rename_axis(["layer", "column"]).reset_index()
    return rows.assign(column=rows.column.astype(str))


def _seed_first(table: pd.DataFrame) -> pd.DataFrame:
    return table[["seed", *table.columns.drop("seed")]].reset_index(drop=True)
