"""The table of layers at their initial values, from hand-made errors and distances."""

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments import fcn_runs, initial_values, resetting

ERROR = {"layer1": 0.32, "layer2": 0.04, "fullmodel": 0.9}


def tables(group, **_) -> resetting.Tables:
    """Final error 0.02; the damage grows by a point a seed; layer1 moves 0.5, layer2 0.25."""
    errors = pd.DataFrame(
        [
            (spec.seed, layer, column, error, 100 * (error - 0.02) + spec.seed)
            for spec in group
            for layer, initial in ERROR.items()
            for column, error in (("ReRnd", 0.88), ("0", initial), ("2", 0.02))
        ],
        columns=["seed", "layer", "column", "error", "damage"],
    )
    errors["low"], errors["high"] = errors.damage - 1, errors.damage + 1
    moved = pd.DataFrame(
        [
            (spec.seed, layer, column, distance)
            for spec in group
            for layer, last in (("layer1", 0.5), ("layer2", 0.25))
            for column, distance in (("ReRnd", 1.4), ("0", 0.0), ("2", last))
        ],
        columns=["seed", "layer", "column", "relative"],
    )
    return resetting.Tables(errors, moved)


def runs(width: int, lr: float = 0.01, seeds: int = 2) -> list:
    return fcn_runs.specs(
        1, width, dataset="mnist", lr=lr, epochs=2, train_images=100, seeds=range(seeds)
    )


@pytest.fixture
def table(monkeypatch) -> pd.DataFrame:
    monkeypatch.setattr(initial_values.resetting, "measure", tables)
    specs = [*runs(8), *runs(4), *runs(4, lr=0.1)]
    return initial_values.measure(specs, test_images=10, rerandomise=3, device="cpu")


def test_a_row_for_every_layer_of_every_run_in_the_order_of_the_runs(table):
    assert table.groupby(["width", "lr"], sort=False).size().to_dict() == {
        (8, 0.01): 4,
        (4, 0.01): 4,
        (4, 0.1): 4,
    }
    assert table.layer.tolist()[:4] == ["layer1", "layer2"] * 2
    assert set(table.hidden) == {1} and set(table.initialiser) == {"lecun-truncated"}


def test_checkpoint_0_stands_beside_the_rerandomised_the_final_and_the_distance(table):
    row = table[(table.width == 8) & (table.seed == 1)].set_index("layer").loc["layer1"]
    assert row.error == 0.32 and row.damage == pytest.approx(31) and row.high == pytest.approx(32)
    assert (row.rerandomised, row.final, row.moved) == (0.88, 0.02, 0.5)


def test_no_networks_are_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        initial_values.measure([], test_images=50, rerandomise=0, device="cpu")


def test_without_draws_nothing_is_rerandomised(monkeypatch):
    def measure(group, **_):
        errors, moved = tables(group)
        return resetting.Tables(errors[errors.column != "ReRnd"], moved)

    monkeypatch.setattr(initial_values.resetting, "measure", measure)
    table = initial_values.measure(runs(8), test_images=10, rerandomise=0, device="cpu")
    assert table.rerandomised.isna().all() and (table.final == 0.02).all()


def test_mean_and_t_interval_over_seeds(table):
    found = initial_values.over_seeds(table[table.lr == 0.01], ["width"], "damage")
    assert list(zip(found.width, found.layer, strict=True)) == [
        (8, "layer1"), (8, "layer2"), (4, "layer1"), (4, "layer2"),
    ]  # fmt: skip
    # Two values one apart: mean ± 12.706 · 0.5.
    assert found.value.to_numpy() == pytest.approx([30.5, 2.5, 30.5, 2.5])
    assert (found.high - found.low).to_numpy() == pytest.approx(np.full(4, 12.706), abs=1e-3)
