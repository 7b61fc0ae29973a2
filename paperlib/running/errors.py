"""What the runner says when it cannot go on."""

from collections.abc import Iterable

from paperlib.choices import check_choice


class Refused(Exception):
    """A request that was refused before anything ran; the message says what is allowed."""


class NotebookFailed(Exception):
    """A notebook that started and did not finish; the message says where and why."""


def require_known(where: str, what: str, name: object, known: Iterable[str]) -> None:
    """Refuse `name` unless it is one of the `known`, with the nearest of them in the message.

    Args:
        where: what the message starts with, "" or e.g. a file's name.
        what: the kind of name, e.g. "parameter".

    Raises:
        Refused: the name is unknown.
    """
    try:
        check_choice(what, name, known)
    except ValueError as error:
        raise Refused(f"{where}: {error}" if where else str(error)) from None
