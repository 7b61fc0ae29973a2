"""Tables over seeds: every number against a plain forward pass, and their bookkeeping."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import networks
from paperlib.experiments import resetting
from paperlib.robustness import resets
from paperlib.training import data, runs
from paperlib.training.data import Images
from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec

OPTIONS = {"hidden": 2, "width": 6, "image_shape": (1, 3, 3), "classes": 4}


def fake_run(seed, store=None):
    """A "trained" run whose checkpoints are fresh networks of other seeds."""

    def build(at=seed):
        return networks.build("mlp", seed=at, **OPTIONS)

    states = {epoch: build(100 * epoch + seed).state_dict() for epoch in (0, 1, 4)}

    def model():
        network = build()
        network.load_state_dict(states[4])
        return network.eval()

    spec = SimpleNamespace(seed=seed, data="tiny", build=build, hash=f"run {seed}")
    return SimpleNamespace(
        spec=spec,
        epochs=[0, 1, 4],
        state=states.get,
        model=model,
        folder=store,
        digest=lambda epoch: f"state {epoch} of {seed}",
    )


@pytest.fixture
def images(monkeypatch, tmp_path):
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (50, 1, 3, 3), generator=rng, dtype=torch.uint8)
    labels = torch.randint(4, (50,), generator=rng)

    def load(name, split, limit):
        some = pixels[:limit], labels[:limit]
        return Images(*some, "tiny", data.checksum(*some))

    found = {seed: fake_run(seed, tmp_path) for seed in (3, 8)}
    monkeypatch.setattr(resetting.runs, "get", lambda spec, device: found[spec.seed])
    monkeypatch.setattr(resetting.data, "load", load)
    return load("tiny", "test", 50)


@pytest.fixture
def evaluations(images, monkeypatch):
    """The numbers of images of the evaluations so far."""
    done = []
    outcomes = resetting.evaluate.outcomes

    def note(model, states, given, *rest, **options):
        done.append(len(given))
        return outcomes(model, states, given, *rest, **options)

    monkeypatch.setattr(resetting.evaluate, "outcomes", note)
    return done


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


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_the_same_tables_are_measured_once_a_run(evaluations):
    first = measured()
    assert evaluations == [50, 50]
    assert_same(measured(), first)
    # The same layers and checkpoints, said in another way.
    layers = {f"layer{i}": [f"layer{i}"] for i in (1, 2, 3)}
    assert_same(measured(groups=layers, checkpoints=[1, 0]), first)
    assert evaluations == [50, 50]


@pytest.mark.parametrize(
    "change",
    [
        dict(test_images=40),
        dict(rerandomise=3),
        dict(checkpoints=[0]),
        dict(groups={"pair": ["layer1", "layer3"]}),
        dict(buffers="keep"),
    ],
)
def test_other_tables_are_measured_on_their_own(evaluations, tmp_path, change):
    first = measured()
    other = measured(**change)
    assert len(evaluations) == 4
    assert_same(measured(), first)
    assert_same(measured(**change), other)
    assert len(evaluations) == 4
    assert len(list(tmp_path.glob("resets-*.json"))) == 4


def test_an_edited_source_another_run_and_another_torch_are_measured_anew(
    evaluations, images, tmp_path, monkeypatch
):
    measured()
    edited = tmp_path / "evaluate.py"
    edited.write_text("edited")
    monkeypatch.setattr(resetting, "SOURCES", (*resetting.SOURCES, edited))
    measured()
    assert len(evaluations) == 4
    edited.write_text("edited again")
    measured()
    assert len(evaluations) == 6
    monkeypatch.setattr(resetting.torch, "__version__", "another")
    measured()
    assert len(evaluations) == 8
    trained_again = fake_run(3, tmp_path)
    trained_again.digest = lambda epoch: f"other digits of {epoch}"
    monkeypatch.setattr(resetting.runs, "get", lambda spec, device: trained_again)
    measured()
    assert len(evaluations) == 9  # both asked for the same run


def test_the_sources_are_those_that_compute():
    names = {f"{file.parent.name}/{file.name}" for file in resetting.SOURCES}
    assert {
        "experiments/resetting.py",
        "networks/resnet.py",
        "robustness/chain.py",
        "robustness/evaluate.py",
        "robustness/resets.py",
    } <= names


def test_a_damaged_table_is_set_aside_and_measured_anew(evaluations, tmp_path):
    first = measured()
    path = sorted(tmp_path.glob("resets-*.json"))[0]
    path.write_text(path.read_text().replace("layer2", "layer9"))
    with pytest.warns(UserWarning, match=r"has changed.*set aside as .*\.bad"):
        assert_same(measured(), first)
    assert len(evaluations) == 3
    assert_same(measured(), first)
    assert len(evaluations) == 3


@pytest.mark.parametrize("train_images", [None, 20])
def test_running_statistics_are_computed_anew_from_training_images(
    images, monkeypatch, tmp_path, train_images
):
    asked = []
    outcomes = resetting.evaluate.outcomes
    load = resetting.data.load

    def note(*given, **options):
        asked.append((options["buffers"], options["calibration"]))
        return outcomes(*given, **options)

    def of_split(name, split, limit):
        images = load(name, split, limit)
        white = torch.full_like(images.images, 255)
        return images if split == "test" else Images(white, images.labels, name, "")

    found = {seed: fake_run(seed, tmp_path) for seed in (3, 8)}
    for run in found.values():
        run.spec.train_images = train_images
    monkeypatch.setattr(resetting, "CALIBRATION", 30)
    monkeypatch.setattr(resetting.runs, "get", lambda spec, device: found[spec.seed])
    monkeypatch.setattr(resetting.evaluate, "outcomes", note)
    monkeypatch.setattr(resetting.data, "load", of_split)
    plain, anew = measured(), measured(buffers="recompute")
    assert_same(anew, plain)  # these networks have no running statistics
    assert [buffers for buffers, _ in asked] == ["reset"] * 2 + ["recompute"] * 2
    assert asked[0][1] is None
    assert len(asked[2][1]) == (train_images or 30)
    assert (asked[2][1] == 1).all()


def test_an_epoch_that_was_not_kept_is_refused(synthetic, tmp_path, monkeypatch):
    options = {"hidden": 1, "width": 4, "image_shape": (1, 8, 8), "classes": 4}
    spec = Spec("mlp", options, Recipe(1, 0.1), "synthetic")
    run = runs.get(spec, store=tmp_path, images=synthetic)
    monkeypatch.setattr(resetting.runs, "get", lambda spec, device: run)
    monkeypatch.setattr(resetting.data, "load", lambda *_, limit: synthetic)
    with pytest.raises(ValueError, match=r"no state of epoch 7; kept are \[0, 1\]"):
        resetting.measure([spec], test_images=5, rerandomise=0, device="cpu", checkpoints=[7])


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
