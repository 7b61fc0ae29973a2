"""`make runs`: what the notebooks need, what is missing, and failures that leave the rest alone."""

from dataclasses import replace

import pytest

from paperlib.experiments import fcn_runs, trainings
from paperlib.paths import Project, data_dir
from paperlib.running.profiles import notebook_names
from paperlib.training import data, runs

TINY = {"dataset": "mnist", "lr": 0.01, "epochs": 1, "train_images": 256}
NOTEBOOK = "layers_fig01_fcn_mnist"


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("STORE", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_every_notebook_on_layers_says_which_runs_it_needs():
    on_layers = {n for n in notebook_names(Project.here()) if n.startswith("layers_")}
    assert on_layers - {"layers_fig10_blocks"} == set(trainings.NEEDED)


def test_a_notebook_needs_the_runs_of_its_parameters():
    options = {"hidden": 3, "width": 8, "initialiser": "he", "lr": 0.1, "epochs": 2}
    specs = trainings.needed(NOTEBOOK, options | {"train_images": 100, "seeds": 2, "device": "cpu"})
    assert [spec.seed for spec in specs] == [0, 1]
    assert {spec.recipe.lr for spec in specs} == {0.1}
    assert trainings.needed("length_fig1_depth", {}) == []


def test_a_run_that_two_notebooks_need_is_missing_once(store):
    specs = fcn_runs.specs(1, 4, seeds=range(2), **TINY)
    assert trainings.missing([*specs, *specs]) == specs
    (store / specs[0].folder_name).mkdir(parents=True)
    assert trainings.missing(specs) == specs, "a folder alone is no finished run"
    (store / specs[0].folder_name / "done.json").touch()
    assert trainings.missing(specs) == specs[1:]


def test_what_is_refused_ends_with_status_2(capsys):
    assert trainings.main([NOTEBOOK, "--profile", "papr"]) == 2
    assert "did you mean 'paper'" in capsys.readouterr().err
    assert trainings.main([NOTEBOOK, "--device", "gpu"]) == 2


@pytest.mark.parametrize("jobs", ["0", "-2", "two"])
def test_a_wrong_number_of_processes_is_refused(jobs, capsys):
    with pytest.raises(SystemExit) as ended:
        trainings.main([NOTEBOOK, f"--jobs={jobs}"])
    assert ended.value.code == 2
    assert f"give a number of processes from 1, not '{jobs}'" in capsys.readouterr().err


def test_data_that_cannot_be_had_end_with_status_3_and_one_message(monkeypatch, capsys):
    def nowhere(name):
        raise data.DataError(f"the data set {name} is not there")

    monkeypatch.setattr(trainings.data, "prepare", nowhere)
    assert trainings.main([NOTEBOOK]) == 3
    assert capsys.readouterr().err.count("the data set mnist is not there") == 1


def test_nothing_is_done_where_nothing_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(trainings, "missing", lambda specs: [])
    monkeypatch.setattr(trainings.data, "prepare", str)
    assert trainings.main([]) == 0
    assert capsys.readouterr().out == ""


def test_a_training_that_fails_leaves_the_others_alone(capsys):
    if not (data_dir() / "decoded-v1" / "mnist.json").exists():
        pytest.skip("mnist has not been fetched")
    good, bad = fcn_runs.specs(1, 4, seeds=range(2), **TINY)
    bad = replace(bad, recipe=replace(bad.recipe, lr=1e30))
    assert trainings.train([bad, good], 2, "cpu") == 1
    assert runs.finished(good) and not runs.finished(bad)
    out = capsys.readouterr().out
    assert "seed 1: FAILED: training diverged" in out
    assert "seed 0: trained in" in out
