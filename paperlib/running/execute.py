"""One notebook through papermill: to a partial file first, with failures put into plain words."""

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError
from zmq.error import ZMQError

from paperlib.running.errors import NotebookFailed
from paperlib.running.kernels import NAME, private_kernel
from paperlib.running.notebooks import code_cells

START_TIMEOUT = 120  # seconds until a kernel must have answered
HEARTBEAT = 10.0  # seconds between two signs of life of a long notebook
TAIL = 12  # lines of a traceback that the console shows
INJECTED = "injected-parameters"


class _Watch:
    """Which code cell runs now, said every few seconds while it lasts."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self.total = total
        self.number = 0  # of the current code cell, from 1, as the committed notebook counts them
        self.source = ""
        self._say = say
        self._start = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def cell_starts(self, cell: NotebookNode, **_: Any) -> None:
        if cell.cell_type == "code" and INJECTED not in cell.metadata.get("tags", []):
            self.number += 1
            self.source = cell.source

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT):
            passed = time.monotonic() - self._start
            self._say(f"code cell {self.number} of {self.total}, {passed:.0f} s so far")


def execute(
    notebook: Mapping[str, Any],
    partial: Path,
    *,
    parameters: Mapping[str, Any],
    environment: Mapping[str, str],
    folder: Path,
    cell_timeout: int | None,
    say: Callable[[str], None],
) -> None:
    """Run `notebook` in `folder`, writing it to `partial` cell by cell.

    Args:
        parameters: injected after the parameters cell; nothing is injected where it is empty.
        environment: added to the kernel's environment variables.
        cell_timeout: seconds that one cell may take; None sets no limit.
        say: called with a line every few seconds.

    Raises:
        NotebookFailed: a cell raised or took too long, or the kernel died or did not start.
    """
    partial.write_text(json.dumps(notebook), encoding="utf-8")
    # Its own complaints would double what is said below.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    # An interrupted run leaves tasks behind that nobody asks for their exceptions.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with private_kernel(environment) as config, _Watch(len(code_cells(notebook)), say) as watch:
        try:
            done = papermill.execute_notebook(
                partial,
                partial,
                parameters=dict(parameters),
                kernel_name=NAME,
                language="python",
                cwd=folder,
                progress_bar=False,
                start_timeout=START_TIMEOUT,
                execution_timeout=cell_timeout,
                config=config,
                coalesce_streams=True,
                on_cell_start=watch.cell_starts,
                # A kernel in the middle of a cell would keep a polite goodbye waiting.
                shutdown_kernel="immediate",
            )
        except PapermillExecutionError as error:
            lines = _plain("\n".join(error.traceback) or f"{error.ename}: {error.evalue}")
            raise _failure(watch, "raised", lines[-TAIL:]) from None
        except CellTimeoutError:
            raise _failure(watch, f"took longer than {cell_timeout} s") from None
        except DeadKernelError:
            raise _failure(
                watch,
                "kernel died, probably out of memory: run fewer notebooks at once (-j1), "
                "or smaller parameters",
            ) from None
        except (RuntimeError, ZMQError) as error:
            if watch.number:
                raise
            raise NotebookFailed(f"the kernel did not start: {error}") from None
        if any(cell.cell_type == "code" and _was_not_run(cell) for cell in done.cells):
            raise _failure(watch, "left the notebook; the cells after it were not run")


def _was_not_run(cell: NotebookNode) -> bool:
    return cell.execution_count is None and bool(cell.source.strip())


def _failure(watch: _Watch, what: str, lines: list[str] | None = None) -> NotebookFailed:
    code = (line for line in _plain(watch.source) if not line.startswith("#"))
    head = f"code cell {watch.number} of {watch.total} ({next(code, '')}): {what}"
    return NotebookFailed("\n".join([head, *(f"    {line}" for line in lines or [])]))


def _plain(text: str) -> list[str]:
    """Lines without terminal colours and without empty ones."""
    return [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n") if line.strip()]
