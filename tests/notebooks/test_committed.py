"""Every committed notebook is fit to be compared; and what makes one unfit."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from paperlib.paths import Project
from paperlib.running.committed import KERNELSPEC, problems
from paperlib.running.profiles import QUICK, notebook_names, notebook_path
from paperlib.running.run import plan

HERE = Project.here()
PROFILES = [QUICK, *sorted(path.stem for path in HERE.profiles.glob("*.yaml"))]


@pytest.mark.parametrize("name", notebook_names(HERE))
def test_committed_notebooks_are_fit_to_be_compared(name):
    assert problems(nbformat.read(notebook_path(HERE, name), as_version=4), name) == []


@pytest.mark.parametrize("name", notebook_names(HERE))
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_accepted_by_every_notebook(name, profile):
    assert plan(name, profile, project=HERE).name == name


@pytest.fixture
def notebook():
    """A notebook with nothing wrong; the tests break it."""
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell("n = 1", metadata={"tags": ["parameters"]}, execution_count=1),
        new_code_cell("print(n)", execution_count=2),
    ]
    cells[2].outputs = [new_output("stream", name="stdout", text="1\n")]
    metadata = {"kernelspec": dict(KERNELSPEC), "language_info": {"name": "python"}}
    return new_notebook(cells=cells, metadata=metadata)


def test_a_good_notebook_has_no_problems(notebook):
    assert problems(notebook, "x") == []


def only(notebook):
    (problem,) = problems(notebook, "x")
    return problem


def test_a_missing_parameters_tag(notebook):
    notebook.cells[1].metadata = {}
    assert only(notebook) == "no code cell tagged 'parameters'; exactly one is needed"


def test_two_parameters_tags(notebook):
    notebook.cells[2].metadata = {"tags": ["parameters"]}
    assert "2 code cells tagged 'parameters'" in only(notebook)


def test_a_figure_that_is_only_named(notebook):
    data = {"text/plain": "<Figure size 800x300 with 2 Axes>"}
    notebook.cells[2].outputs.append(new_output("display_data", data))
    assert "shows a figure as text" in only(notebook)
    data["image/png"] = "iVBORw0KGgo="
    notebook.cells[2].outputs[1] = new_output("display_data", data)
    assert problems(notebook, "x") == []


def test_a_stripped_notebook(notebook):
    for cell in notebook.cells[1:]:
        cell.outputs, cell.execution_count = [], None
    assert problems(notebook, "x") == [
        "code cell 1: was never run; run make refresh",
        "code cell 2: was never run; run make refresh",
        "no cell has an output that is compared; run make refresh",
    ]


@pytest.mark.parametrize(
    "cell",
    [
        {"source": "# NBVAL_IGNORE_OUTPUT\nprint(n)"},
        {"source": "# NBVAL_SKIP\nprint(n)"},
        {"metadata": {"tags": ["nbval-ignore-output"]}},
    ],
)
def test_outputs_that_are_all_ignored(notebook, cell):
    notebook.cells[2].update(cell)
    assert only(notebook) == "no cell has an output that is compared; run make refresh"


@pytest.mark.parametrize(
    "marker",
    ["# NBVAL_IGNORE_OUTPUT: noisy", "# NBVAL_IGNORE", "# nbval_skip", "#NBVAL_RAISES_EXCEPTION"],
)
def test_a_marker_that_marks_nothing(notebook, marker):
    notebook.cells[2].source = f"{marker}\nprint(n)"
    assert only(notebook).startswith(f"code cell 2: '{marker}' marks nothing")


@pytest.mark.parametrize("tag", ["nbval-ignore", "NBVAL-IGNORE-OUTPUT", "nbval_skip"])
def test_a_tag_that_marks_nothing(notebook, tag):
    notebook.cells[2].metadata["tags"] = [tag]
    assert only(notebook).startswith(f"code cell 2: '{tag}' marks nothing")


def test_a_foreign_kernel(notebook):
    notebook.metadata.kernelspec.name = "py39_new"
    assert only(notebook) == "kernelspec is 'py39_new', not 'python3'"


@pytest.mark.parametrize("place", ["notebook", "cell"])
def test_traces_of_papermill(notebook, place):
    target = notebook if place == "notebook" else notebook.cells[2]
    target.metadata["papermill"] = {"duration": 1.0}
    assert "metadata of a run or an editor: papermill" in only(notebook)


def test_an_interpreter_s_version(notebook):
    notebook.metadata.language_info["version"] = "3.11.2"
    assert only(notebook) == "language_info names a Python version"


def test_stderr(notebook):
    notebook.cells[2].outputs.append(new_output("stream", name="stderr", text="warning"))
    assert only(notebook) == "code cell 2: wrote to stderr"


def test_an_error(notebook):
    notebook.cells[2].outputs.append(
        new_output("error", ename="ValueError", evalue="", traceback=[])
    )
    assert only(notebook) == "code cell 2: holds the error ValueError"


@pytest.mark.parametrize("path", ["/home/ann/x.py", "/tmp/x", "/Users/ann/paper"])
def test_an_absolute_path(notebook, path):
    notebook.cells[2].outputs = [new_output("display_data", {"text/html": f"<b>{path}</b>"})]
    assert "shows the absolute path /" in only(notebook)


@pytest.mark.parametrize("text", ["1/tmp", "https://x.org/home/a", "figures/tmp/a", "n_L/var n"])
def test_what_only_looks_like_an_absolute_path(notebook, text):
    notebook.cells[2].outputs[0].text = text
    assert problems(notebook, "x") == []


def test_a_long_cell(notebook):
    notebook.cells[2].source = "\n".join(["n"] * 26)
    assert only(notebook) == "code cell 2: 26 lines, more than 25"
