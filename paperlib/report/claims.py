"""The ledger of claims: what the papers say, the rule fixed beforehand, and the verdict.

`claims.toml` holds the claims of both papers. A notebook calls `check`; `figures.save` writes the
verdicts beside the figure; `python -m paperlib.report.claims` gathers them into CLAIMS.md.
"""

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import pandas as pd

from paperlib import atomic
from paperlib.choices import check_choice
from paperlib.paths import Project
from paperlib.report import tables
from paperlib.report.provenance import profile as current_profile
from paperlib.report.rules import KINDS, Criterion, Measured, overall

VERDICTS = ("holds", "fails", "inconclusive", "not comparable", "not run")
TAGS = ("SAW", "INFERRED", "DERIVED", "RECALLED", "DIGITISED")
TITLES = {
    "length": "Deep ReLU Networks Preserve Expected Length",
    "layers": "Are All Layers Created Equal?",
}
LEDGER = Path(__file__).with_name("claims.toml")

Given = float | Sequence[float] | Measured


@dataclass(frozen=True)
class Claim:
    """One row of the ledger; the field names are those of claims.toml."""

    id: str
    paper: str
    section: str
    title: str
    statement: str
    paper_value: str
    tag: str
    criteria: tuple[Mapping[str, Any], ...]
    notebook: str = ""
    note: str = ""

    def rule(self, profile: str) -> dict[str, Criterion]:
        """The criteria by name, with the margins of `profile`."""
        return {row["name"]: _criterion(row, profile) for row in self.criteria}


@dataclass(frozen=True)
class Verdict:
    """How a claim came out.

    Args:
        id: the claim's id.
        verdict: one of VERDICTS.
        reason: one sentence with the numbers.
        measured: what was measured, by the criterion's name.
        rule: the margins that it was judged by, by the criterion's name.
        sample: what was drawn, e.g. "2,000 networks a cell".
        note: a remark on this result.
    """

    id: str
    verdict: str
    reason: str
    measured: Mapping[str, Measured]
    rule: Mapping[str, str]
    sample: str = ""
    note: str = ""

    def row(self) -> dict[str, Any]:
        """The verdict as plain data for a figure's json."""
        measured = {name: [m.value, m.low, m.high] for name, m in self.measured.items()}
        return {**vars(self), "measured": measured, "rule": dict(self.rule)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `row`."""
        measured = {name: Measured.of(name, given) for name, given in row["measured"].items()}
        return cls(**{**row, "measured": measured})

    @property
    def ours(self) -> str:
        """The measured values in one line."""
        order = [row["name"] for row in claim(self.id).criteria]
        names = sorted(self.measured, key=order.index)
        return "; ".join(f"{name} {self.measured[name]}" for name in names)


@cache
def ledger() -> dict[str, Claim]:
    """All claims by id, in the order of the papers."""
    rows = tomllib.loads(LEDGER.read_text(encoding="utf-8"))["claim"]
    return {row["id"]: Claim(**{**row, "criteria": tuple(row["criteria"])}) for row in rows}


def claim(id: str) -> Claim:
    """The claim with this id; ValueError with the nearest id if there is none."""
    return ledger()[check_choice("claim", id, ledger())]


def check(
    id: str,
    measured: Given | Mapping[str, Given],
    interval: tuple[float, float] | None = None,
    *,
    note: str = "",
    sample: str = "",
) -> Verdict:
    """Judge claim `id` by the rule of the ledger.

    Args:
        id: e.g. "L1".
        measured: for every criterion of the claim a number (exact), `(value, low, high)` with a
            95 % interval, or Measured; a claim with one criterion also takes the value alone.
        interval: `(low, high)` for a value that is given alone.
        note, sample: kept with the verdict.

    Raises:
        ValueError: unknown claim or criterion, a criterion without a value, NaN, or an interval
            that does not hold its value.
    """
    judged = claim(id)
    rule = _present_rule(judged)
    values = _by_name(id, rule, measured, interval)
    outcomes = [criterion.judge(values[name]) for name, criterion in rule.items()]
    verdict = overall(outcomes)
    parts = [
        f"{criterion.what} = {values[name]} ({criterion})"
        for (name, criterion), outcome in zip(rule.items(), outcomes, strict=True)
        if outcome == verdict
    ]
    opening = {
        "holds": "All margins are kept: ",
        "fails": "A margin is missed: ",
        "inconclusive": "An interval straddles its margin: ",
        "not comparable": "The paper's setting is unknown: ",
    }[verdict]
    margins = {name: str(criterion) for name, criterion in rule.items()}
    return Verdict(id, verdict, opening + "; ".join(parts) + ".", values, margins, sample, note)


def not_run(id: str, reason: str) -> Verdict:
    """The verdict of a claim that this run cannot judge; `reason` says what is missing."""
    return Verdict(claim(id).id, "not run", reason, {}, {})


def table(results: Iterable[Verdict]) -> tables.Table:
    """The verdicts as a table for a notebook, with stable HTML."""
    rows = [(claim(result.id), result) for result in results]
    return tables.Table(
        pd.DataFrame(
            {
                "claim": [result.id for _, result in rows],
                "statement": [row.statement for row, _ in rows],
                "paper": [f"{row.paper_value} [{row.tag}]" for row, _ in rows],
                "ours": [result.ours for _, result in rows],
                "verdict": [result.verdict for _, result in rows],
            }
        ),
        marks="verdict",
    )


def rules(results: Iterable[Verdict]) -> None:
    """Print the rule that each verdict is judged by, a line a criterion; no measured number."""
    results = list(results)
    width = max((len(result.id) for result in results), default=0)
    for result in results:
        for criterion in _present_rule(claim(result.id)).values():
            print(f"{result.id:<{width}}  {criterion.what}: {criterion}")


def verdicts(results: Iterable[Verdict]) -> None:
    """Print id, verdict and title, one claim a line and without a measured number."""
    results = list(results)
    width = max((len(result.id) for result in results), default=0)
    for result in results:
        print(f"{result.id:<{width}}  {result.verdict:<14}  {claim(result.id).title}")


def counts(results: Iterable[Verdict]) -> str:
    """How often each verdict came out, e.g. "3 holds, 1 fails"."""
    number = Counter(result.verdict for result in results)
    return ", ".join(f"{number[verdict]} {verdict}" for verdict in VERDICTS if number[verdict])


def gather(folder: Path, profile: str) -> dict[str, Verdict]:
    """The verdicts kept in the figures' json files of `folder`, by id.

    Raises:
        ValueError: a damaged file, or a claim judged twice, unknown, or judged by margins that
            the ledger no longer has.
    """
    found: dict[str, Verdict] = {}
    for path in sorted(folder.glob("*.json")):
        for result in _kept(path, profile):
            if result.id in found:
                raise ValueError(f"claim {result.id} is judged twice, the second time in {path}.")
            margins = {n: str(c) for n, c in claim(result.id).rule(profile).items()}
            same = result.rule == margins and result.measured.keys() == margins.keys()
            if result.verdict != "not run" and not same:
                raise ValueError(
                    f"{path} judges claim {result.id} by a rule that has changed: "
                    f"run `make figure FIG={path.stem} PROFILE={profile}`."
                )
            found[result.id] = result
    return found


def _kept(path: Path, profile: str) -> list[Verdict]:
    """The verdicts in one figure's json; ValueError with what to do where it is damaged."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8")).get("claims", [])
        results = [Verdict.from_row(row) for row in rows]
        for result in results:
            check_choice("verdict", result.verdict, VERDICTS)
            texts = (result.id, result.reason, result.sample, result.note)
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("a text is no text")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}): "
            f"run `make figure FIG={path.stem} PROFILE={profile}`."
        ) from None
    return results


def report(found: Mapping[str, Verdict], profile: str) -> str:
    """CLAIMS.md: the counts, the claims of each paper, and those that nothing has judged yet."""
    judged = [row for row in ledger().values() if row.paper == "length" or row.id in found]
    waiting = [row for row in ledger().values() if row.paper == "layers" and row.id not in found]
    nothing = "No notebook of this profile has judged it yet."
    results = {row.id: found.get(row.id) or not_run(row.id, nothing) for row in judged}
    more = f" {len(waiting)} more have not been run: see the end." if waiting else ""
    text = [
        f"# Claims, profile {profile}",
        f"{len(judged)} claims: {counts(results.values())}.{more}",
        "Each rule was fixed before the runs (`paperlib/report/claims.toml`), but for L9, L13, "
        "L15, L16b, L18 and C26, changed afterwards: see their notes. Brackets behind a "
        "measured value hold its 95 % interval; a value without brackets is exact, or a p-value, "
        "a count or an extreme of the sample. Tags: SAW, in the paper as we read it; INFERRED "
        "from it; DERIVED by us; RECALLED, not seen; DIGITISED from a published figure.",
    ]
    for paper, title in TITLES.items():
        rows = [
            {
                "id": row.id,
                "notebook": _link(row.notebook),
                "section": row.section,
                "statement": row.statement,
                "paper": f"{row.paper_value} [{row.tag}]",
                "ours": results[row.id].ours,
                "verdict": results[row.id].verdict,
                "reason": _remarks(row, results[row.id]),
            }
            for row in judged
            if row.paper == paper
        ]
        if rows:
            text += [f"## {title}", tables.markdown(pd.DataFrame(rows))]
    if waiting:
        rows = [{"id": r.id, "section": r.section, "claim": r.title} for r in waiting]
        text += [f"## Not run: {TITLES['layers']}", tables.markdown(pd.DataFrame(rows))]
    return "\n\n".join(text) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Gather the verdicts of a profile, print them and write figures/<profile>/CLAIMS.md.

    Returns:
        0, or 1 where they cannot be gathered, 2 where the profile is unknown.
    """
    parser = argparse.ArgumentParser(prog="python -m paperlib.report.claims", description=__doc__)
    parser.add_argument("--profile", default="quick", help="folder under figures/ (quick)")
    profile = parser.parse_args(arguments).profile
    project = Project.here()
    try:
        check_choice("profile", profile, project.profile_names)
    except ValueError as error:
        print(f"claims: {error}", file=sys.stderr)
        return 2
    folder = project.figures(profile)
    if not folder.is_dir():
        print(f"No claim is judged yet: run `make figures PROFILE={profile}`.")
        return 0
    try:
        found = gather(folder, profile)
        atomic.write_whole(folder / "CLAIMS.md", report(found, profile).encode())
    except (OSError, ValueError) as error:
        print(f"claims: {error}", file=sys.stderr)
        return 1
    results = [found[id] for id in ledger() if id in found]
    verdicts(results)
    print(f"{len(results)} of {len(ledger())} claims judged: {counts(results) or 'none'}.")
    written = (folder / "CLAIMS.md").relative_to(project.root)
    print(f"Values, intervals and reasons: {written}")
    return 0


def _remarks(row: Claim, result: Verdict) -> str:
    """Why the verdict is what it is, from what sample, and how the claim was read."""
    sample = f"Sample: {result.sample}." if result.sample else ""
    return " ".join(filter(None, (result.reason, sample, result.note, row.note)))


def _link(notebook: str) -> str:
    """Markdown that leads from figures/<profile>/ to a notebook; empty where there is none."""
    return f"[{notebook}](../../notebooks/{notebook}.ipynb)" if notebook else ""


def _present_rule(judged: Claim) -> dict[str, Criterion]:
    """The rule with the margins of the profile that runs."""
    return judged.rule(current_profile().removesuffix("-tweaked"))


def _criterion(row: Mapping[str, Any], profile: str) -> Criterion:
    """A criterion of claims.toml with the margins of one profile."""

    def bound(name: str, missing: float) -> float:
        given = row.get(name, missing)
        return float(given.get(profile, given["quick"]) if isinstance(given, dict) else given)

    kind = check_choice("kind of criterion", row["kind"], KINDS)
    low = bound("margin" if kind == "at_least" else "low", -float("inf"))
    high = bound("margin" if kind == "at_most" else "high", float("inf"))
    return Criterion(row["name"], kind, low, high, row["what"])


def _by_name(
    id: str,
    rule: Mapping[str, Criterion],
    measured: Given | Mapping[str, Given],
    interval: tuple[float, float] | None,
) -> dict[str, Measured]:
    """What was measured by criterion, in the rule's order, checked for completeness."""
    names = ", ".join(rule)
    if not isinstance(measured, Mapping):
        if len(rule) != 1:
            raise ValueError(f"claim {id} has several criteria: give a mapping with {names}.")
        value = measured if interval is None else (measured, *interval)
        measured = dict.fromkeys(rule, value)
    elif interval is not None:
        raise ValueError("interval goes with a number alone: in a mapping give (value, low, high).")
    for name in measured:
        check_choice(f"criterion of claim {id}", name, rule)
    missing = [name for name in rule if name not in measured]
    if missing:
        raise ValueError(f"claim {id} needs {names}: {', '.join(missing)} not given.")
    return {name: Measured.of(f"{id} {name}", measured[name]) for name in rule}


if __name__ == "__main__":
    # A terminal without the mathematical signs shows a question mark for them.
    sys.stdout.reconfigure(errors="replace")
    sys.exit(main())
