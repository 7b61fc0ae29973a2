"""Run one notebook, or reuse what its last run left."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paperlib.paths import QUICK, Project
from paperlib.running.errors import NotebookFailed, Refused
from paperlib.running.kernels import kernel_environment
from paperlib.running.key import Key, checksum, key_of
from paperlib.running.notebooks import CodeCell, code_cells, load
from paperlib.running.parameters import defaults, override
from paperlib.running.profiles import notebook_path, profile_overrides
from paperlib.running.results import Record, publish, reason_to_run

DEVICE = "device"  # the parameter that the option of the same name sets


@dataclass(frozen=True)
class Plan:
    """One notebook with its parameters settled: nothing has run yet.

    Attributes:
        notebook: its content, as JSON.
        overrides: what papermill injects; defaults are left out.
        build: folder of the executed copy and the reuse state.
        figures: folder that finished figures go to.
    """

    project: Project
    name: str
    profile: str
    notebook: dict[str, Any]
    overrides: dict[str, Any]
    key: Key
    build: Path
    figures: Path

    @property
    def executed(self) -> Path:
        """The executed copy of a successful run."""
        return self.build / f"{self.name}.ipynb"

    @property
    def failed(self) -> Path:
        """The copy of a run that failed."""
        return self.build / f"{self.name}.failed.ipynb"

    @property
    def record(self) -> Path:
        """The reuse state."""
        return self.build / f"{self.name}.json"

    def reason(self) -> str | None:
        """Why the notebook has to run now; None where its last results stand."""
        return reason_to_run(Record.read(self.record), self.key.as_json(), self.project.root)


@dataclass(frozen=True)
class Outcome:
    """What came of a notebook.

    Attributes:
        reason: why it ran; None where the last results were reused.
        seconds: how long this took, or the run that is reused.
    """

    plan: Plan
    reason: str | None
    seconds: float


def plan(
    name: str,
    profile: str = QUICK,
    overrides: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    project: Project | None = None,
) -> Plan:
    """Settle what running the notebook `name` means, with every refusal made here.

    Args:
        profile: `quick`, or a file in `notebooks/profiles`.
        overrides: parameter values over the profile's. Results then go to
            `build/<profile>-tweaked`, so that figures of the profile itself stay what they say.
        device: value of the parameter `device` where the notebook has one.

    Raises:
        Refused: name, profile, parameter, type or device is not what the notebook allows.
    """
    project = project or Project.here()
    path = notebook_path(project, name)
    changes = profile_overrides(project, profile).get(name, {})
    notebook = load(path)
    cells = code_cells(notebook)
    known = defaults(cells, name)
    values = override(known, changes, f"{name} (profile {profile})")
    values = override(values, overrides or {}, name)
    if device is not None and DEVICE in known:
        values = override(values, {DEVICE: device}, name)
    where = str(values.get(DEVICE, "cpu"))
    build = project.build(f"{profile}-tweaked" if overrides else profile)
    return Plan(
        project=project,
        name=name,
        profile=profile,
        notebook=notebook,
        overrides={key: value for key, value in values.items() if value != known[key]},
        key=_key(cells, name, values, project, where),
        build=build,
        figures=build / "figures" if overrides else project.figures(profile),
    )


def _key(
    cells: list[CodeCell], name: str, values: dict[str, Any], project: Project, device: str
) -> Key:
    if device != "cpu":
        # torch takes seconds to import, which a run on the CPU and a reuse need not wait for.
        from paperlib.devices import resolve

        try:
            device = str(resolve(device))
        except ValueError as error:
            raise Refused(f"{name}: {error}") from None
    try:
        return key_of(cells, values, project.package, device)
    except SyntaxError as error:
        raise Refused(f"{name}: a code cell or a module is no valid Python: {error}") from None


def run(
    name: str,
    profile: str = QUICK,
    overrides: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    project: Project | None = None,
    cell_timeout: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run the notebook `name`, unless its last results still stand.

    Only one process at a time runs a notebook under a profile; a second one waits and then reuses.
    Whatever happens, results of earlier runs are replaced whole or not at all.

    Args:
        profile, overrides, device: as in `plan`.
        cell_timeout: seconds that one cell may take; None sets no limit.
        say: called with one line at the start, at the end and every few seconds between.

    Raises:
        Refused: see `plan`.
        NotebookFailed: the run failed; its notebook is kept as `<name>.failed.ipynb`.
    """
    todo = plan(name, profile, overrides, device=device, project=project)
    todo.build.mkdir(parents=True, exist_ok=True)
    with _alone(todo, say):
        reason = todo.reason()
        last = Record.read(todo.record)
        if reason is None and last is not None:
            todo.failed.unlink(missing_ok=True)
            say("reused: nothing changed")
            return Outcome(todo, None, last.seconds)
        estimate = f" (about {last.seconds:.0f} s)" if last else ""
        say(f"running{estimate}: {reason}")
        start = time.monotonic()
        with _plain_disk_errors(todo.build):
            _run(todo, last, cell_timeout, say, start)
        seconds = time.monotonic() - start
        say(f"done in {seconds:.0f} s; figures in {_short(todo.figures, todo.project.root)}")
        return Outcome(todo, reason, seconds)


@contextlib.contextmanager
def _alone(todo: Plan, say: Callable[[str], None]) -> Iterator[None]:
    lock = FileLock(todo.build / f"{todo.name}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say("another run of it is going on; waiting for its results")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _plain_disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        raise NotebookFailed(
            f"cannot write at {error.filename or folder}: {os.strerror(error.errno)}; make room or "
            "give the right to write there and run again, nothing that was there is lost"
        ) from None


def _run(
    todo: Plan,
    last: Record | None,
    cell_timeout: int | None,
    say: Callable[[str], None],
    start: float,
) -> None:
    root = todo.project.root
    partial = todo.build / f"{todo.name}.partial.ipynb"
    staged = todo.build / f"{todo.name}.figures"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    from paperlib.running.execute import execute  # papermill takes a second that a reuse saves

    try:
        execute(
            todo.notebook,
            partial,
            parameters=todo.overrides,
            environment=kernel_environment(todo.project, staged, todo.build.name, todo.key.source),
            folder=todo.project.notebooks,
            cell_timeout=cell_timeout,
            say=say,
        )
        previous = [root / name for name in last.outputs] if last else []
        figures = publish(staged, todo.figures, previous)
        os.replace(partial, todo.executed)
        outputs = [todo.executed, *figures]
        Record(
            key=todo.key.as_json(),
            outputs={_short(path, root): checksum(path.read_bytes()) for path in outputs},
            seconds=round(time.monotonic() - start, 1),
        ).write(todo.record)
        todo.failed.unlink(missing_ok=True)
    except NotebookFailed as error:
        os.replace(partial, todo.failed)
        raise NotebookFailed(f"{error}\nkept as {_short(todo.failed, root)}") from None
    finally:
        partial.unlink(missing_ok=True)
        shutil.rmtree(staged, ignore_errors=True)


def _short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
