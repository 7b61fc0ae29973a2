"""A measured number with its interval against a margin fixed beforehand: holds, fails or open."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

Outcome = Literal["holds", "fails", "inconclusive", "not comparable"]
KINDS = ("at_most", "at_least", "within", "not_comparable")


@dataclass(frozen=True)
class Measured:
    """A value and the ends of its 95 % interval; without an interval all three are the value."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, given: "float | Sequence[float] | Measured") -> Self:
        """`given` is a number, `(value, low, high)` or Measured; else ValueError naming `name`."""
        if isinstance(given, Measured):
            parts: Sequence[float] = (given.value, given.low, given.high)
        elif isinstance(given, Sequence) and not isinstance(given, str):
            parts = given
        else:
            parts = (given, given, given)
        try:
            value, low, high = map(float, parts)
        except (TypeError, ValueError):
            raise ValueError(f"{name} is {given!r}: give a number or (value, low, high).") from None
        if any(map(math.isnan, (value, low, high))):
            raise ValueError(
                f"{name} is {value} in [{low}, {high}]: NaN cannot be judged; use not_run."
            )
        if not low <= value <= high:
            raise ValueError(
                f"{name} is {value} with interval [{low}, {high}]: low ≤ value ≤ high is needed."
            )
        return cls(value, low, high)

    @property
    def exact(self) -> bool:
        """Whether it came without an interval."""
        return self.low == self.high

    @property
    def unbounded(self) -> bool:
        """Whether its interval says nothing, as that of one seed."""
        return self.low == -math.inf and self.high == math.inf

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:.4g}"
        if self.unbounded:
            return f"{self.value:.4g} (one seed: no interval)"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Criterion:
    """One rule: `kind` is one of KINDS; the value is meant to lie in [low, high].

    `at_most` has low = −∞ and `at_least` has high = ∞. `what` says in words what is measured.
    """

    name: str
    kind: str
    low: float
    high: float
    what: str

    def judge(self, measured: Measured) -> Outcome:
        """Holds or fails only if the whole interval lies on one side; a number is exact."""
        if self.kind == "not_comparable":
            return "not comparable"
        if self.low <= measured.low and measured.high <= self.high:
            return "holds"
        if measured.high < self.low or self.high < measured.low:
            return "fails"
        return "inconclusive"

    def __str__(self) -> str:
        if self.kind == "not_comparable":
            return "shown, not judged"
        if self.kind == "within":
            return f"between {self.low:.4g} and {self.high:.4g}"
        margin = self.high if self.kind == "at_most" else self.low
        return f"{self.kind.replace('_', ' ')} {margin:.4g}"


def overall(outcomes: Sequence[Outcome]) -> Outcome:
    """One verdict from those of all criteria: one failure fails, one open one leaves it open."""
    for outcome in ("not comparable", "fails", "inconclusive"):
        if outcome in outcomes:
            return outcome
    return "holds"
