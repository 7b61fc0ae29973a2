import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from paperlib.paths import PACKAGE

ROOT = PACKAGE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKE_VARIABLES = {
    *("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"),
    *("PROFILE", "DEVICE", "PYTHON", "LOCK", "FIG", "ARGS"),
}
CONDA_NAMES = {"pytorch": "torch"}


def ranges(requirements):
    """Normalised name → version range."""
    found = {}
    for requirement in requirements:
        name, version = re.fullmatch(r"([\w.-]+?)\s*((?:[<>=!~]=?.*)?)", requirement).groups()
        name = name.lower().replace("_", "-")
        found[CONDA_NAMES.get(name, name)] = version
    return found


def test_conda_and_pip_ask_for_the_same_ranges():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    by_conda = ranges(entry for entry in conda if isinstance(entry, str))
    by_pip = ranges(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    assert by_conda.pop("pip") == ""
    assert by_conda.pop("python") == PROJECT["requires-python"]
    assert by_conda == by_pip


def test_the_lock_pins_every_requirement_and_no_gpu_package():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = ranges(line for line in lines if not line.startswith("#"))
    wanted = ranges(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    assert wanted.keys() <= pins.keys()
    assert all(version.startswith("==") and "+" not in version for version in pins.values())
    assert not [name for name in pins if re.match("nvidia|cuda|triton|paperlib", name)]


def make(*arguments, folder=ROOT, **environment):
    # A make above us must not lend this one its options.
    kept = {name: value for name, value in os.environ.items() if name not in MAKE_VARIABLES}
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
    for target in ("figures", "figure", "test", "lab", "claims", "bench", "why", "refresh"):
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


def test_figures_go_on_after_a_failure_and_run_only_what_changed(workshop):
    root = workshop.project.root
    shutil.copy(ROOT / "Makefile", root)
    workshop.add_saving("length_a")
    workshop.add("length_b", "1 / 0")
    workshop.add_saving("layers_a")
    settings = {"PYTHON": sys.executable, "PAPERLIB_ROOT": str(root)}
    status, out, err = make("figures", "-j2", folder=root, **settings)
    assert status == 2
    assert "length_b: FAILED in code cell 2 of 2 (1 / 0): raised" in err
    assert "figures: not all succeeded" in err
    assert "claims judged" in out
    assert workshop.files(workshop.project.figures("quick")) == [
        "CLAIMS.md",
        "layers_a.csv",
        "length_a.csv",
    ]
    workshop.add("length_b", "n")
    for path in workshop.project.notebooks.iterdir():
        os.utime(path)
    status, out, _ = make("figures", folder=root, **settings)
    assert status == 0
    runs = [line for line in out.splitlines() if line.startswith(("length", "layers"))]
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
