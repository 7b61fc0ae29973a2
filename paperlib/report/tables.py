"""Tables that look the same on every run: HTML for notebooks, Markdown for files."""

import hashlib
from dataclasses import dataclass

import pandas as pd

from paperlib.report.rules import Measured

# A sign beside each colour, so that a verdict can be read without seeing colours.
SIGNS = {
    "holds": "✔",
    "fails": "✘",
    "inconclusive": "?",
    "not comparable": "≠",
    "not run": "–",
}
COLOURS = {
    "holds": "#1b7837",
    "fails": "#b2182b",
    "inconclusive": "#8c6d00",
    "not comparable": "#5e5e5e",
    "not run": "#5e5e5e",
}


@dataclass(frozen=True)
class Table:
    """A frame that displays as styled HTML without random ids, and as plain text elsewhere.

    Args:
        frame: what to show; its index is hidden.
        marks: column of verdicts, shown with a sign and a colour; None where there is none.
    """

    frame: pd.DataFrame
    marks: str | None = None

    def __repr__(self) -> str:
        return self._signed().to_string(index=False)

    def _repr_html_(self) -> str:
        signed = self._signed()
        # The id comes from the content: the same on a rerun, another for another table.
        digest = hashlib.sha256(signed.to_csv(index=False).encode()).hexdigest()[:8]
        styler = signed.style.hide(axis="index").set_uuid(digest)
        styler = styler.set_properties(**{"text-align": "left", "vertical-align": "top"})
        if self.marks is not None:
            styler = styler.apply(self._colours, subset=[self.marks])
        return styler.to_html()

    def _signed(self) -> pd.DataFrame:
        if self.marks is None:
            return self.frame
        return self.frame.assign(
            **{self.marks: [f"{SIGNS[verdict]} {verdict}" for verdict in self.frame[self.marks]]}
        )

    def _colours(self, _: pd.Series) -> list[str]:
        return [f"color: {COLOURS[v]}; font-weight: bold" for v in self.frame[self.marks]]


def interval(measured: Measured, digits: int = 1) -> str:
    """`1.2 [0.9, 1.5]`, or `1.2 (one seed)` where there is no interval."""
    value, low, high = (
        f"{number:z.{digits}f}" for number in (measured.value, measured.low, measured.high)
    )
    return f"{value} (one seed)" if measured.unbounded else f"{value} [{low}, {high}]"


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table of the frame's columns; bars inside a cell are escaped."""
    rows = [list(frame.columns), ["---"] * frame.shape[1], *frame.to_numpy().tolist()]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
