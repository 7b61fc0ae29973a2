"""The lists of packages agree with each other."""

import re
import tomllib

import yaml

from paperlib.paths import PACKAGE

ROOT = PACKAGE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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
