"""The store of runs under kills, damage, other versions and a full disk: nothing false is read."""

import errno
import json
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from paperlib import atomic
from paperlib.training import files, loop, runs
from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec, StoreError, get

SMALL = {"hidden": 2, "width": 16, "image_shape": [1, 8, 8], "classes": 4}
SPEC = Spec("mlp", SMALL, Recipe(4, 0.05, augment=True), "synthetic")
KILLS = 20


@pytest.fixture(scope="module")
def processes():
    """Processes that are forked from one that has imported the library already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "paperlib.training.runs"])
    return context


def started(processes, spec, store, images):
    # The state is saved at every epoch, so that kills meet all kinds of writing.
    code = "from paperlib.training import runs; runs.PATIENCE = 0; runs.get(spec, **options)"
    names = {"spec": spec, "options": {"store": store, "images": images}}
    process = processes.Process(target=exec, args=(code, names))
    process.start()
    return process


def result(run):
    """All that a run says, but for how long it took."""
    history = run.history.drop(columns="seconds").to_dict("list")
    return history, {epoch: run.state(epoch) for epoch in run.epochs}


def assert_same(run, expected):
    history, states = result(run)
    assert history == expected[0]
    assert states.keys() == expected[1].keys()
    for epoch, state in states.items():
        assert state.keys() == expected[1][epoch].keys()
        assert all(torch.equal(state[n], t) for n, t in expected[1][epoch].items())


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def changed(folder):
    """When a file was last added to the folder or replaced in it."""
    return folder.stat().st_mtime_ns if folder.exists() else None


@pytest.fixture(scope="module")
def finished(tmp_path_factory, synthetic):
    """A store with one finished run, and what it holds."""
    store = tmp_path_factory.mktemp("finished")
    return store, result(get(SPEC, store=store, images=synthetic))


@pytest.fixture
def store(finished, tmp_path):
    """A copy of the finished store, to be damaged."""
    shutil.copytree(finished[0], tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_bits_of_an_uninterrupted_run(
    processes, synthetic, tmp_path
):
    spec = replace(SPEC, recipe=Recipe(60, 0.02, augment=True), keep_epochs=(0, 1, 7, 40))
    whole = get(spec, store=tmp_path / "whole", images=synthetic)
    seconds = whole.history.seconds.sum()
    delays = random.Random(0)
    folder = tmp_path / "killed" / spec.folder_name
    kills = 0
    for _ in range(KILLS):
        process = started(processes, spec, tmp_path / "killed", synthetic)
        before = changed(folder)
        while process.is_alive() and changed(folder) == before:
            time.sleep(0.002)
        time.sleep(delays.uniform(0, 1.5 * seconds / KILLS))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
    run = get(spec, store=tmp_path / "killed", images=synthetic)
    assert_same(run, result(whole))
    assert names(folder) == names(whole.folder)
    assert kills == KILLS, f"only {kills} of {KILLS} kills met a running training"


def test_four_processes_train_a_run_once(processes, synthetic, tmp_path):
    spec = replace(SPEC, recipe=Recipe(100, 0.02))
    folder = tmp_path / spec.folder_name
    four = [started(processes, spec, tmp_path, synthetic) for _ in range(4)]
    for process in four:
        process.join(120)
    assert [process.exitcode for process in four] == [0] * 4
    # Whoever trains writes the file of every epoch, so the first would be the newest.
    written = [(folder / f"epoch-{e:03d}.safetensors").stat().st_mtime_ns for e in range(101)]
    assert written == sorted(written)
    assert (folder / "spec.json").stat().st_mtime_ns <= written[0]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-50] ^= 4
    path.write_bytes(content)


def swap(path):
    shutil.copy(path.with_name("epoch-003.safetensors"), path)


def remove(path):
    path.unlink()


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def pickled(path):
    path.write_bytes(pickle.dumps(Hostile(path.parent / "hacked")))


def torch_archive(path):
    torch.save({"weight": Hostile(path.parent / "hacked")}, path)


def other_tensors(path):
    path.write_bytes(safetensors.torch.save({"layer1.weight": torch.zeros(16, 64)}))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (truncate, "is truncated or no file of this store"),
        (empty, "is empty"),
        (flip_a_bit, "has changed since it was written"),
        (swap, "holds epoch 3 of run"),
        (pickled, "is a pickle or an archive, which is never opened"),
        (torch_archive, "is a pickle or an archive, which is never opened"),
        (other_tensors, "is truncated or no file of this store"),
    ],
)
def test_a_damaged_checkpoint_is_named_set_aside_and_computed_anew(
    finished, store, synthetic, damage, why
):
    folder = store / SPEC.folder_name
    path = folder / "epoch-001.safetensors"
    damage(path)
    damaged = path.read_bytes()
    with pytest.warns(UserWarning, match=rf"epoch-001\.safetensors {why}.*set aside as") as seen:
        run = get(SPEC, store=store, images=synthetic)
    assert len(seen) == 1
    assert_same(run, finished[1])
    assert (folder / "epoch-001.safetensors.bad").read_bytes() == damaged
    assert not (folder / "hacked").exists()


def test_several_damaged_files_are_each_set_aside(finished, store, synthetic):
    folder = store / SPEC.folder_name
    truncate(folder / "epoch-000.safetensors")
    remove(folder / "epoch-002.safetensors")
    flip_a_bit(folder / "epoch-004.safetensors")
    with pytest.warns(UserWarning) as seen:
        run = get(SPEC, store=store, images=synthetic)
    assert len(seen) == 3
    assert "epoch-002.safetensors is missing: computed anew" in str(seen[1].message)
    assert_same(run, finished[1])
    truncate(folder / "epoch-000.safetensors")
    with pytest.warns(UserWarning, match=r"set aside as epoch-000\.safetensors\.bad2"):
        get(SPEC, store=store, images=synthetic)


@pytest.mark.parametrize("name", ["done.json", "spec.json"])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty])
def test_a_damaged_record_is_set_aside(finished, store, synthetic, name, damage):
    folder = store / SPEC.folder_name
    damage(folder / name)
    if name == "spec.json":  # read only where the run has to be trained
        (folder / "done.json").unlink()
    with pytest.warns(UserWarning, match=rf"{name} .*set aside as {name}\.bad"):
        run = get(SPEC, store=store, images=synthetic)
    assert_same(run, finished[1])
    assert (folder / f"{name}.bad").exists()
    files.read_record(folder / name)


def test_the_folder_of_another_run_is_not_taken_for_this_one(store, synthetic):
    other = replace(SPEC, seed=1)
    expected = result(get(other, store=store / "alone", images=synthetic))
    (store / SPEC.folder_name).rename(store / other.folder_name)
    with pytest.warns(UserWarning, match="is that of another run"):
        run = get(other, store=store, images=synthetic)
    assert_same(run, expected)


def test_a_checkpoint_damaged_after_the_run_was_fetched_is_refused(store, synthetic):
    run = get(SPEC, store=store)
    flip_a_bit(run.folder / "epoch-001.safetensors")
    with pytest.raises(StoreError, match=r"epoch-001\.safetensors has changed .*get the run again"):
        run.state(1)


class Stop(Exception):
    """An interruption that the test makes."""


def interrupted(spec, store, images, monkeypatch, after):
    """Train until `after` epochs are saved, saving the state at each."""
    save = runs._Saver.save

    def save_and_stop(self, checkpoint):
        save(self, checkpoint)
        if checkpoint.epoch == after:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(runs, "PATIENCE", 0)
        patch.setattr(runs._Saver, "save", save_and_stop)
        with pytest.raises(Stop):
            get(spec, store=store, images=images)


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit, swap, pickled])
@pytest.mark.parametrize("name", ["state", "epoch-001"])
def test_an_unfinished_run_with_a_damaged_file_starts_anew(
    finished, synthetic, tmp_path, monkeypatch, name, damage
):
    interrupted(SPEC, tmp_path, synthetic, monkeypatch, after=3)
    damage(tmp_path / SPEC.folder_name / f"{name}.safetensors")
    with pytest.warns(UserWarning, match=rf"{name}\.safetensors .*set aside as"):
        run = get(SPEC, store=tmp_path, images=synthetic)
    assert_same(run, finished[1])


def test_an_interrupted_run_goes_on_and_does_not_start_anew(
    finished, synthetic, tmp_path, monkeypatch
):
    interrupted(SPEC, tmp_path, synthetic, monkeypatch, after=3)
    seen = []
    epoch = loop._epoch
    monkeypatch.setattr(loop, "_epoch", lambda *args: seen.append(args[-1]) or epoch(*args))
    run = get(SPEC, store=tmp_path, images=synthetic)
    assert seen == [3]
    assert_same(run, finished[1])


@pytest.mark.parametrize("name", ["done.json", "spec.json", "state.safetensors"])
def test_a_store_of_a_later_version_is_refused_and_left_alone(
    synthetic, tmp_path, monkeypatch, name
):
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", files.FORMAT + 1)
        interrupted(SPEC, tmp_path, synthetic, monkeypatch, after=3)
        if name == "done.json":
            get(SPEC, store=tmp_path, images=synthetic)
    folder = tmp_path / SPEC.folder_name
    if name == "state.safetensors":
        (folder / "spec.json").unlink()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(StoreError, match=rf"{name} is of format 2, .* up to 1: .*later version"):
        get(SPEC, store=tmp_path, images=synthetic)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 200 kB, where this machine lets tests mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_noticed_before_the_training_starts(small_disk, synthetic, monkeypatch):
    spec = replace(SPEC, options=SMALL | {"width": 256})
    monkeypatch.setattr(loop, "train", lambda *args, **options: pytest.fail("started"))
    with pytest.raises(StoreError, match=r"disk full at .*: about 3\.\d MB more are needed"):
        get(spec, store=small_disk, images=synthetic)


def test_a_disk_that_fills_up_loses_nothing(finished, small_disk, synthetic, monkeypatch):
    interrupted(SPEC, small_disk, synthetic, monkeypatch, after=2)
    folder = small_disk / SPEC.folder_name
    before = {path: path.read_bytes() for path in folder.iterdir()}
    filler = small_disk / "filler"
    free = shutil.disk_usage(small_disk).free
    filler.write_bytes(bytes(free))
    monkeypatch.setattr(runs, "_require_space", lambda *args: None)
    with pytest.raises(StoreError, match=r"disk full at .*goes on from there"):
        get(SPEC, store=small_disk, images=synthetic)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    filler.unlink()
    assert_same(get(SPEC, store=small_disk, images=synthetic), finished[1])


@pytest.mark.parametrize("write", range(1, 9))
def test_a_write_that_fails_loses_nothing(finished, synthetic, tmp_path, monkeypatch, write):
    monkeypatch.setattr(runs, "PATIENCE", 0)
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == write:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="disk full at"):
            get(SPEC, store=tmp_path, images=synthetic)
    assert not list((tmp_path / SPEC.folder_name).glob(".*"))
    assert_same(get(SPEC, store=tmp_path, images=synthetic), finished[1])


def test_a_folder_that_cannot_be_made_is_explained(synthetic, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot be written .*set STORE to a folder"):
        get(SPEC, store=tmp_path / "file", images=synthetic)


@pytest.mark.parametrize("name", ["done.json", "epoch-001.safetensors"])
def test_a_file_that_cannot_be_read_is_named(store, synthetic, name):
    path = store / SPEC.folder_name / name
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=rf"{name} cannot be read \(Is a directory\): give"):
        get(SPEC, store=store, images=synthetic)


def test_a_file_that_cannot_be_replaced_is_named(synthetic, tmp_path):
    (tmp_path / SPEC.folder_name / "epoch-001.safetensors").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"epoch-001.safetensors cannot be written \(Is a directo"):
        get(SPEC, store=tmp_path, images=synthetic)


def test_a_leftover_that_cannot_be_removed_is_explained(synthetic, tmp_path):
    (tmp_path / SPEC.folder_name / f".spec.json.1{atomic.PART}").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot be written \("):
        get(SPEC, store=tmp_path, images=synthetic)


def test_a_run_whose_folder_may_not_be_searched_counts_as_missing(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    assert not runs.finished(SPEC, store=tmp_path)


def test_files_of_killed_writers_are_swept(store, synthetic):
    folder = store / SPEC.folder_name
    (folder / "done.json").unlink()
    (folder / f".state.safetensors.123{atomic.PART}").write_bytes(b"half")
    run = get(SPEC, store=store, images=synthetic)
    assert not [name for name in names(run.folder) if name.startswith(".")]
    assert json.loads((folder / "done.json").read_text())["spec"] == SPEC.hash
