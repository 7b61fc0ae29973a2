"""The store of runs, on synthetic images."""

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

from paperlib import paths
from paperlib.networks import mlp
from paperlib.training import data, loop, photos, runs, sources
from paperlib.training.data import Images
from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec, StoreError, get

SMALL = {"hidden": 2, "width": 16, "image_shape": [1, 8, 8], "classes": 4}
MNIST = Spec("mlp", {"hidden": 3, "width": 256}, Recipe(8, 0.01), "mnist")


def spec_of(**changes):
    return replace(Spec("mlp", SMALL, Recipe(4, 0.05), "synthetic"), **changes)


@pytest.fixture
def run(synthetic, tmp_path):
    return get(spec_of(), store=tmp_path, images=synthetic)


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr(loop, "train", refuse)


def assert_equal(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_is_what_training_by_hand_gives(run, synthetic):
    model = run.spec.build()
    states = []
    loop.train(model, synthetic, run.spec.recipe, 0, on_epoch=states.append)
    assert run.epochs == [0, 1, 2, 3, 4]
    for checkpoint in states:
        assert_equal(run.state(checkpoint.epoch), checkpoint.model)
    assert_equal(run.model().state_dict(), model.state_dict())
    assert_equal(run.model(0).state_dict(), mlp(**SMALL).state_dict())
    assert not run.model().training


def test_the_history_says_how_each_epoch_went(run):
    assert list(run.history) == [
        *("epoch", "lr", "loss", "accuracy", "seconds"),
        *("device", "torch"),
    ]
    assert list(run.history.epoch) == [1, 2, 3, 4]
    assert list(run.history.lr) == pytest.approx([0.05, 0.01, 0.002, 0.002])  # at 1.2, 2.4, 3.6
    assert set(run.history.device) == {"cpu"}
    table = pd.read_csv(run.folder / "history.csv")
    pd.testing.assert_frame_equal(table, run.history)


def test_the_folder_holds_what_the_design_says(run, tmp_path):
    assert run.folder.parent == tmp_path
    assert run.folder.name == f"mlp-synthetic-{run.spec.hash}"
    assert sorted(p.name for p in run.folder.iterdir()) == [
        "done.json",
        *(f"epoch-00{epoch}.safetensors" for epoch in range(5)),
        "history.csv",
        "spec.json",
    ]
    written = json.loads((run.folder / "spec.json").read_text())
    assert written["recipe"]["lr"] == 0.05
    assert written["options"] == SMALL


def test_a_run_is_trained_once(run, tmp_path, no_training):
    again = get(run.spec, store=tmp_path)
    assert_equal(again.model().state_dict(), run.model().state_dict())
    assert again.epochs == run.epochs


def test_the_store_is_where_the_environment_says(synthetic, tmp_path, monkeypatch):
    monkeypatch.setenv("STORE", str(tmp_path / "elsewhere"))
    run = get(spec_of(recipe=Recipe(1, 0.05)), images=synthetic)
    assert run.folder.parent == tmp_path / "elsewhere"


def test_a_relative_store_starts_at_the_project(monkeypatch):
    root = paths.Project.here().root
    monkeypatch.setenv("STORE", "elsewhere")
    assert paths.store_dir() == root / "elsewhere"
    monkeypatch.delenv("STORE")
    assert paths.store_dir() == root / "build" / "runs"


def test_only_the_epochs_asked_for_are_kept_beside_the_first_and_the_last(synthetic, tmp_path):
    run = get(spec_of(keep_epochs=(2,)), store=tmp_path, images=synthetic)
    assert run.epochs == [0, 2, 4]
    with pytest.raises(ValueError, match=r"no state of epoch 3; kept are \[0, 2, 4\]"):
        run.state(3)


def test_states_are_the_readers_own(run):
    run.state(0)["layer1.weight"].zero_()
    assert run.state(0)["layer1.weight"].any()


@pytest.mark.parametrize(
    "changes",
    [
        {"network": "fcn"},
        {"options": SMALL | {"width": 17}},
        {"options": SMALL | {"initialiser": "he"}},
        {"data": "other"},
        {"train_images": 200},
        {"seed": 1},
        {"keep_epochs": (0, 4)},
        *(
            {"recipe": replace(Recipe(4, 0.05), **change)}
            for change in (
                {"epochs": 5},
                {"lr": 0.06},
                {"batch_size": 64},
                {"momentum": 0.8},
                {"weight_decay": 0.1},
                {"milestones": (0.5,)},
                {"gamma": 0.3},
                {"clip_norm": 1.0},
                {"precision": "bfloat16"},
                {"frozen": ("layer1",)},
                {"threads": 2},
                {"augment": True},
            )
        ),
    ],
)
def test_whatever_changes_the_result_changes_the_hash(changes):
    assert spec_of(**changes).hash != spec_of().hash


def test_the_data_and_the_training_code_are_part_of_the_hash(monkeypatch):
    assert MNIST.contents()["checksums"][0].startswith("ba891046")
    assert MNIST.contents()["options"]["mean"] == data.CONSTANTS["mnist"][0]
    before = MNIST.hash
    with monkeypatch.context() as patch:
        patch.setattr(loop, "VERSION", loop.VERSION + 1)
        assert MNIST.hash != before
    monkeypatch.setitem(sources.PUBLISHED, "mnist", sources.PUBLISHED["cifar10"])
    assert MNIST.hash != before


def test_the_same_spec_written_otherwise_is_the_same_run():
    assert replace(MNIST, options={"width": 256, "hidden": 3}).hash == MNIST.hash
    assert spec_of(options=SMALL | {"image_shape": (1, 8, 8)}) == spec_of()
    assert spec_of(keep_epochs=[3, 1, 1]) == spec_of(keep_epochs=(1, 3))
    assert len({spec_of(), spec_of()}) == 1


def test_runs_of_before_there_was_warm_up_keep_their_hash():
    recipe = Recipe(100, 0.01)
    options = {"hidden": 3, "width": 256, "initialiser": "lecun-truncated"}
    kept = (0, 1, 2, 3, 8, 40, 90)
    assert Spec("mlp", options, recipe, "mnist", 60000, 0, kept).hash == "2d50adb72d6866b9"
    assert replace(MNIST, recipe=replace(MNIST.recipe, warmup=1)).hash != MNIST.hash


def test_runs_of_before_there_were_photos_keep_their_hash():
    options = {"base_width": 8, "batch_norm": False, "initialiser": "torch"}
    recipe = Recipe(12, 0.05, clip_norm=1.0, precision="bfloat16", augment=True)
    spec = Spec(
        "resnet18",
        options | {"version": 2, "stem": "cifar"},
        recipe,
        "cifar10",
        10000,
        0,
        (0, 1, 10),
    )
    assert spec.hash == "6fe53b8295c031e0"


def test_a_run_on_photos_takes_size_classes_and_constants_from_them(photo_folder, tmp_path):
    options = {"base_width": 2, "stem": "imagenet"}
    spec = Spec("resnet18", options, Recipe(1, 0.05, augment=True), "imagenette-32")
    run = get(spec, store=tmp_path / "store")
    facts = data.facts("imagenette-32")
    told = spec.contents()
    assert told["checksums"] == facts.checksums
    assert (told["options"]["classes"], told["options"]["image_shape"]) == (3, (3, 28, 28))
    assert run.model().normalise.std.flatten().tolist() == pytest.approx(list(facts.std))
    test = data.load("imagenette-32", "test")
    assert run.model()(data.as_input(test.images)).shape == (6, 3)

    photo = photo_folder.folder / "train" / "n00000003" / "n00000003_0.JPEG"
    photo.write_bytes(photo.with_name("n00000003_1.JPEG").read_bytes())
    photos.forget()
    assert spec.folder_name != run.folder.name


def test_known_data_sets_the_inputs_of_the_network():
    net = replace(MNIST, data="cifar10", options={"hidden": 1, "width": 4}).build()
    assert net(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert net.normalise.mean.flatten().tolist() == pytest.approx([0.4914, 0.4822, 0.4465])
    assert not torch.equal(net.layer1.weight, MNIST.build(5).layer1.weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"keep_epochs": (0, 5)}, "keep_epochs must lie in 0 … 4"),
        ({"train_images": 0}, "train_images"),
        ({"options": {"width": torch.zeros(1)}}, "options must be JSON values"),
    ],
)
def test_a_wrong_spec_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        spec_of(**changes)


def test_other_images_under_the_same_name_are_refused(run, synthetic, tmp_path):
    flipped = synthetic.images.flip(3)
    other = Images(flipped, synthetic.labels, "synthetic", data.checksum(flipped, synthetic.labels))
    with pytest.raises(StoreError, match="other images of the name 'synthetic'"):
        get(run.spec, store=tmp_path, images=other)
    with pytest.raises(ValueError, match="the spec is for 'mnist'; the images are 'synthetic'"):
        get(MNIST, store=tmp_path, images=other)
    with pytest.raises(ValueError, match="train_images is 200; there are 300"):
        get(spec_of(train_images=200), store=tmp_path, images=synthetic)


def test_a_finished_run_can_be_read_where_nothing_can_be_written(run, tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError("read-only")

    monkeypatch.setattr(runs, "FileLock", refuse)
    assert get(run.spec, store=tmp_path).epochs == run.epochs
