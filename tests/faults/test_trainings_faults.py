"""`make runs` under kills: no training goes on behind the user's back, and none is lost."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from paperlib.experiments import fcn_runs, trainings
from paperlib.paths import data_dir
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


def test_a_process_that_dies_is_said_to_have_died(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STORE", str(tmp_path))
    settings = {"dataset": "mnist", "lr": 0.01, "epochs": 50, "train_images": 5000}
    specs = fcn_runs.specs(2, 32, seeds=range(2), **settings)
    monkeypatch.setattr(trainings, "as_completed", lambda waiting: kill_first(tmp_path, waiting))
    assert trainings.train(specs, 1, "cpu") == 2
    assert capsys.readouterr().out.count("probably out of memory: run again with fewer jobs") == 2
    assert not any(map(runs.finished, specs))


def kill_first(store, waiting):
    """Wait for the first network, kill the workers, and go on with the futures."""
    while not list(store.glob("*/epoch-000.safetensors")):
        time.sleep(0.1)
    for child in psutil.Process().children(recursive=True):
        if "spawn_main" in " ".join(child.cmdline()):
            child.kill()
    yield from waiting
