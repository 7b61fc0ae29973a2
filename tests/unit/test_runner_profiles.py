import pytest

from paperlib.running.errors import Refused
from paperlib.running.profiles import notebook_names, notebook_path, profile_overrides


@pytest.fixture
def project(workshop):
    for name in ("layers_a", "length_b", "length_a"):
        workshop.add(name)
    return workshop.project


def write(project, text):
    (project.profiles / "paper.yaml").write_text(text)


def test_length_comes_first_and_explorations_not_at_all(project):
    (project.notebooks / "explore").mkdir()
    (project.notebooks / "explore" / "play.ipynb").write_text("{}")
    assert notebook_names(project) == ["length_a", "length_b", "layers_a"]


def test_an_unknown_notebook_is_refused_with_the_nearest_one(project):
    with pytest.raises(Refused, match="unknown notebook 'lenght_a'; did you mean 'length_a'"):
        notebook_path(project, "lenght_a")


def test_quick_changes_nothing(project):
    assert profile_overrides(project, "quick") == {}


def test_a_profile_maps_notebooks_to_values(project):
    write(project, "length_a:\n  n: 5\nlayers_a:\n")
    assert profile_overrides(project, "paper") == {"length_a": {"n": 5}, "layers_a": {}}


def test_an_unknown_profile_is_refused(project):
    write(project, "")
    with pytest.raises(Refused, match="unknown profile 'papper'; did you mean 'paper'"):
        profile_overrides(project, "papper")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("length_c: {n: 1}", "unknown notebook 'length_c'; did you mean"),
        ("1: {n: 1}", "unknown notebook 1"),
        ("length_a: [", "no valid YAML"),
        ("- length_a", "must map notebook names"),
        ("length_a: {n: 1}\nlength_a: {n: 2}", "'length_a' stands here twice"),
        ("length_a: {n: 1, n: 2}", "'n' stands here twice"),
        ("length_a: {n: 2020-13-45}", "no valid YAML"),
        ("? [length_a]\n: {n: 1}", "no valid YAML"),
        ("length_a: 5", "must map parameter names to values, not 5"),
    ],
)
def test_a_wrong_profile_file_is_refused(project, text, message):
    write(project, text)
    with pytest.raises(Refused, match=message):
        profile_overrides(project, "paper")
