"""The Makefile: what it asks of Python, in which order, and what it does with the answers."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from paperlib.paths import PACKAGE

ROOT = PACKAGE.parent
VARIABLES = {
    *("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"),
    *("PROFILE", "DEVICE", "DATA", "STORE", "PYTHON", "LOCK", "JOBS", "FIG", "ARGS"),
}


def make(*arguments, folder=ROOT, **environment):
    # A make above us must not lend this one its options.
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_make_alone_lists_the_targets():
    status, out, err = make()
    assert (status, err) == (0, "")
    for target in (
        *("figures", "figure", "why", "data", "runs", "test", "lab", "claims", "bench", "refresh"),
        "clean",
    ):
        assert re.search(rf"^make {target} +\S", out, re.MULTILINE)


def test_make_figure_without_a_name_says_what_is_missing():
    status, _, err = make("figure")
    assert status == 2
    assert "say which figure: make figure FIG=NAME" in err


def stub_python(folder, script):
    """Put a fake python3 (and its versioned names) into `folder`."""
    folder.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "no Python 3.11 or later on PATH"),
        ('case "$*" in *ensurepip*) exit 1;; esac', "python3 lacks venv: install it"),
    ],
)
def test_a_missing_python_or_venv_is_one_clear_error(tmp_path, script, message):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    path = stub_python(tmp_path / "bin", script)
    status, out, err = make("lint", folder=tmp_path, PATH=path)
    assert (status, out) == (2, "")
    assert message in err.splitlines()[0]


@pytest.fixture
def checkout(workshop):
    """A project with the Makefile and two notebooks, and stand-ins for Python.

    `python` only prints what it is asked to run, and the folders that it is told; `trainer` is
    Python but for the trainings. The trainings end with the status in the file `status`.
    """
    root = workshop.project.root
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, root)
    workshop.add_saving("length_a")
    workshop.add_saving("layers_a")
    trainings = f'case "$*" in *trainings*) exit $(cat {root}/status);; esac'
    say = 'echo "${2#paperlib.}" $(shift 2; echo "$@") ${DATA+DATA=$DATA} ${STORE+STORE=$STORE}'
    for name, script in {
        "python": f'[ "$1" = -c ] || {say}\n{trainings}',
        "trainer": f'{trainings}\nexec {sys.executable} "$@"',
    }.items():
        (root / name).write_text(f"#!/bin/sh\n{script}\n")
        (root / name).chmod(0o755)
    (root / "status").write_text("0")
    return workshop


def asked(checkout, *arguments, status=0, python="python", **environment):
    """Exit status of make in the checkout, what it printed by line, and its errors."""
    root = checkout.project.root
    (root / "status").write_text(str(status))
    settings = {"PYTHON": str(root / python), "PAPERLIB_ROOT": str(root), **environment}
    done, out, err = make(*arguments, folder=root, **settings)
    return done, out.splitlines(), err


LENGTH = "runner figures length_a --profile quick"
TRAIN = "experiments.trainings layers_a --profile quick"
LAYERS = "runner figures layers_a --profile quick"
CLAIMS = "report.claims --profile quick"


@pytest.mark.parametrize("status", [0, 1, 2])
def test_length_comes_before_trainings_before_layers_whatever_the_trainings_say(checkout, status):
    assert asked(checkout, "figures", status=status) == (0, [LENGTH, TRAIN, LAYERS, CLAIMS], "")


def test_without_data_the_layers_are_left_out_and_the_rest_is_kept(checkout):
    done, lines, err = asked(checkout, "figures", status=3)
    assert (done, lines) == (2, [LENGTH, TRAIN, CLAIMS])
    assert "figures: no data, so these are left out: layers_a\n" in err
    assert err.endswith("Error 1\n")


def test_length_alone_trains_nothing(checkout):
    (checkout.project.notebooks / "layers_a.ipynb").unlink()
    assert asked(checkout, "figures", status=3) == (0, [LENGTH, CLAIMS], "")
    assert asked(checkout, "runs", status=3) == (0, [], "")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ((), ""),
        (("-j2",), "--jobs 2 "),
        (("-j",), ""),
        (("JOBS=3",), "--jobs 3 "),
        (("-j2", "JOBS=3"), "--jobs 3 "),
        (("-j2", "ARGS=-p x -j7"), "--jobs 2 "),
    ],
)
@pytest.mark.parametrize("target", ["figures", "runs"])
def test_as_many_processes_train_as_make_was_given(checkout, target, arguments, option):
    _, lines, _ = asked(checkout, target, *arguments)
    assert any(f"trainings {option}layers_a --profile quick" in line for line in lines)


@pytest.mark.parametrize("jobs", ["two", "0", "-1"])
def test_a_wrong_number_of_processes_is_refused_before_anything_runs(checkout, jobs):
    done, lines, err = asked(checkout, "figures", f"JOBS={jobs}")
    assert (done, lines) == (2, [])
    assert err.startswith(f"JOBS={jobs}: give the number of processes")


def test_runs_are_those_of_a_profile_a_device_and_a_figure(checkout):
    assert asked(checkout, "runs", "PROFILE=paper", "DEVICE=cuda", "FIG=layers_b")[1] == [
        "experiments.trainings layers_b --profile paper --device cuda"
    ]


def test_runs_and_bench_pass_arguments_on(checkout):
    assert asked(checkout, "runs", "ARGS=--jobs 5")[1] == [f"{TRAIN} --jobs 5"]
    assert asked(checkout, "bench", "ARGS=--quick")[1][-1] == "bench --quick"


def test_the_status_of_the_trainings_is_that_of_runs(checkout):
    assert asked(checkout, "runs", status=3)[2].endswith("Error 3\n")


def test_data_are_fetched_into_the_folder_that_is_given(checkout):
    assert asked(checkout, "data")[1] == ["training.data"]
    assert asked(checkout, "data", "DATA=a b")[1] == ["training.data DATA=a b"]
    assert asked(checkout, "runs", "STORE=s", DATA="d")[1] == [f"{TRAIN} DATA=d STORE=s"]


def test_notebooks_are_compared_after_the_trainings_of_the_quick_profile(checkout):
    _, lines, _ = asked(checkout, "test", "PROFILE=paper", "-s")
    assert lines == [
        "ruff check .",
        "training.data",
        "pytest -q -n 2 tests --ignore tests/reference",
        TRAIN,
        "runner check",
        "pytest -q tests/reference",
    ]


def test_a_dry_run_trains_nothing(checkout):
    _, lines, _ = asked(checkout, "-n", "figures")
    assert not [line for line in lines if line.startswith(("experiments", "runner"))]


def test_clean_spares_data_and_trained_runs(checkout):
    build = checkout.project.root / "build"
    for name in ("quick", "a b", "data", "runs"):
        (build / name).mkdir(parents=True)
        (build / name / "x").touch()
    assert asked(checkout, "clean")[:2] == (0, ["kept: build/data", "kept: build/runs"])
    assert sorted(path.name for path in build.rglob("*")) == ["data", "runs", "x", "x"]
    shutil.rmtree(build)
    assert asked(checkout, "clean") == (0, [], "")


def test_figures_go_on_after_a_failure_and_run_only_what_changed(checkout):
    checkout.add("length_b", "1 / 0")
    done, lines, err = asked(checkout, "figures", "-j2", status=1, python="trainer")
    assert done == 2
    assert "length_b: FAILED in code cell 2 of 2 (1 / 0): raised" in err
    assert "figures: not all succeeded" in err
    assert any("claims judged" in line for line in lines)
    assert checkout.files(checkout.project.figures("quick")) == [
        "CLAIMS.md",
        "layers_a.csv",
        "length_a.csv",
    ]
    checkout.add("length_b", "n")
    for path in checkout.project.notebooks.iterdir():
        os.utime(path)
    done, lines, _ = asked(checkout, "figures", python="trainer")
    assert done == 0
    runs = [line for line in lines if line.startswith(("length", "layers"))]
    assert runs[0] == "length_a: reused: nothing changed"
    assert runs[1] == "length_b: running: first run"
    assert runs[-1] == "layers_a: reused: nothing changed"


def test_make_with_an_old_python_is_one_clear_error(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    status, _, err = make(f"PYTHON={old}", "lint")
    assert status == 2
    assert err.splitlines()[0] == f"PYTHON={old}: no Python 3.11 or later"


@pytest.mark.parametrize(
    ("request_", "message"),
    [("PROFILE=nope", "unknown profile 'nope'"), ("DEVICE=gpu", "unknown device 'gpu'")],
)
def test_a_wrong_profile_or_device_is_refused_once(workshop, request_, message):
    root = workshop.project.root
    shutil.copy(ROOT / "Makefile", root)
    for name in ("a", "b"):
        workshop.add(name, parameters="device = 'cpu'")
    settings = {"PYTHON": sys.executable, "PAPERLIB_ROOT": str(root)}
    status, out, err = make("figures", request_, folder=root, **settings)
    assert (status, out) == (2, "")
    refusals = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(refusals) == 1
    assert message in refusals[0]
    assert not (root / "build").exists()


def test_make_acts_on_no_other_folder_than_its_own(tmp_path):
    status, out, err = make("-f", str(ROOT / "Makefile"), "clean", folder=tmp_path)
    assert (status, out) == (2, "")
    assert "run make in the folder of this Makefile" in err
    assert make("-C", str(ROOT), "-f", "./Makefile", "help", folder=tmp_path)[0] == 0


@pytest.mark.parametrize("python", ["{}/my python", "env {}/python"])
def test_an_interpreter_may_have_a_space_in_its_name_or_be_a_command(tmp_path, python):
    for name in ("my python", "python"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n')
        (tmp_path / name).chmod(0o755)
    status, out, err = make("bench", f"PYTHON={python.format(tmp_path)}")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "-m paperlib.bench"
