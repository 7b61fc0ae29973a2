"""The command behind the Makefile: run notebooks, say why, refresh and check the committed ones.

`python -m paperlib.runner --help` lists what it does.
"""

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paperlib import atomic
from paperlib.paths import QUICK, Project
from paperlib.running.errors import NotebookFailed, Refused
from paperlib.running.notebooks import code_cells, load, title
from paperlib.running.parameters import defaults, from_text
from paperlib.running.profiles import notebook_names, notebook_path
from paperlib.running.run import Outcome, Plan, plan, run

__all__ = ["Outcome", "Plan", "main", "plan", "run"]

FAILED, REFUSED, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None, project: Project | None = None) -> int:
    """Carry out one command line.

    Returns:
        0, or 1 where a notebook failed, 2 where the request was refused, 130 after Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    project = project or Project.here()
    with _terminable():
        try:
            return options.command(project, options)
        except Refused as error:
            _say(f"error: {error}", error=True)
            return REFUSED
        except NotebookFailed as error:
            _say(str(error), error=True)
            return FAILED
        except KeyboardInterrupt:
            _say("interrupted; finished notebooks are kept", error=True)
            return INTERRUPTED


def _figures(project: Project, options: argparse.Namespace) -> int:
    names = _names(project, options)
    if options.parameters and not options.names:
        raise Refused("-p needs the name of the notebook that it is meant for")
    # Every request is looked at before the first notebook starts.
    todo = [(name, _overrides(project, name, options.parameters)) for name in names]
    for name, overrides in todo:
        plan(name, options.profile, overrides, device=options.device, project=project)
    failures = 0
    for number, (name, overrides) in enumerate(todo, 1):
        count = f" [{number}/{len(todo)}]" if len(todo) > 1 else ""
        try:
            run(
                name,
                options.profile,
                overrides,
                device=options.device,
                project=project,
                cell_timeout=options.cell_timeout or None,
                say=_prefixed(f"{name}{count}"),
            )
        except NotebookFailed as error:
            failures += 1
            _say(f"{name}{count}: FAILED in {error}", error=True)
    return FAILED if failures else 0


def _names(project: Project, options: argparse.Namespace) -> list[str]:
    """The notebooks that were asked for, all where none was named."""
    names = options.names or notebook_names(project)
    if not names:
        raise Refused(f"no notebooks in {project.notebooks}")
    return names


def _overrides(project: Project, name: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    if not pairs:
        return {}
    given = [key for key, _ in pairs]
    twice = next((key for key in given if given.count(key) > 1), None)
    if twice is not None:
        raise Refused(f"-p {twice} is given twice: give one value")
    known = defaults(code_cells(load(notebook_path(project, name))), name)
    return {key: from_text(text, known.get(key)) for key, text in pairs}


def _why(project: Project, options: argparse.Namespace) -> int:
    for name in _names(project, options):
        overrides = _overrides(project, name, options.parameters)
        todo = plan(name, options.profile, overrides, device=options.device, project=project)
        reason = todo.reason()
        _say(f"{name}: " + (f"would run: {reason}" if reason else "reused: nothing changed"))
    return 0


def _list(project: Project, _: argparse.Namespace) -> int:
    names = notebook_names(project)
    width = max(map(len, names), default=0)
    for name in names:
        _say(f"{name:{width}}  {title(load(notebook_path(project, name)))}")
    return 0


def _refresh(project: Project, options: argparse.Namespace) -> int:
    import nbformat

    from paperlib.running.committed import as_bytes, with_outputs

    failures = 0
    for name in _names(project, options):
        say = _prefixed(name)
        try:
            done = run(name, project=project, cell_timeout=options.cell_timeout or None, say=say)
            path = notebook_path(project, name)
            committed = nbformat.from_dict(done.plan.notebook)
            executed = nbformat.read(done.plan.executed, as_version=4)
            content = as_bytes(with_outputs(committed, executed, name))
        except (NotebookFailed, Refused) as error:
            failures += 1
            _say(f"{name}: FAILED in {error}", error=True)
            continue
        if content == path.read_bytes():
            say("the committed notebook is up to date")
        else:
            atomic.write_whole(path, content)
            say("the committed notebook was rewritten")
    return FAILED if failures else 0


def _check(project: Project, options: argparse.Namespace) -> int:
    from paperlib.running.check import check

    return check(project, options.names)


def _prefixed(name: str) -> Callable[[str], None]:
    return lambda line: _say(f"{name}: {line}")


def _say(text: str, error: bool = False) -> None:
    # One write a message: lines of parallel runs then never mix.
    stream = sys.stderr if error else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let a polite kill end in the same tidy way as Ctrl-C: the kernel goes too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paperlib.runner", description="Run the notebooks of this repository."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, act: Callable[[Project, argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=act)
        return sub

    figures = command("figures", _figures, "make figures: run notebooks whose inputs changed")
    why = command("why", _why, "say why a notebook would run or be reused")
    refresh = command("refresh", _refresh, "put fresh outputs into the committed notebooks")
    check = command("check", _check, "compare the committed notebooks with what they print now")
    command("list", _list, "list the notebooks and their titles")
    for sub in (figures, why, refresh, check):
        sub.add_argument("names", nargs="*", metavar="NAME", help="notebooks (default: all)")
    for sub in (figures, why):
        sub.add_argument("--profile", default=QUICK, help="a set of overrides (default: quick)")
        sub.add_argument("--device", help="cpu, cuda, cuda:N or mps (default: the notebook's own)")
        sub.add_argument(
            *("-p", "--parameter"),
            dest="parameters",
            nargs=2,
            action="append",
            default=[],
            metavar=("KEY", "VALUE"),
            help="override one parameter; results then go to build/<profile>-tweaked",
        )
    for sub in (figures, refresh):
        sub.add_argument(
            "--cell-timeout",
            type=int,
            default=0,
            metavar="SECONDS",
            help="give up on a cell after this long (default: never)",
        )
    return parser


if __name__ == "__main__":
    # A terminal without the mathematical signs shows a question mark for them.
    sys.stdout.reconfigure(errors="replace")
    sys.exit(main())
