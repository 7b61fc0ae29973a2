import shutil

import pytest

from paperlib.paths import PACKAGE
from paperlib.running.key import difference, key_of, used_files
from paperlib.running.notebooks import CodeCell


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "paperlib"
    for name, text in {
        "__init__.py": "",
        "paths.py": "",
        "unused.py": "",
        "length/__init__.py": "from .theory import mean",
        "length/theory.py": "from .. import paths",
        "length/ensemble.py": "import paperlib.report.style as style\nimport numpy",
        "report/__init__.py": "",
        "report/style.py": "def f():\n    from paperlib.report import late\n",
        "report/late.py": "",
        "report/claims.toml": "",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(files, package):
    return [file.relative_to(package).as_posix() for file in files]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import numpy", []),
        ("import paperlib", ["__init__.py"]),
        (
            "%matplotlib inline\n!ls\nfrom paperlib.length import theory",
            ["__init__.py", "length/__init__.py", "length/theory.py", "paths.py"],
        ),
        (
            "from paperlib.report import style",
            [
                "__init__.py",
                "report/__init__.py",
                "report/claims.toml",
                "report/late.py",
                "report/style.py",
            ],
        ),
    ],
)
def test_sources_are_followed_through_imports(package, code, expected):
    assert names(used_files(code, package), package) == expected


def key(package, body="from paperlib.length import theory", device="cpu", **parameters):
    cells = [CodeCell("n = 1", ("parameters",)), CodeCell(body, ())]
    return key_of(cells, parameters or {"n": 1}, package, device).as_json()


def test_the_same_state_makes_the_same_key(package):
    assert difference(key(package), key(package)) is None


def test_a_changed_parameter_is_named_with_both_values(package):
    assert (
        difference(key(package, nets=500), key(package, nets=2000))
        == "parameter nets changed from 500 to 2000"
    )


def test_new_and_dropped_parameters_are_named(package):
    assert (
        difference(key(package, a=1), key(package, b=1))
        == "parameter b is new; parameter a is no longer used"
    )


def test_a_changed_module_is_named_even_when_it_is_imported_indirectly(package):
    old = key(package)
    (package / "paths.py").write_text("x = 1")
    assert difference(old, key(package)) == "paperlib/paths.py changed"


def test_other_data_are_a_reason_for_what_trains_on_them(package):
    shutil.copytree(PACKAGE / "training", package / "training")
    (package / "experiments").mkdir()
    (package / "experiments" / "a.py").write_text("from paperlib.training import data")
    old = key(package, "from paperlib.experiments import a")
    sources = package / "training" / "sources.py"
    mnist = "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    sources.write_text(sources.read_text().replace(mnist, mnist[::-1]))
    new = key(package, "from paperlib.experiments import a")
    assert difference(old, new) == "paperlib/training/sources.py changed"


def test_a_module_that_the_notebook_does_not_use_changes_nothing(package):
    old = key(package)
    (package / "unused.py").write_text("x = 1")
    (package / "length" / "ensemble.py").write_text("x = 1")
    assert difference(old, key(package)) is None


def test_a_changed_cell_is_named(package):
    assert difference(key(package, "1"), key(package, "2")) == (
        "the notebook's code changed (cell 1, not counting the parameters)"
    )


def test_another_device_and_another_version_are_named(package):
    old = key(package)
    new = {**key(package, device="cuda"), "versions": {**old["versions"], "numpy": "99"}}
    numpy = old["versions"]["numpy"]
    assert difference(old, new) == (
        f"numpy changed from {numpy} to 99; the device changed from cpu to cuda"
    )


def test_tuples_survive_the_way_through_json(package):
    assert key(package, pair=(1, 2))["parameters"] == {"pair": [1, 2]}


def test_the_source_key_leaves_machine_and_versions_out(package):
    cells = [CodeCell("n = 1", ("parameters",))]
    a = key_of(cells, {"n": 1}, package, "cpu")
    b = key_of(cells, {"n": 1}, package, "cuda")
    c = key_of(cells, {"n": 2}, package, "cpu")
    assert a.source == b.source != c.source
