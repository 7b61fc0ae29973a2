import subprocess
import sys

import pytest

from paperlib.atomic import sweep, write_all, write_whole


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_new_and_old_files_get_their_content_and_nothing_else_is_left(tmp_path):
    write_whole(tmp_path / "a", b"old")
    write_all({tmp_path / "a": b"new", tmp_path / "b": memoryview(b"too")})
    assert contents(tmp_path) == {"a": b"new", "b": b"too"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_files(tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "a", b"old")
    monkeypatch.setattr(f"os.{call}", full)
    with pytest.raises(OSError, match="No space"):
        write_all({tmp_path / "a": b"new", tmp_path / "b": b"too"})
    assert contents(tmp_path) == {"a": b"old"}


def test_what_killed_writers_left_is_swept_by_the_stem_of_its_name(tmp_path):
    for name in (".mnist-train.npy.7.part", ".cifar10.json.8.part", "mnist.part", ".mnist.lock"):
        (tmp_path / name).touch()
    sweep(tmp_path, "mnist")
    assert sorted(contents(tmp_path)) == [".cifar10.json.8.part", ".mnist.lock", "mnist.part"]
    sweep(tmp_path)
    assert sorted(contents(tmp_path)) == [".mnist.lock", "mnist.part"]


@pytest.mark.parametrize("module", ["paperlib.runner", "paperlib.report.claims"])
def test_what_reuses_results_need_not_wait_for_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
