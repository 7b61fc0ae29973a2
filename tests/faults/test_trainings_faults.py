"""`make runs` under kills: no training goes on behind the user's back, and none is lost."""

import os
import signal
import subprocess
import sys
import time
from concurrent import futures

import psutil
import pytest

from paperlib.experiments import fcn_runs, trainings
from paperlib.paths import data_dir, store_dir
from paperlib.training import runs


@pytest.fixture(autouse=True)
def real_data():
    if not (data_dir() / "decoded-v1" / "mnist.json").exists():
        pytest.skip("mnist has not been fetched")


def started(store):
    """The command in a session of its own, and its workers once the first network is there."""
    command = [sys.executable, "-m", "paperlib.experiments.trainings", "layers_fig01_fcn_mnist"]
    parent = subprocess.Popen(
        [*command, "--jobs", "2"],
        env={**os.environ, "STORE": str(store), "DATA": str(data_dir().resolve())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(store.glob("*/epoch-000.safetensors")):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.1)
    return parent, psutil.Process(parent.pid).children(recursive=True)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_trainings_end_with_the_command_that_started_them(tmp_path, stop):
    parent, workers = started(tmp_path / "runs")
    if stop == signal.SIGINT:
        os.killpg(parent.pid, stop)  # as Ctrl-C does
    else:
        parent.send_signal(stop)
    assert parent.wait(60) == (trainings.INTERRUPTED if stop == signal.SIGINT else -stop)
    assert len(workers) >= 2
    _, left = psutil.wait_procs(workers, timeout=30)
    assert left == []


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """Two trainings that are long enough to be killed."""
    monkeypatch.setenv("STORE", str(tmp_path))
    settings = {"dataset": "mnist", "lr": 0.01, "epochs": 20, "train_images": 5000}
    return fcn_runs.specs(2, 32, seeds=range(2), **settings)


def kill_workers(specs, monkeypatch, when):
    """Kill all processes once a training has begun, the first, second, … time as `when` says."""
    plan = iter(when)

    def wait(*arguments, **options):
        if next(plan, False):
            unfinished = [spec for spec in specs if not runs.finished(spec)]
            while not any((folder(spec) / "epoch-000.safetensors").exists() for spec in unfinished):
                time.sleep(0.05)
            for child in psutil.Process().children(recursive=True):
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()
        return futures.wait(*arguments, **options)

    monkeypatch.setattr(trainings, "wait", wait)


def folder(spec):
    return store_dir() / spec.folder_name


def test_a_training_whose_process_dies_is_tried_again_after_those_that_wait(
    specs, monkeypatch, capsys
):
    kill_workers(specs, monkeypatch, [True])
    assert trainings.train(specs, 1, "cpu") == 0
    assert all(map(runs.finished, specs))
    died, other, again = capsys.readouterr().out.splitlines()
    assert "seed 0: its process died, probably out of memory; it is tried again" in died
    assert other.startswith("[1/2]") and "seed 1: trained in" in other
    assert again.startswith("[2/2]") and "seed 0: trained in" in again


def test_a_training_that_dies_twice_is_named_and_the_others_go_on(specs, monkeypatch, capsys):
    kill_workers(specs, monkeypatch, [True, False, True])
    assert trainings.train(specs, 1, "cpu") == 1
    assert list(map(runs.finished, specs)) == [False, True]
    last = capsys.readouterr().out.splitlines()[-1]
    assert "seed 0: FAILED: its process died, probably out of memory: run again with fewer" in last
