"""The ledger is complete and its rules are the ones fixed beforehand; verdicts come out of them."""

import json

import pandas as pd
import pytest

from paperlib.report import claims
from paperlib.report.claims import Verdict, check, gather, ledger, main, not_run, report
from paperlib.report.rules import KINDS

LENGTH = [f"L{i}" for i in range(1, 21)]
LAYERS = [f"C{i}" for i in range(1, 27) if i != 6]
JUDGES = {
    "length_fig1_depth": {"L1", "L2", "L3", "L17"},
    "length_fig2_ratio": {"L4"},
    "length_fig3_mean_variance": {"L5", "L9", "L10"},
    "length_thm51_moments": {"L12", "L15"},
    "length_thm52_volume": {"L14", "L19"},
    "length_sec4_why": {"L11", "L11b", "L18", "L20"},
    "length_sec3_initialisations": {
        *("L3b", "L7a", "L7b", "L8"),
        *("L13-uniform", "L13-rademacher", "L13-laplace", "L13-sparse"),
    },
    "length_sec5_curves": {"L6a", "L6b", "L16a", "L16b"},
    "layers_fig01_fcn_mnist": {"C1", "C2", "C3", "C5", "C20-fcn"},
    "layers_fig02_fcn_widths": {"C4"},
    "layers_fig03_vgg_cifar": {"C7", "C20-vgg"},
    "layers_fig04_resnet_cifar": {"C8", "C9", "C20-resnet", "C22"},
    "layers_fig05_resnet_imagenet": {"C8-imagenet", "C9-imagenet"},
    "layers_fig06_joint_resnet": {"C11-resnet"},
    "layers_fig11_fcn_joint": {"C10-fcn", "C11-fcn"},
    "layers_fig12_joint_resnets": {"C10-resnet"},
    "layers_fig13_joint_alternatives": {"C24"},
    "layers_fig14_vgg_regularised": {"C15-vgg"},
    "layers_fig15_resnet_cifar_regularised": {"C15", "C16"},
    "layers_fig16_resnet_imagenet_regularised": {"C15-imagenet", "C16-imagenet"},
    "layers_fig17_distances_vgg": {"C17"},
    "layers_fig18_distances_resnet_cifar": {"C16b", "C17b"},
    "layers_fig19_distances_resnet_imagenet": {"C16b-imagenet", "C17b-imagenet"},
    "layers_table3_errors": {"C23a", "C23b"},
    "layers_initialisers": {"C25", "C26"},
    "layers_table1_freeze_remove": {"C12", "C13a", "C13b", "C14"},
}


def margins(id, profile="quick"):
    """Each criterion of a claim as a sentence."""
    return {name: str(rule) for name, rule in ledger()[id].rule(profile).items()}


@pytest.mark.parametrize("id", LENGTH + LAYERS)
def test_every_claim_or_a_part_of_it_is_in_the_ledger(id):
    parts = {id, *(id + part for part in "ab")}
    assert any(row in parts or row.startswith(f"{id}-") for row in ledger())


def test_ids_are_unique():
    assert claims.LEDGER.read_text(encoding="utf-8").count("\nid = ") == len(ledger())


@pytest.mark.parametrize("row", ledger().values(), ids=lambda row: row.id)
def test_a_row_is_well_formed(row):
    assert row.paper in claims.TITLES
    assert row.tag in claims.TAGS
    assert row.section and row.title and row.paper_value
    assert row.statement.endswith(".")
    assert row.rule("quick").keys() == {criterion["name"] for criterion in row.criteria}
    assert len(row.rule("quick")) == len(row.criteria) > 0
    for criterion in row.rule("paper").values():
        assert criterion.kind in KINDS
        assert criterion.low < criterion.high
        assert criterion.what
    known = {"name", "kind", "margin", "low", "high", "what"}
    assert all(criterion.keys() <= known for criterion in row.criteria)


def test_each_claim_names_the_notebook_that_judges_it():
    found = {}
    for row in ledger().values():
        if row.notebook or row.paper == "length":
            found.setdefault(row.notebook, set()).add(row.id)
    assert found == JUDGES


def test_margins_are_those_fixed_before_the_runs():
    assert margins("L1") == {
        "depth_step": "at most 0",
        "outside": "at most 6",
        "z_tail": "at least 0.001",
    }
    assert margins("L4")["slope"] == "between 0.48 and 0.52"
    assert margins("L5") == {"spread": "at most 0.05"}
    assert margins("L6b") == {"deficit": "at most 0.1"}
    assert margins("L7a") == {"deviation": "at most 1e-06"}
    assert margins("L9")["energy_z_tail"] == "at least 0.001"
    assert margins("L10") == {"variance_growth": "shown, not judged"}
    assert margins("L12")["qq"] == "at least 0.99"
    assert set(margins("L13-sparse").values()) == {"between -0.1 and 0.1"}
    assert margins("L14")["rate_error"] == "at most 0.02"
    assert margins("L16b") == {"variance_ratio": "at most 1.5"}


def test_a_margin_may_depend_on_the_profile(monkeypatch):
    assert margins("C8")["robust_median"] == "at most 5"
    assert margins("C8", "paper")["robust_median"] == "at most 2"
    assert margins("C9", "paper") == {"difference": "between -1 and 1"}
    measured = {"gap": 20, "robust_median": 3}
    assert check("C8", measured).verdict == "holds"
    monkeypatch.setenv("PAPERLIB_PROFILE", "paper")
    assert check("C8", measured).verdict == "fails"


def test_every_verdict_can_come_out():
    good = {"depth_step": -0.01, "outside": 6, "z_tail": 0.5}
    assert check("L1", good).verdict == "holds"
    assert check("L1", good | {"outside": 7}).verdict == "fails"
    assert check("L3", 0.99, (0.97, 1.01)).verdict == "inconclusive"
    assert check("L10", 3.0).verdict == "not comparable"
    assert not_run("C13b", "ImageNet is not here.").verdict == "not run"


def test_the_reason_names_what_decided_with_its_numbers():
    result = check("L1", {"depth_step": -0.01, "outside": 7, "z_tail": 0.5})
    assert result.reason == (
        "A margin is missed: cells of 40 whose sampled mean has |z| > 1.96 = 7 (at most 6)."
    )
    assert "0.99 [0.97, 1.01] (at most 1)" in check("L3", 0.99, (0.97, 1.01)).reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("L99", 1.0), "unknown claim 'L99'"),
        (("L1", 1.0), "depth_step, outside, z_tail"),
        (("L1", {"depth_step": 0.0, "outside": 1}), "z_tail not given"),
        (("L5", {"spraed": 0.01}), "did you mean 'spread'"),
        (("L5", float("nan")), "L5 spread is nan"),
        (("L5", 0.01, (0.02, 0.03)), "low ≤ value ≤ high"),
        (("L5", {"spread": 0.01}, (0.0, 0.02)), r"\(value, low, high\)"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        check(*arguments)


def test_printed_lines_hold_no_measured_number(capsys):
    claims.verdicts([check("L5", 0.0312), not_run("C13b", "ImageNet is not here.")])
    assert capsys.readouterr().out == (
        "L5    holds           mean depends on Σ1/n alone\n"
        "C13b  not run         ImageNet: removing the group costs much\n"
    )


def test_printed_rules_are_a_line_a_criterion_with_the_margins_of_the_profile(capsys, monkeypatch):
    results = [check("L5", 0.0312), not_run("C8", "No GPU.")]
    claims.rules(results)
    printed = capsys.readouterr().out
    assert printed == (
        "L5  spread of the exact means over architectures with Σ1/n = 0.5, relative to their "
        "mean: at most 0.05\n"
        "C8  median damage of critical minus that of robust blocks, points: at least 10\n"
        "C8  median damage of the robust blocks, points: at most 5\n"
    )
    claims.rules([check("L5", 0.9), results[1]])
    assert capsys.readouterr().out == printed
    monkeypatch.setenv("PAPERLIB_PROFILE", "paper-tweaked")
    claims.rules(results)
    assert capsys.readouterr().out == printed.replace("at most 5\n", "at most 2\n")


def test_the_table_is_the_same_on_every_rerun_and_readable_without_colour():
    first, second = (claims.table([check("L5", 0.03), check("L6b", 0.5)]) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second)
    assert "0x" not in repr(first)
    for text in (first._repr_html_(), repr(first)):
        assert "✔ holds" in text and "✘ fails" in text
    other = claims.table([check("L5", 0.04)])
    assert other._repr_html_().split('id="')[1][:10] != first._repr_html_().split('id="')[1][:10]


def test_a_verdict_survives_its_json():
    result = check("L3", 0.99, (0.97, 1.01), note="as it is", sample="100 networks")
    assert Verdict.from_row(json.loads(json.dumps(result.row()))) == result


def write(folder, name, *results):
    """A figure's json that holds nothing but its claims."""
    rows = {"claims": [result.row() for result in results]}
    (folder / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")


def test_a_claim_judged_twice_is_refused(tmp_path):
    write(tmp_path, "one", check("L5", 0.03))
    write(tmp_path, "two", check("L5", 0.03))
    with pytest.raises(ValueError, match=r"L5 is judged twice.*two\.json"):
        gather(tmp_path, "quick")


def test_a_verdict_by_an_older_rule_is_refused(tmp_path):
    old = check("L5", 0.03).row() | {"rule": {"spread": "at most 0.1"}}
    (tmp_path / "one.json").write_text(json.dumps({"claims": [old]}), encoding="utf-8")
    with pytest.raises(ValueError, match="rule that has changed: run `make figure FIG=one"):
        gather(tmp_path, "quick")


SMALL = """
[[claim]]
id = "L1"
paper = "length"
section = "§3"
title = "first"
statement = "First claim."
paper_value = "|x| ≤ 1"
tag = "SAW"
notebook = "one"
note = "Read literally."
criteria = [{ name = "x", kind = "at_most", margin = 1, what = "the x" }]

[[claim]]
id = "L2"
paper = "length"
section = "§4"
title = "second"
statement = "Second claim."
paper_value = "2"
tag = "DERIVED"
notebook = "one"
criteria = [{ name = "y", kind = "at_least", margin = 2, what = "the y" }]

[[claim]]
id = "C1"
paper = "layers"
section = "§5"
title = "third"
statement = "Third claim."
paper_value = "3"
tag = "RECALLED"
notebook = "two"
criteria = [{ name = "z", kind = "within", low = 2, high = 4, what = "the z" }]
"""

GOLDEN = """\
## Deep ReLU Networks Preserve Expected Length

| id | notebook | section | statement | paper | ours | verdict | reason |
| --- | --- | --- | --- | --- | --- | --- | --- |
| L1 | [one](../../notebooks/one.ipynb) | §3 | First claim. | \\|x\\| ≤ 1 [SAW] | \
x 0.5 [0.4, 0.6] | holds | All margins are kept: \
the x = 0.5 [0.4, 0.6] (at most 1). Sample: 9 networks. Read literally. |
| L2 | [one](../../notebooks/one.ipynb) | §4 | Second claim. | 2 [DERIVED] |  | not run | \
No notebook of this profile has judged it yet. |

## Not run: Are All Layers Created Equal?

| id | section | claim |
| --- | --- | --- |
| C1 | §5 | third |
"""


@pytest.fixture
def small_ledger(tmp_path, monkeypatch):
    """A ledger of three claims in place of the real one."""
    path = tmp_path / "claims.toml"
    path.write_text(SMALL, encoding="utf-8")
    monkeypatch.setattr(claims, "LEDGER", path)
    ledger.cache_clear()
    yield
    monkeypatch.undo()
    ledger.cache_clear()


@pytest.mark.usefixtures("small_ledger")
def test_the_report_lists_judged_and_waiting_claims():
    result = check("L1", 0.5, (0.4, 0.6), sample="9 networks")
    head, _, body = report({"L1": result}, "quick").partition("## ")
    assert head.startswith(
        "# Claims, profile quick\n\n"
        "2 claims: 1 holds, 1 not run. 1 more have not been run: see the end.\n\n"
    )
    assert "## " + body == GOLDEN


@pytest.mark.usefixtures("small_ledger")
def test_a_judged_claim_on_layers_stands_under_its_paper_with_its_notebook():
    results = {"L1": check("L1", 0.5), "L2": check("L2", 3), "C1": check("C1", 5)}
    text = report(results, "paper")
    assert text.startswith("# Claims, profile paper\n\n3 claims: 2 holds, 1 fails.\n\n")
    assert text.endswith(
        "\n## Are All Layers Created Equal?\n\n"
        "| id | notebook | section | statement | paper | ours | verdict | reason |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| C1 | [two](../../notebooks/two.ipynb) | §5 | Third claim. | 3 [RECALLED] | z 5 | "
        "fails | A margin is missed: the z = 5 (between 2 and 4). |\n"
    )


@pytest.mark.usefixtures("small_ledger")
def test_the_command_writes_the_report_and_prints_the_verdicts(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    folder = tmp_path / "figures" / "quick"
    assert main(["--profile", "quick"]) == 0
    assert "make figures PROFILE=quick" in capsys.readouterr().out
    folder.mkdir(parents=True)
    write(folder, "one", check("L1", 0.5))
    for _ in range(2):
        assert main(["--profile", "quick"]) == 0
    assert "L1  holds" in capsys.readouterr().out
    assert "2 claims: 1 holds, 1 not run." in (folder / "CLAIMS.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["CLAIMS.md", "one.json"]


@pytest.mark.usefixtures("small_ledger")
def test_the_command_explains_a_bad_figure_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    folder = tmp_path / "figures" / "quick"
    folder.mkdir(parents=True)
    write(folder, "one", check("L1", 0.5), check("L1", 0.6))
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("claims: claim L1 is judged twice")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"claims": 5}',
        '{"claims": [{}]}',
        '{"claims": [{"id": "L1", "verdict": "true", "reason": "", "measured": {}, "rule": {}}]}',
        '{"claims": [{"id": "L1", "verdict": "holds", "reason": 5, "measured": {}, "rule": {}}]}',
        b"\xff",
    ],
)
def test_a_damaged_figure_file_is_named_with_the_command_that_makes_it(tmp_path, content):
    path = tmp_path / "one.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = r"one\.json is damaged .*`make figure FIG=one PROFILE=paper`"
    with pytest.raises(ValueError, match=message):
        gather(tmp_path, "paper")


def test_the_command_refuses_an_unknown_profile(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    assert main(["--profile", "quik"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("claims: unknown profile 'quik'; did you mean 'quick'")


def test_markdown_escapes_bars_and_line_breaks():
    frame = pd.DataFrame({"a": ["x|y\nz"], "b": [1]})
    assert claims.tables.markdown(frame) == "| a | b |\n| --- | --- |\n| x\\|y z | 1 |"
