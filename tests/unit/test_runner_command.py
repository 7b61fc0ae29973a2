"""The command line against small notebooks of its own."""

import json
import sys

import nbformat
import pytest
import torch

from paperlib.running.errors import Refused
from paperlib.running.run import plan, run

TYPES = "print(type(x).__name__, x)"


def printed(path):
    """What the notebook's cells wrote to stdout."""
    outputs = (
        output for cell in nbformat.read(path, 4).cells for output in cell.get("outputs", [])
    )
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def test_a_figure_is_made_once_and_then_reused(workshop):
    workshop.add_saving("length_a")
    status, out, err = workshop.command("figures")
    assert (status, err) == (0, "")
    assert "length_a: running: first run\n" in out
    assert "figures in figures/quick\n" in out
    assert workshop.files(workshop.project.figures("quick")) == ["length_a.csv"]
    assert workshop.files(workshop.project.build("quick")) == ["length_a.ipynb", "length_a.json"]
    assert workshop.command("figures") == (0, "length_a: reused: nothing changed\n", "")


def test_markdown_and_outputs_are_no_reason_to_run(workshop):
    path = workshop.add_saving("length_a")
    run("length_a", project=workshop.project)
    notebook = nbformat.read(path, 4)
    notebook.cells[0].source = "# Another title"
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text="edited")]
    nbformat.write(notebook, path)
    assert plan("length_a", project=workshop.project).reason() is None


def test_an_edited_figure_is_made_again(workshop):
    workshop.add_saving("length_a")
    run("length_a", project=workshop.project)
    csv = workshop.project.figures("quick") / "length_a.csv"
    csv.write_text("forged")
    why = workshop.command("why", "length_a")[1]
    assert why == "length_a: would run: figures/quick/length_a.csv is missing or was edited\n"
    run("length_a", project=workshop.project)
    assert csv.read_text() == "n\n1\n"


def test_a_profile_has_its_own_folders_and_reasons(workshop):
    workshop.add_saving("length_a")
    profile = workshop.project.profiles / "paper.yaml"
    profile.write_text("length_a: {n: 500}")
    run("length_a", "paper", project=workshop.project)
    assert (workshop.project.figures("paper") / "length_a.csv").read_text() == "n\n500\n"
    assert not workshop.project.figures("quick").exists()
    profile.write_text("length_a: {n: 2000}")
    reason = plan("length_a", "paper", project=workshop.project).reason()
    assert reason == "parameter n changed from 500 to 2000"


def test_tweaked_figures_never_replace_those_of_the_profile(workshop):
    workshop.add_saving("length_a")
    run("length_a", project=workshop.project)
    status, out, _ = workshop.command("figures", "length_a", "-p", "n", "7")
    assert status == 0
    assert "figures in build/quick-tweaked/figures\n" in out
    tweaked = workshop.project.build("quick-tweaked") / "figures"
    assert (tweaked / "length_a.csv").read_text() == "n\n7\n"
    assert (workshop.project.figures("quick") / "length_a.csv").read_text() == "n\n1\n"
    assert plan("length_a", project=workshop.project).reason() is None


def test_values_reach_the_kernel_in_the_default_s_type(workshop):
    workshop.add("a", TYPES, parameters="x = 1.0")
    done = run("a", overrides={"x": 2}, project=workshop.project)
    assert printed(done.plan.executed) == "float 2.0\n"


def test_the_kernel_knows_profile_key_and_that_it_must_be_quiet(workshop):
    names = ["PAPERLIB_PROFILE", "PAPERLIB_KEY", "PAPERLIB_PROGRESS", "MPLBACKEND"]
    workshop.add("a", f"import os\nfor name in {names}: print(os.environ[name])")
    done = run("a", project=workshop.project)
    assert printed(done.plan.executed).split() == [
        "quick",
        done.plan.key.source,
        "off",
        "module://matplotlib_inline.backend_inline",
    ]


def test_the_kernel_is_the_interpreter_that_runs_us(workshop, monkeypatch, tmp_path):
    foreign = tmp_path / "share" / "jupyter" / "kernels" / "python3"
    foreign.mkdir(parents=True)
    spec = {"argv": ["/no/such/python"], "display_name": "x", "language": "python"}
    (foreign / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    workshop.add("a", "import sys\nprint(sys.executable)")
    assert printed(run("a", project=workshop.project).plan.executed).strip() == sys.executable


def test_device_sets_the_parameter_where_there_is_one(workshop, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    workshop.add("a", parameters="device = 'cpu'")
    workshop.add("b", parameters="n = 1")
    assert plan("a", device="mps", project=workshop.project).overrides == {"device": "mps"}
    assert plan("b", device="mps", project=workshop.project).overrides == {}
    assert plan("a", device="mps", project=workshop.project).build.name == "quick"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("length_b",), "unknown notebook 'length_b'; did you mean 'length_a'"),
        (("length_a", "-p", "m", "1"), "unknown parameter 'm'"),
        (("length_a", "-p", "n", "1.5"), "parameter n: expected int"),
        (("length_a", "--profile", "paper"), "unknown profile 'paper'"),
        (("length_a", "--device", "gpu"), "unknown device 'gpu'; allowed"),
        (("length_a", "-p", "n", "1", "-p", "n", "2"), "-p n is given twice"),
        (("-p", "n", "1"), "-p needs the name of the notebook"),
    ],
)
def test_a_bad_request_is_one_line_and_nothing_runs(workshop, arguments, message):
    workshop.add("length_a", parameters="n = 1\ndevice = 'cpu'")
    status, out, err = workshop.command("figures", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (workshop.project.root / "build").exists()


def test_one_bad_notebook_is_refused_before_a_good_one_runs(workshop):
    workshop.add_saving("length_a")
    workshop.add("length_b", parameters="import os")
    status, out, err = workshop.command("figures")
    assert (status, out) == (2, "")
    assert "length_b: the parameters cell may hold only" in err


def test_a_file_that_is_no_notebook_is_refused(workshop):
    (workshop.project.notebooks / "a.ipynb").write_text("{")
    with pytest.raises(Refused, match=r"a\.ipynb is no valid notebook"):
        plan("a", project=workshop.project)


def test_list_names_notebooks_with_their_titles(workshop):
    workshop.add("length_a")
    workshop.add("b")
    assert workshop.command("list")[1] == "length_a  About length_a\nb         About b\n"


def test_refresh_writes_clean_outputs_and_is_quiet_the_second_time(workshop):
    path = workshop.add("a", "print(n)", "n + 1")
    notebook = nbformat.read(path, 4)
    notebook.metadata = {"kernelspec": {"name": "py39_new", "display_name": "x"}, "papermill": {}}
    notebook.cells[2].metadata = {"execution": {"iopub.status.busy": "now"}, "tags": ["keep"]}
    nbformat.write(notebook, path)
    ids = [cell.id for cell in notebook.cells]
    assert "was rewritten" in workshop.command("refresh")[1]
    first = path.read_bytes()
    clean = nbformat.read(path, 4)
    assert clean.metadata == {
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    assert [cell.id for cell in clean.cells] == ids
    assert [cell.metadata for cell in clean.cells] == [
        {},
        {"tags": ["parameters"]},
        {"tags": ["keep"]},
        {},
    ]
    assert [cell.execution_count for cell in clean.cells[1:]] == [1, 2, 3]
    assert printed(path) == "1\n"
    assert clean.cells[3].outputs[0].data == {"text/plain": "2"}
    (workshop.project.build("quick") / "a.json").unlink()
    assert "is up to date" in workshop.command("refresh", "a")[1]
    assert path.read_bytes() == first


def test_refresh_refuses_to_commit_what_went_to_stderr(workshop):
    path = workshop.add("a", "import sys\nprint('look out', file=sys.stderr)")
    before = path.read_bytes()
    status, _, err = workshop.command("refresh")
    assert status == 1
    assert "code cell 2 wrote to stderr: look out" in err
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["figures", "why", "refresh", "check"])
def test_no_notebooks_at_all_is_an_error(workshop, command):
    status, out, err = workshop.command(command)
    assert (status, out) == (2, "")
    assert err.startswith("error: no notebooks in ")


@pytest.mark.parametrize("command", ["figures", "why", "refresh", "check", "list"])
@pytest.mark.parametrize(
    "damage",
    [
        {"cells": 5},
        {"cells": [5]},
        {"cells": [{"cell_type": "code"}]},
        {"cells": [{"cell_type": "markdown", "metadata": {}, "source": [1]}]},
        {"cells": [{"cell_type": "raw", "metadata": {"tags": 1}, "source": ""}]},
        {"metadata": None},
        {"nbformat_minor": "x"},
    ],
)
def test_a_malformed_notebook_is_refused(workshop, command, damage):
    path = workshop.add("a")
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    status, out, err = workshop.command(command)
    assert (status, out) == (1 if command == "refresh" else 2, "")
    assert "a.ipynb is no valid notebook: its metadata or a cell is malformed" in err


def test_a_terminal_without_mathematical_signs_is_served(workshop, monkeypatch):
    workshop.add("√n")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    assert workshop.start("list").communicate(timeout=60) == ("?n  About ?n\n", "")
