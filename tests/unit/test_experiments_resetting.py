"""Tables over seeds: every number against a plain forward pass, and their bookkeeping."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import networks
from paperlib.experiments import resetting
from paperlib.robustness import resets
from paperlib.training import data
from paperlib.training.data import Images

OPTIONS = {"hidden": 2, "width": 6, "image_shape": (1, 3, 3), "classes": 4}


def fake_run(seed):
    """A "trained" run whose checkpoints are fresh networks of other seeds."""

    def build(at=seed):
        return networks.build("mlp", seed=at, **OPTIONS)

    states = {epoch: build(100 * epoch + seed).state_dict() for epoch in (0, 1, 4)}

    def model():
        network = build()
        network.load_state_dict(states[4])
        return network.eval()

    spec = SimpleNamespace(seed=seed, data="tiny", build=build)
    return SimpleNamespace(spec=spec, epochs=[0, 1, 4], state=states.get, model=model)


@pytest.fixture
def images(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (50, 1, 3, 3), generator=rng, dtype=torch.uint8)
    tiny = Images(pixels, torch.randint(4, (50,), generator=rng), "tiny", "")
    found = {seed: fake_run(seed) for seed in (3, 8)}
    monkeypatch.setattr(resetting.runs, "get", lambda spec, device: found[spec.seed])
    monkeypatch.setattr(resetting.data, "load", lambda name, split, limit: tiny)
    return tiny


def measured(**options):
    settings = {"test_images": 50, "rerandomise": 2, "device": "cpu"} | options
    return resetting.measure([fake_run(3).spec, fake_run(8).spec], **settings)


def error_of(state, images):
    network = fake_run(0).model()
    network.load_state_dict(state)
    with torch.no_grad():
        answers = network(data.as_input(images.images)).argmax(1)
    return float((answers != images.labels).double().mean())


def test_every_error_is_that_of_the_reset_network(images):
    table = measured().errors.set_index(["seed", "layer", "column"])
    for seed in (3, 8):
        run = fake_run(seed)
        layers = networks.layers(run.model())
        for layer, names in layers.items():
            state = resets.reinitialise(run.state(4), run.state(1), names)
            row = table.loc[(seed, layer, "1")]
            assert row.error == pytest.approx(error_of(state, images))
            expected = 100 * (error_of(state, images) - error_of(run.state(4), images))
            assert row.damage == pytest.approx(expected)
            draws = [
                error_of(
                    resets.rerandomise(run.spec.build, names, seed, run.state(4), draw=i), images
                )
                for i in range(2)
            ]
            assert table.loc[(seed, layer, "ReRnd")].error == pytest.approx(np.mean(draws))
            assert table.loc[(seed, layer, "ReRnd")].sd == pytest.approx(np.std(draws, ddof=1))


def test_every_run_is_rerandomised_by_draws_of_its_own(images):
    table = measured().distances.set_index(["layer", "column", "seed"])
    assert (table.loc[("layer1", "ReRnd", 3)] != table.loc[("layer1", "ReRnd", 8)]).all()


def test_the_whole_network_at_a_checkpoint_is_that_checkpoint(images):
    table = measured().errors.set_index(["seed", "layer", "column"])
    assert table.loc[(8, "fullmodel", "0")].error == error_of(fake_run(8).state(0), images)
    assert resetting.final_error(measured().errors)[8] == error_of(fake_run(8).state(4), images)


def test_distances_are_those_of_each_layer(images):
    table = measured().distances.set_index(["seed", "layer", "column"])
    run = fake_run(8)
    names = networks.layers(run.model())["layer2"]
    moved = max(float((run.state(1)[n] - run.state(0)[n]).abs().max()) for n in names)
    assert table.loc[(8, "layer2", "1")].linf == pytest.approx(moved)
    assert (table.xs("0", level="column").drop(columns="relative") == 0).all(axis=None)


def test_a_group_is_reset_together(images):
    groups = {"pair": ["layer1", "layer3"]}
    table = measured(groups=groups, rerandomise=0).errors.set_index(["seed", "layer", "column"])
    run = fake_run(3)
    layers = networks.layers(run.model())
    state = resets.reinitialise(run.state(4), run.state(0), layers["layer1"] + layers["layer3"])
    assert table.loc[(3, "pair", "0")].error == error_of(state, images)


def test_only_the_wanted_checkpoints_are_evaluated(images):
    every, few = measured(), measured(checkpoints=[0])
    assert list(few.errors.column.unique()) == ["ReRnd", "0", "4"]
    for whole, part in zip(every, few, strict=True):
        pd.testing.assert_frame_equal(whole[whole.column != "1"].reset_index(drop=True), part)


def test_no_networks_are_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        resetting.measure([], test_images=50, rerandomise=0, device="cpu")


def test_grids_keep_the_order_of_layers_and_checkpoints(images):
    errors = measured().errors
    grid = resetting.grid(errors, "error")
    assert list(grid.index) == ["layer1", "layer2", "layer3", "fullmodel"]
    assert list(grid.columns) == ["ReRnd", "0", "1", "4"]
    rows = errors[(errors.layer == "layer2") & (errors.column == "0")]
    assert grid.loc["layer2", "0"] == pytest.approx(rows.error.mean())


def test_one_column_has_a_row_a_seed(images):
    found = resetting.at(measured().errors, "0")
    assert list(found.index) == [3, 8]
    assert list(found.columns) == ["layer1", "layer2", "layer3"]


def test_damage_over_seeds_is_a_t_interval():
    errors = pd.DataFrame(
        {"seed": [0, 1, 2], "layer": "layer1", "column": "0", "damage": [1.0, 2.0, 3.0]}
    )
    row = resetting.over_seeds(errors, "0").loc["layer1"]
    assert (row.damage, row.low, row.high) == pytest.approx((2, -0.484138, 4.484138), abs=1e-6)
