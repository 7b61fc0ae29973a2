"""Sides of a benchmark that take turns, so that whatever else the machine does hits them alike."""

from collections.abc import Callable, Sequence


def take_turns(sides: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """The quickest of so many rounds, for each side, which returns the seconds that it took."""
    taken = [[side() for side in sides] for _ in range(rounds)]
    return [min(seconds) for seconds in zip(*taken, strict=True)]
