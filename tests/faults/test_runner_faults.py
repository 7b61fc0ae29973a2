"""The runner under kills, errors, time-outs and a full disk: nothing that was there is lost."""

import errno
import signal
import time

import papermill
import psutil
import pytest
from zmq.error import ZMQError

from paperlib.running import execute as execute_module
from paperlib.running import run as run_module
from paperlib.running.errors import NotebookFailed
from paperlib.running.run import plan, run

HALF = """from paperlib.paths import figures_dir
(figures_dir() / "a.csv").write_text("half")
"""
KILL = HALF + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
WAIT = """from paperlib.paths import Project
import time
while not (Project.here().root / "go").exists():
    time.sleep(0.05)"""


@pytest.fixture
def finished(workshop):
    """A project whose notebook `a` was run once."""
    workshop.add_saving("a")
    run("a", project=workshop.project)
    return workshop


def state(workshop):
    """Everything that the first run left."""
    project = workshop.project
    files = [project.figures("quick") / "a.csv"]
    files += [project.build("quick") / name for name in ("a.ipynb", "a.json")]
    return [path.read_bytes() for path in files]


def assert_only_failed_copy_is_new(workshop):
    assert workshop.files(workshop.project.build("quick")) == [
        "a.failed.ipynb",
        "a.ipynb",
        "a.json",
    ]
    assert workshop.files(workshop.project.figures("quick")) == ["a.csv"]


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def kernels_below(process):
    return psutil.Process(process.pid).children(recursive=True)


def in_cell(workshop):
    """Whether the second code cell has started."""
    partial = workshop.project.build("quick") / "a.partial.ipynb"
    return (
        partial.exists()
        and partial.read_text().count('"running"') == 1
        and ('"completed"' in partial.read_text())
    )


def test_a_failing_cell_is_explained_and_the_old_result_stays(finished):
    before = state(finished)
    finished.add("a", "print('fine')", HALF + "def f():\n    raise ValueError('width 0')\nf()")
    status, out, err = finished.command("figures")
    assert status == 1
    assert "code cell 3 of 3 (from paperlib.paths import figures_dir): raised" in err
    assert "ValueError: width 0" in err
    assert err.endswith("kept as build/quick/a.failed.ipynb\n")
    assert "\x1b" not in out + err
    assert state(finished) == before
    assert_only_failed_copy_is_new(finished)


def test_a_killed_kernel_is_called_out_of_memory(finished):
    before = state(finished)
    finished.add("a", KILL)
    status, _, err = finished.command("figures")
    assert status == 1
    assert err.startswith("a: FAILED in code cell 2 of 2")
    assert "kernel died, probably out of memory" in err
    assert "Traceback" not in err
    assert state(finished) == before
    assert_only_failed_copy_is_new(finished)


def test_a_cell_that_takes_too_long_is_stopped(finished):
    before = state(finished)
    finished.add("a", "import time\ntime.sleep(60)")
    with pytest.raises(NotebookFailed, match=r"cell 2 of 2 \(import time\): took longer than 1 s"):
        run("a", project=finished.project, cell_timeout=1)
    assert state(finished) == before


def test_leaving_in_the_middle_is_no_success(finished):
    before = state(finished)
    finished.add("a", "import sys\nsys.exit(0)", "print('never')")
    with pytest.raises(NotebookFailed, match="cells after it were not run"):
        run("a", project=finished.project)
    assert state(finished) == before


def test_one_failure_does_not_stop_the_others(workshop):
    workshop.add("a", "1 / 0")
    workshop.add_saving("b")
    status, out, err = workshop.command("figures")
    assert status == 1
    assert "a [1/2]: FAILED" in err
    assert "b [2/2]: done" in out


@pytest.mark.parametrize("repair", ["n", "n + 1"], ids=["reused", "run"])
def test_a_success_removes_the_failed_copy(workshop, repair):
    workshop.add("a", "n")
    run("a", project=workshop.project)
    workshop.add("a", "1 / 0")
    with pytest.raises(NotebookFailed, match="ZeroDivisionError"):
        run("a", project=workshop.project)
    workshop.add("a", repair)
    run("a", project=workshop.project)
    assert workshop.files(workshop.project.build("quick")) == ["a.ipynb", "a.json"]


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_takes_its_kernel_along_and_leaves_no_trace(finished, kill):
    before = state(finished)
    finished.add("a", WAIT)
    process = finished.start("figures")
    wait_for(lambda: in_cell(finished))
    kernels = kernels_below(process)
    process.send_signal(kill)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "interrupted; finished notebooks are kept\n"
    assert kernels
    assert not [kernel for kernel in kernels if kernel.is_running()]
    assert state(finished) == before
    assert finished.files(finished.project.build("quick")) == ["a.ipynb", "a.json"]


def test_after_a_killed_runner_the_next_run_does_it_all(finished):
    before = state(finished)
    finished.add("a", WAIT, HALF)
    process = finished.start("figures")
    wait_for(lambda: in_cell(finished))
    kernels = kernels_below(process)
    process.kill()
    process.communicate()
    assert state(finished) == before
    assert psutil.wait_procs(kernels, timeout=60)[1] == []
    (finished.project.root / "go").touch()
    status, out, _ = finished.command("figures")
    assert status == 0
    assert "the notebook's code changed" in out
    assert (finished.project.figures("quick") / "a.csv").read_text() == "half"
    assert finished.files(finished.project.build("quick")) == ["a.ipynb", "a.json"]


def test_of_two_runners_the_second_waits_and_reuses(workshop):
    workshop.add("a", WAIT)
    first = workshop.start("figures")
    wait_for(lambda: in_cell(workshop))
    second = workshop.start("figures")
    assert second.stdout is not None
    assert second.stdout.readline() == "a: another run of it is going on; waiting for its results\n"
    (workshop.project.root / "go").touch()
    assert "done in" in first.communicate(timeout=120)[0]
    assert second.communicate(timeout=120)[0] == "a: reused: nothing changed\n"
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_full_disk_is_named_and_the_old_result_stays(finished, monkeypatch):
    before = state(finished)
    finished.add("a", "print(2)")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "figures/quick/a.csv")

    monkeypatch.setattr(run_module, "publish", full)
    with pytest.raises(NotebookFailed, match=r"cannot write at figures/quick/a\.csv: No space"):
        run("a", project=finished.project)
    assert state(finished) == before
    assert plan("a", project=finished.project).reason() is not None


def test_a_long_notebook_gives_signs_of_life(workshop, monkeypatch):
    workshop.add("a", "import time\ntime.sleep(1)")
    monkeypatch.setattr(execute_module, "HEARTBEAT", 0.2)
    said = []
    run("a", project=workshop.project, say=said.append)
    assert any(line.startswith("code cell 2 of 2, ") for line in said)


def test_a_long_temporary_folder_is_no_obstacle(workshop, monkeypatch):
    deep = workshop.project.root / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    workshop.add("a")
    run("a", project=workshop.project)


def test_a_socket_that_cannot_be_opened_is_said_so(workshop, monkeypatch):
    def too_long(*_, **__):
        raise ZMQError(errno.ENAMETOOLONG)

    monkeypatch.setattr(papermill, "execute_notebook", too_long)
    workshop.add("a")
    with pytest.raises(NotebookFailed, match="kernel did not start"):
        run("a", project=workshop.project)


def test_a_kernel_that_cannot_start_is_said_so(workshop, monkeypatch):
    workshop.add("a")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(NotebookFailed, match="kernel did not start"):
        run("a", project=workshop.project)
