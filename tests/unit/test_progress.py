"""Progress: items pass unchanged, lines only in a log, silence where it is switched off."""

import sys
from types import SimpleNamespace

import pytest

from paperlib import progress
from paperlib.progress import track


@pytest.mark.parametrize("mode", ["auto", "log", "off"])
def test_items_pass_unchanged(mode, monkeypatch):
    monkeypatch.setenv("PAPERLIB_PROGRESS", mode)
    assert list(track(3, "counting")) == [0, 1, 2]
    assert list(track("abc", "spelling")) == ["a", "b", "c"]


def test_off_is_silent(monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "off")
    monkeypatch.setattr(progress, "EVERY", 0.0)
    list(track(3, "counting"))
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_lines_with_what_is_left(monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "log")
    monkeypatch.setattr(progress, "EVERY", 0.0)
    list(track(2, "networks"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "networks: 1 of 2, 0 s left\nnetworks: 2 of 2, 0 s left\n"
    list(track(iter("a"), "stream"))
    assert capsys.readouterr().err == "stream: 1\n"


def test_a_note_is_asked_for_after_each_item(monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "log")
    monkeypatch.setattr(progress, "EVERY", 0.0)
    done = []
    for item in track(2, "epochs", lambda: f"loss {len(done)}"):
        done.append(item)
    err = capsys.readouterr().err
    assert err == "epochs: 1 of 2, 0 s left, loss 1\nepochs: 2 of 2, 0 s left, loss 2\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("PAPERLIB_PROGRESS", "auto")
    assert list(track(2, "epochs", lambda: "loss 7")) == [0, 1]


def test_a_line_is_said_unless_progress_is_off(monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "log")
    progress.say("waiting")
    monkeypatch.setenv("PAPERLIB_PROGRESS", "off")
    progress.say("never")
    assert capsys.readouterr().err == "waiting\n"


def test_a_short_loop_logs_nothing(monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "log")
    list(track(3, "counting"))
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "auto")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(track(3, "counting")) == [0, 1, 2]
    assert "counting: " in capsys.readouterr().err


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "of")
    with pytest.raises(ValueError, match="did you mean 'off'"):
        track(3, "counting")


def test_a_kernel_gets_a_bar_and_a_script_does_not(monkeypatch):
    assert not progress._in_jupyter()
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert progress._in_jupyter()
