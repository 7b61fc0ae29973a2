"""Figure files: what is in them, the same bytes on a rerun, nothing lost on a failure."""

import errno
import json

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from paperlib.report import figures, style
from paperlib.report.claims import check

DATA = pd.DataFrame({"width": [5, 10], "mean": [1 / 3, 2e-9], "law": ["uniform", "laplace"]})
PARAMETERS = {"widths": (5, np.int64(10)), "rate": np.float32(0.1), "seed": 0, "tail": np.inf}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where figures go in these tests."""
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "figures"))
    return tmp_path / "figures"


def drawing():
    """A figure with what makes svg ids: clipped lines, markers, fills, text."""
    with matplotlib.rc_context(style.RC):
        fig = Figure(figsize=(style.COLUMN, 3))
        FigureCanvasAgg(fig)
        ax = fig.add_subplot()
        x = np.arange(1.0, 6.0)
        style.band(ax, x, 1 / x, 0.9 / x, 1.1 / x, label="band")
        style.intervals(ax, x, 1 / x, 0.8 / x, 1.3 / x, color=style.RED)
        ax.legend(title=r"$\sum 1/n$")
    return fig


def save(name="length_one", **options):
    figures.save(drawing(), options.pop("data", DATA), name=name, parameters=PARAMETERS, **options)


def test_a_figure_is_four_files(folder):
    save()
    assert sorted(path.name for path in folder.iterdir()) == [
        f"length_one.{ending}" for ending in ("csv", "json", "png", "svg")
    ]


def test_a_rerun_writes_the_same_bytes(folder):
    save()
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    save()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_neither_dates_nor_software_versions_are_in_the_images(folder):
    save()
    svg = (folder / "length_one.svg").read_text(encoding="utf-8")
    assert "dc:date" not in svg
    assert "Matplotlib v" not in svg
    assert b"Software" not in (folder / "length_one.png").read_bytes()


def test_an_image_does_not_depend_on_the_readers_own_settings(folder):
    save()
    first = (folder / "length_one.svg").read_bytes()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": None, "savefig.dpi": 50}):
        save()
    assert (folder / "length_one.svg").read_bytes() == first


def test_data_has_six_significant_digits_and_unix_line_ends(folder):
    save()
    assert (folder / "length_one.csv").read_bytes() == (
        b"width,mean,law\n5,0.333333,uniform\n10,2e-09,laplace\n"
    )


def test_the_record_says_how_the_figure_was_made(folder, monkeypatch):
    monkeypatch.setenv("PAPERLIB_PROFILE", "quick")
    monkeypatch.setenv("PAPERLIB_KEY", "abc")
    save(claims=[check("L5", 0.0312345678)])
    record = json.loads((folder / "length_one.json").read_text(encoding="utf-8"))
    assert record["parameters"] == {"widths": [5, 10], "rate": 0.1, "seed": 0, "tail": "inf"}
    assert (record["profile"], record["key"], record["device"]) == ("quick", "abc", "cpu")
    assert record["versions"]["numpy"] == np.__version__
    assert record["threads"] >= 1
    assert record["claims"][0]["measured"] == {"spread": [0.0312346] * 3}


def test_reading_gives_back_data_and_parameters(folder):
    save(data={"": DATA, "bounds": DATA[["width"]]})
    frame, record = figures.read("length_one")
    pd.testing.assert_frame_equal(frame, DATA, rtol=1e-5)
    assert record["parameters"]["seed"] == 0
    bounds, _ = figures.read("length_one", "bounds")
    pd.testing.assert_frame_equal(bounds, DATA[["width"]])
    assert (folder / "length_one_bounds.csv").exists()


def test_outside_the_runner_the_record_says_so(folder):
    save()
    _, record = figures.read("length_one")
    assert (record["profile"], record["key"]) == ("lab", "interactive")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Fig 1"}, "small letters"),
        ({"data": {"": DATA, "../x": DATA}}, "small letters"),
        ({"data": {"bounds": DATA}}, 'under the key ""'),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(folder, options, message):
    with pytest.raises(ValueError, match=message):
        save(**options)
    assert not folder.exists()


def test_a_full_disk_leaves_the_old_files_whole(folder, monkeypatch):
    save()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(OSError, match=r"cannot write figures to .*No space left.*free some space"):
        save()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_named(folder):
    folder.write_text("a file stands where the folder should be", encoding="utf-8")
    with pytest.raises(OSError, match=r"cannot write figures to .*PAPERLIB_FIGURES"):
        save()
