"""What the runner says when it cannot go on."""

import difflib
from collections.abc import Iterable


class Refused(Exception):
    """A request that was refused before anything ran; the message says what is allowed."""


class NotebookFailed(Exception):
    """A notebook that started and did not finish; the message says where and why."""


def choices(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: the nearest known name, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}known: {', '.join(names) or 'none'}"
