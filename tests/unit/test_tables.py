"""Tables beside a run: computed once, verified, and shared by processes."""

import json
import math
import threading

import pandas as pd
import pytest

from paperlib import atomic
from paperlib.training import tables
from paperlib.training.files import StoreError

INPUTS = {"run": "a", "images": 10}


def one_table():
    return {"errors": pd.DataFrame({"layer": ["a", "b"], "error": [0.1 + 0.2, math.nan]})}


class Count:
    """Computes the table, and counts how often."""

    calls = 0

    def __call__(self):
        self.calls += 1
        return one_table()


def get(folder, compute, **changes):
    return tables.get(folder, "errors", INPUTS | changes, compute)


def refuse():
    raise AssertionError("computed again")


def assert_right(found):
    pd.testing.assert_frame_equal(found["errors"], one_table()["errors"], check_exact=True)


def test_tables_come_back_to_the_last_digit(tmp_path):
    assert_right(get(tmp_path, one_table))
    assert_right(get(tmp_path, refuse))


def test_the_file_says_what_its_tables_depend_on(tmp_path):
    get(tmp_path, one_table)
    (path,) = tmp_path.glob("errors-*.json")
    assert json.loads(path.read_text())["inputs"] == INPUTS


def test_other_inputs_are_other_tables(tmp_path):
    compute = Count()
    get(tmp_path, compute)
    get(tmp_path, compute, images=11)
    assert compute.calls == 2
    assert len(list(tmp_path.glob("errors-*.json"))) == 2


def test_a_file_of_other_inputs_under_this_name_is_not_believed(tmp_path):
    get(tmp_path, one_table, images=11)
    (foreign,) = tmp_path.glob("errors-*.json")
    get(tmp_path, one_table)
    (own,) = set(tmp_path.glob("errors-*.json")) - {foreign}
    foreign.replace(own)
    with pytest.warns(UserWarning, match=r"something else: set aside as .*\.bad"):
        assert_right(get(tmp_path, one_table))
    assert_right(get(tmp_path, refuse))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x80\x04"])
def test_what_is_no_table_is_computed_anew(tmp_path, content):
    get(tmp_path, one_table)
    (path,) = tmp_path.glob("errors-*.json")
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="computed anew"):
        assert_right(get(tmp_path, one_table))


def test_files_of_a_later_version_are_left_alone(tmp_path):
    get(tmp_path, one_table)
    (path,) = tmp_path.glob("errors-*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(StoreError, match="later version"):
        get(tmp_path, refuse)


def test_where_nothing_can_be_written_tables_are_read_or_computed(tmp_path, monkeypatch):
    get(tmp_path, one_table)

    def read_only(*args):
        raise PermissionError("read-only")

    monkeypatch.setattr(tables, "FileLock", lambda path: type("", (), {"acquire": read_only})())
    assert_right(get(tmp_path, refuse))
    assert_right(get(tmp_path, one_table, images=11))
    assert len(list(tmp_path.glob("errors-*"))) == 1


def test_a_full_disk_costs_no_result(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "write_whole", full)
    assert_right(get(tmp_path, one_table))
    assert not list(tmp_path.glob("errors-*"))


def test_who_comes_second_waits_and_reads(tmp_path):
    began, go_on, found = threading.Event(), threading.Event(), []

    def slow():
        began.set()
        assert go_on.wait(10)
        return one_table()

    first = threading.Thread(target=lambda: found.append(get(tmp_path, slow)))
    second = threading.Thread(target=lambda: found.append(get(tmp_path, refuse)))
    first.start()
    assert began.wait(10)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go_on.set()
    for thread in (first, second):
        thread.join(10)
    for tables_ in found:
        assert_right(tables_)
    assert len(found) == 2
