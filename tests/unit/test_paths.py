import pytest

from paperlib import paths
from paperlib.paths import Project, figures_dir


def test_figures_of_a_curious_reader_never_touch_committed_ones(monkeypatch):
    monkeypatch.delenv("PAPERLIB_FIGURES", raising=False)
    assert figures_dir() == Project.here().build("lab") / "figures"


def test_the_runner_decides_where_figures_go(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    assert figures_dir() == tmp_path


def test_the_project_is_found_from_the_source_and_not_from_the_caller(monkeypatch, tmp_path):
    monkeypatch.delenv("PAPERLIB_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert (Project.here().root / "paperlib" / "paths.py").samefile(paths.__file__)


def test_profiles_are_quick_and_those_with_a_file(tmp_path):
    project = Project(tmp_path)
    assert project.profile_names == ["quick"]
    project.profiles.mkdir(parents=True)
    for name in ("paper.yaml", "long.yaml", "notes.txt"):
        (project.profiles / name).touch()
    assert project.profile_names == ["quick", "long", "paper"]


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_profiles_do_not_share_folders(tmp_path, profile):
    project = Project(tmp_path)
    assert project.build(profile) == tmp_path / "build" / profile
    assert project.figures(profile) == tmp_path / "figures" / profile


@pytest.mark.parametrize(
    ("variable", "folder"), [("DATA", paths.data_dir), ("STORE", paths.store_dir)]
)
def test_the_home_of_nobody_is_refused(monkeypatch, variable, folder):
    monkeypatch.setenv(variable, "~nosuchuser/x")
    with pytest.raises(ValueError, match=f"{variable}=~nosuchuser/x: there is no such user"):
        folder()
