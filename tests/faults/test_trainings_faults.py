"""`make runs` under a kill: no training goes on behind the user's back, and none is lost."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from paperlib.paths import data_dir


def test_trainings_end_with_the_command_that_started_them(tmp_path):
    if not (data_dir() / "decoded-v1" / "mnist.json").exists():
        pytest.skip("mnist has not been fetched")
    store = tmp_path / "runs"
    command = [sys.executable, "-m", "paperlib.experiments.trainings", "layers_fig01_fcn_mnist"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "STORE": str(store), "DATA": str(data_dir().resolve())}
    with subprocess.Popen([*command, "--jobs", "2"], env=environment, **quiet) as parent:
        deadline = time.monotonic() + 120
        while not list(store.glob("*/epoch-000.safetensors")):
            assert time.monotonic() < deadline and parent.poll() is None
            time.sleep(0.1)
        workers = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(workers) >= 2
    _, left = psutil.wait_procs(workers, timeout=30)
    assert left == []
