import json

import pytest

from paperlib.running.results import Record, publish, reason_to_run

VERSIONS = {"matplotlib": "3.8"}


def stage(folder, n=1, png="picture", key="k", versions=VERSIONS):
    folder.mkdir()
    (folder / "a.csv").write_text(f"n\n{n}\n")
    (folder / "a.png").write_text(png)
    (folder / "a.json").write_text(json.dumps({"key": key, "versions": versions, "seed": 0}))
    return folder


@pytest.fixture
def figures(tmp_path):
    publish(stage(tmp_path / "first"), tmp_path / "figures", [])
    return tmp_path / "figures"


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_new_result_replaces_every_file(tmp_path, figures):
    publish(stage(tmp_path / "next", n=2, key="other"), figures, [])
    assert contents(figures) == contents(stage(tmp_path / "expected", n=2, key="other"))
    assert not (tmp_path / "next").exists()


@pytest.mark.parametrize(
    "again",
    [
        {},
        {"versions": {"matplotlib": "3.9"}},
        {"versions": {"matplotlib": "3.9"}, "png": "drawn by another version"},
        {"key": "comments were edited"},
    ],
)
def test_the_same_result_leaves_the_files_alone(tmp_path, figures, again):
    before = contents(figures)
    publish(stage(tmp_path / "next", **again), figures, [])
    assert contents(figures) == before


@pytest.mark.parametrize(
    "again",
    [
        {"png": "another style", "key": "style changed"},
        {"png": "another style", "key": "style changed", "versions": {"matplotlib": "3.9"}},
        {"png": "odd"},
    ],
)
def test_a_redrawn_picture_is_published(tmp_path, figures, again):
    publish(stage(tmp_path / "next", **again), figures, [])
    assert contents(figures)["a.png"] == again["png"]


def test_files_that_are_no_longer_made_go(tmp_path, figures):
    old = figures / "a_inset.csv"
    foreign = figures / "b.csv"
    old.write_text("")
    foreign.write_text("")
    publish(stage(tmp_path / "next"), figures, [old])
    assert not old.exists()
    assert foreign.exists()


def test_a_disk_that_fills_up_in_the_middle_leaves_all_old_files(tmp_path, figures, monkeypatch):
    before = contents(figures)
    left = iter([None])

    def full(_):
        if next(left, "nothing") == "nothing":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        publish(stage(tmp_path / "next", n=2, png="new"), figures, [])
    assert contents(figures) == before


KEY = {"parameters": {}, "code": [], "sources": {}, "versions": {}, "device": "cpu"}


def test_without_a_record_it_is_the_first_run(tmp_path):
    (tmp_path / "r.json").write_text("{ half")
    assert Record.read(tmp_path / "r.json") is None
    assert Record.read(tmp_path / "none.json") is None
    assert reason_to_run(None, KEY, tmp_path) == "first run"


def test_a_record_comes_back_as_it_was_written(tmp_path):
    record = Record(KEY, {"a.csv": "123"}, 1.5)
    record.write(tmp_path / "r.json")
    assert Record.read(tmp_path / "r.json") == record


def test_a_missing_or_edited_output_is_a_reason(tmp_path):
    record = Record(KEY, {"figures/quick/a.csv": "123"})
    assert reason_to_run(record, KEY, tmp_path) == "figures/quick/a.csv is missing or was edited"


def test_a_record_of_another_kind_is_a_reason(tmp_path):
    assert "another kind" in reason_to_run(Record({"hash": 1}), KEY, tmp_path)


@pytest.mark.parametrize(
    "damage",
    [{"key": []}, {"outputs": ["a"]}, {"outputs": {"a": 1}}, {"seconds": "5"}, {"more": 1}],
)
def test_a_record_with_wrong_types_is_none(tmp_path, damage):
    (tmp_path / "r.json").write_text(json.dumps({"key": KEY, **damage}))
    assert Record.read(tmp_path / "r.json") is None
