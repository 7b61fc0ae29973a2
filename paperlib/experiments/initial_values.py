"""Layers at their initial values, for trained networks of several settings: one tidy table."""

from collections.abc import Sequence

import pandas as pd

from paperlib.experiments import resetting, seeds
from paperlib.robustness.evaluate import FULL_MODEL, RERANDOMISED
from paperlib.training.runs import Spec

SETTING = ["hidden", "width", "initialiser", "lr"]


def measure(
    runs: Sequence[Spec], *, test_images: int, rerandomise: int, device: str
) -> pd.DataFrame:
    """Reset every layer of every run to checkpoint 0, and re-randomise it; see `resetting.measure`.

    Returns:
        A row each setting (`hidden`, `width`, `initialiser`, `lr`), `seed` and `layer`: `damage`
        of the initial values in percentage points with the ends `low` and `high` of its 95 %
        interval over images, their test `error`, test error `rerandomised` (mean over draws; NaN
        without any) and `final` (of the network itself), and `moved`, ‖θ_d^T − θ_d^0‖₂/‖θ_d^0‖₂.
    """
    if not runs:
        raise ValueError(resetting.NO_NETWORKS)
    settings: dict[tuple[int, int, str, float], list[Spec]] = {}
    for spec in runs:
        of_network = [spec.options[name] for name in SETTING[:3]]
        settings.setdefault((*of_network, spec.recipe.lr), []).append(spec)
    parts = []
    for setting, group in settings.items():
        tables = resetting.measure(
            group,
            test_images=test_images,
            rerandomise=rerandomise,
            device=device,
            checkpoints=(0,),
        )
        parts.append(_rows(tables).assign(**dict(zip(SETTING, setting, strict=True))))
    table = pd.concat(parts, ignore_index=True)
    return table[[*SETTING, *table.columns.drop(SETTING)]]


def over_seeds(rows: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Mean of a column over seeds, a row each of `by` and layer in the order of `rows`.

    Columns: those of `by`, `layer`, `value`, `low`, `high` (95 % over seeds).
    """
    key = [*by, "layer"]
    found = [
        (*names, seeds.interval(values)) for names, values in rows.groupby(key, sort=False)[value]
    ]
    return pd.DataFrame(
        [(*names, m.value, m.low, m.high) for *names, m in found],
        columns=[*key, "value", "low", "high"],
    )


def _rows(tables: resetting.Tables) -> pd.DataFrame:
    """Column 0 of the errors, with what else `measure` tells of each layer beside it."""
    errors, distances = tables
    key = ["seed", "layer"]
    rows = errors[(errors.column == "0") & (errors.layer != FULL_MODEL)]
    drawn = errors[errors.column == RERANDOMISED].set_index(key).error
    last = distances[distances.column == distances.column.iloc[-1]].set_index(key)
    rows = rows.join(drawn.rename("rerandomised"), on=key)
    rows = rows.join(resetting.final_error(errors).rename("final"), on="seed")
    rows = rows.join(last.relative.rename("moved"), on=key)
    return rows[[*key, "damage", "low", "high", "error", "rerandomised", "final", "moved"]]
