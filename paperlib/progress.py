"""Progress of a long loop: a bar where someone watches, a line now and then in a log, or nothing.

PAPERLIB_PROGRESS chooses: "auto" (default: a bar in a terminal and in Jupyter, else lines),
"log" or "off". The runner and the tests switch it off inside kernels, so that nothing of it gets
into a notebook's outputs.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar, overload

from paperlib.choices import check_choice

if TYPE_CHECKING:
    from tqdm import tqdm

EVERY = 5.0  # seconds between two lines of a log

T = TypeVar("T")


@overload
def track(items: int, what: str, note: Callable[[], str] = ...) -> Iterator[int]: ...
@overload
def track(items: Iterable[T], what: str, note: Callable[[], str] = ...) -> Iterator[T]: ...
def track(
    items: int | Iterable[T], what: str, note: Callable[[], str] = str
) -> Iterator[int] | Iterator[T]:
    """Yield from `items` (or from range(items)) while showing how far the loop is.

    `what` names the work, e.g. "networks of width 20"; `note()` says after each item what else to
    show, e.g. the loss. ValueError if PAPERLIB_PROGRESS is not one of auto, log, off.
    """
    if isinstance(items, int):
        items = range(items)
    allowed = ("auto", "log", "off")
    mode = check_choice("PAPERLIB_PROGRESS", os.environ.get("PAPERLIB_PROGRESS", "auto"), allowed)
    if mode == "off":
        return iter(items)
    if mode == "auto" and (sys.stderr.isatty() or _in_jupyter()):
        from tqdm.auto import tqdm

        return _noted(tqdm(items, desc=what, leave=False), note)
    return _logged(items, what, note)


def _in_jupyter() -> bool:
    """Whether this process is a Jupyter kernel."""
    # Looked up and not imported: outside a kernel IPython need not be loaded.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _noted(bar: "tqdm[T]", note: Callable[[], str]) -> Iterator[T]:
    """Yield from `bar`, with the note at its end."""
    for item in bar:
        yield item
        bar.set_postfix_str(note(), refresh=False)


def _logged(items: Iterable[T], what: str, note: Callable[[], str]) -> Iterator[T]:
    """Yield from `items`, with a line on stderr every few seconds."""
    total = len(items) if isinstance(items, Sized) else None
    start = last = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            left = (
                f" of {total}, {(now - start) / done * (total - done):.0f} s left" if total else ""
            )
            more = ", ".join(filter(None, [f"{what}: {done}{left}", note()]))
            print(more, file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Print a line on stderr, unless progress is switched off."""
    if os.environ.get("PAPERLIB_PROGRESS", "auto") != "off":
        print(line, file=sys.stderr, flush=True)
