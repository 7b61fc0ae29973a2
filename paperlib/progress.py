"""Progress of a long loop: a bar where someone watches, a line now and then in a log, or nothing.

PAPERLIB_PROGRESS chooses: "auto" (default: a bar in a terminal and in Jupyter, else lines),
"log" or "off". The runner and the tests switch it off inside kernels, so that nothing of it gets
into a notebook's outputs.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar, overload

from paperlib.choices import check_choice

EVERY = 5.0  # seconds between two lines of a log

T = TypeVar("T")


@overload
def track(items: int, what: str) -> Iterator[int]: ...
@overload
def track(items: Iterable[T], what: str) -> Iterator[T]: ...
def track(items: int | Iterable[T], what: str) -> Iterator[int] | Iterator[T]:
    """Yield from `items` (or from range(items)) while showing how far the loop is.

    `what` names the work, e.g. "networks of width 20". ValueError if PAPERLIB_PROGRESS is not one
    of auto, log, off.
    """
    if isinstance(items, int):
        items = range(items)
    allowed = ("auto", "log", "off")
    mode = check_choice("PAPERLIB_PROGRESS", os.environ.get("PAPERLIB_PROGRESS", "auto"), allowed)
    if mode == "off":
        return iter(items)
    if mode == "auto" and (sys.stderr.isatty() or _in_jupyter()):
        from tqdm.auto import tqdm

        return iter(tqdm(items, desc=what, leave=False))
    return _logged(items, what)


def _in_jupyter() -> bool:
    """Whether this process is a Jupyter kernel."""
    # Looked up and not imported: outside a kernel IPython need not be loaded.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _logged(items: Iterable[T], what: str) -> Iterator[T]:
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
            print(f"{what}: {done}{left}", file=sys.stderr, flush=True)
