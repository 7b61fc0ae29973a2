"""What counts as the same result: rounding does, anything that a reader could see does not."""

import json

import pytest

from paperlib.running.alike import same_result

CSV = "name,mean,z,p\na,0.0123456,0.01,1e-05\nb,1234.56,-2,\n"
VERDICT = {
    "id": "L1",
    "verdict": "holds",
    "reason": "mean = 0.9876 [0.9, 1.1]",
    "measured": {"mean": [0.987654, 0.9, 1.1], "slope": [1.0, "-inf", "inf"]},
    "rule": {"mean": "at least 0.8"},
    "sample": "10 networks",
    "note": "",
}
RECORD = {
    "key": "k",
    "versions": {"matplotlib": "3.8"},
    "parameters": {"seed": 1000, "rel_error": 0.01},
    "claims": [VERDICT],
}
SVG = """<svg><g id="axes_1"><path id="m12ab" d="M 0 0
L 100.125 3 z" style="stroke-width: 0.8"/></g>
<use xlink:href="#m12ab" x="35.22" y="207.1"/><text>0.5</text></svg>"""


def png(width=100, rest=b"pixels"):
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + b"\0\0\0d" + rest


def files(folder, table=CSV, record=RECORD, svg=SVG, picture=None):
    folder.mkdir()
    (folder / "a.csv").write_text(table)
    (folder / "a.json").write_text(json.dumps(record))
    (folder / "a.svg").write_text(svg)
    (folder / "a.png").write_bytes(picture or png())
    return sorted(folder.iterdir())


def same(tmp_path, **changes):
    old = files(tmp_path / "old")
    return same_result(list(zip(files(tmp_path / "new", **changes), old, strict=True)))


NOISY = (
    CSV.replace("0.0123456", "0.0123461").replace("1234.56", "1234.5").replace("0.01,", "0.014,")
)
MEASURED = VERDICT | {
    "measured": VERDICT["measured"] | {"mean": [0.9877, 0.9001, 1.1]},
    "reason": "mean = 0.9877 [0.9001, 1.1]",
}
MOVED = SVG.replace("100.125", "100.3").replace("35.22", "35.2").replace("m12ab", "m98ff")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"table": NOISY},
        {"table": NOISY, "svg": MOVED, "picture": png(rest=b"others")},
        {"record": RECORD | {"claims": [MEASURED]}},
        {"record": RECORD | {"key": "other", "versions": {}, "device": "cpu", "threads": 2}},
        {"picture": png(rest=b"one pixel")},
    ],
)
def test_rounding_is_the_same_result(tmp_path, changes):
    assert same(tmp_path, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"table": CSV.replace("0.0123456", "0.01237")},
        {"table": CSV.replace("0.01,", "0.016,")},
        {"table": CSV.replace("1e-05", "")},
        {"table": CSV.replace("a,", "c,")},
        {"table": CSV.replace("mean", "median")},
        {"table": CSV + "c,1,1,1\n"},
        {"record": RECORD | {"parameters": {"seed": 1000, "rel_error": 0.010001}}},
        {"record": RECORD | {"claims": [VERDICT | {"verdict": "inconclusive"}]}},
        {"record": RECORD | {"claims": [VERDICT | {"measured": {"mean": [0.99, 0.9, 1.1]}}]}},
        {"record": RECORD | {"claims": []}},
        {"record": RECORD | {"claims": "edited"}},
        {"table": NOISY, "svg": SVG.replace("100.125", "101")},
        {"table": NOISY, "svg": SVG.replace("0.8", "1.0")},
        {"table": NOISY, "svg": SVG.replace(">0.5<", ">0.6<")},
        {"svg": MOVED},
        {"picture": png(width=200)},
    ],
)
def test_what_a_reader_can_see_is_another_result(tmp_path, changes):
    assert not same(tmp_path, **changes)


def test_a_picture_alone_must_be_equal(tmp_path):
    pairs = []
    for name, picture in (("old", png()), ("new", png(rest=b"one pixel"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(picture)
        pairs.append(tmp_path / name / "a.png")
    assert not same_result([tuple(pairs)])
