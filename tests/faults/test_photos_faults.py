"""Decoding of photos that is killed, that runs twice at once, or whose disk fills up."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from paperlib.training import data, decoding
from paperlib.training.data import DataError

SLOW = r"""
import sys, time
from paperlib.training import data, decoding
decoding.PART = 2
square = decoding.square
def slow(path, side):
    time.sleep(0.1)
    sys.stdout.write(f"{path.name}\n")  # at once, where print writes the end of line apart
    return square(path, side)
decoding.square = slow
print(data.load("imagenette-32", "train").checksum)
"""


def start():
    return subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True)


def test_a_kill_loses_only_the_parts_in_progress(photo_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(decoding, "PART", 2)
    process = start()
    try:
        while not (journals := list(photo_folder.data.glob("photos-v1/*/parts.jsonl"))) or (
            len(journals[0].read_text().splitlines()) < 4
        ):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = len(journals[0].read_text().splitlines())
    assert not list(photo_folder.data.glob("photos-v1/*/record.json"))

    names = []
    square = decoding.square
    monkeypatch.setattr(decoding, "square", lambda p, side: names.append(p) or square(p, side))
    loaded = data.load("imagenette-32", "train")
    assert len(names) == 18 - 2 * done
    monkeypatch.setenv("DATA", str(tmp_path / "other"))
    assert data.load("imagenette-32", "train").checksum == loaded.checksum
    assert len(names) == 18 - 2 * done + 18


def test_of_two_processes_one_decodes(photo_folder):
    processes = [start() for _ in range(2)]
    printed = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed[0][-1] == printed[1][-1]
    assert sorted(map(len, printed)) == [1, 19]  # the checksum, and 18 photos


def test_a_disk_that_fills_up_is_named_and_what_was_decoded_is_kept(photo_folder, monkeypatch):
    monkeypatch.setattr(decoding, "PART", 2)
    statistics, calls = decoding._statistics, []

    def full(pixels):
        calls.append(pixels)
        if len(calls) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return statistics(pixels)

    with monkeypatch.context() as patch:
        patch.setattr(decoding, "_statistics", full)
        with pytest.raises(DataError, match=r"disk full at .* set DATA to another folder"):
            data.load("imagenette-32", "train")
    [journal] = photo_folder.data.glob("photos-v1/*/parts.jsonl")
    assert all(json.loads(line) for line in journal.read_text().splitlines())
    assert np.ptp(data.load("imagenette-32", "train").images.numpy()) > 100
