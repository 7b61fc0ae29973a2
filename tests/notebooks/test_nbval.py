"""The comparison of committed notebooks really compares: each kind of damage makes it fail."""

import subprocess
import sys

import nbformat
import pytest

from paperlib.running.kernels import private_kernel


@pytest.fixture
def committed(workshop):
    """A project with one refreshed notebook that prints a number and saves a figure's data."""
    workshop.add("a", "from paperlib.paths import figures_dir", "print(f'{n / 7:.4f}')")
    assert workshop.command("refresh")[0] == 0
    return workshop


def check(workshop):
    """Exit status and output of the comparison."""
    process = workshop.start("check")
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def edit(workshop, change):
    path = workshop.project.notebooks / "a.ipynb"
    notebook = nbformat.read(path, 4)
    change(notebook.cells[3])
    nbformat.write(notebook, path)


def test_an_untouched_notebook_passes_and_touches_no_committed_file(workshop):
    workshop.add_saving("a")
    workshop.command("refresh")
    csv = workshop.project.figures("quick") / "a.csv"
    csv.write_text("committed")
    before = (workshop.project.notebooks / "a.ipynb").read_bytes()
    status, out = check(workshop)
    assert status == 0, out
    assert csv.read_text() == "committed"
    assert (workshop.project.notebooks / "a.ipynb").read_bytes() == before
    assert (workshop.project.build("nbval") / "figures" / "a.csv").read_text() == "n\n1\n"


def test_a_changed_number_fails(committed):
    edit(committed, lambda cell: cell.outputs[0].update(text="0.1430\n"))
    status, out = check(committed)
    assert status == 1
    assert "Cell outputs differ" in out


def test_changed_code_fails(committed):
    edit(committed, lambda cell: cell.update(source="print(f'{n / 8:.4f}')"))
    assert check(committed)[0] == 1


def test_a_stripped_notebook_fails(committed):
    edit(committed, lambda cell: cell.update(outputs=[], execution_count=None))
    status, _, err = committed.command("check")
    assert status == 1
    assert "a: code cell 3: was never run; run make refresh" in err


def test_nbval_alone_lets_a_stripped_notebook_pass(committed):
    edit(committed, lambda cell: cell.update(outputs=[], execution_count=None))
    path = str(committed.project.notebooks / "a.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", path, "-p", "no:cacheprovider"]
    with private_kernel({}):
        done = subprocess.run(command, cwd=committed.project.root, capture_output=True, check=False)
    assert done.returncode == 0


def test_check_refuses_unknown_names(committed):
    status, _, err = committed.command("check", "b")
    assert status == 2
    assert "unknown notebook 'b'" in err
