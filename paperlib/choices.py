"""A name out of a known set, or an error that says which names there are."""

from collections.abc import Iterable
from difflib import get_close_matches


def check_choice(what: str, name: object, allowed: Iterable[str]) -> str:
    """Return `name` if it is one of `allowed`; else ValueError with the nearest name.

    `what` says in the message what kind of name it is, e.g. "weight law".
    """
    names = list(allowed)
    if isinstance(name, str) and name in names:
        return name
    near = get_close_matches(name, names, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"unknown {what} {name!r}{hint} Allowed: {', '.join(map(repr, names))}.")
