"""A small project of its own for every test that runs notebooks."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from paperlib.paths import Project
from paperlib.runner import main

SANITISER = Path(__file__).parent / "notebooks" / "sanitize.cfg"
SAVE_CSV = """from paperlib.paths import figures_dir
(figures_dir() / "{name}.csv").write_text(f"n\\n{{n}}\\n")
print(n)"""


@dataclass(frozen=True)
class Workshop:
    """A temporary project, and ways to fill it and to run it."""

    project: Project

    def add(self, name: str, *code: str, parameters: str = "n = 1") -> Path:
        """Write a notebook: a title, the parameters cell, then cells of `code`."""
        cells = [
            new_markdown_cell(f"# About {name}"),
            new_code_cell(parameters, metadata={"tags": ["parameters"]}),
            *map(new_code_cell, code),
        ]
        path = self.project.notebooks / f"{name}.ipynb"
        nbformat.write(new_notebook(cells=cells), path)
        return path

    def add_saving(self, name: str) -> Path:
        """A notebook that prints its parameter n and saves it as <name>.csv."""
        return self.add(name, SAVE_CSV.format(name=name))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the runner's command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "paperlib.runner", *arguments],
            env={**os.environ, "PAPERLIB_ROOT": str(self.project.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run the runner's command here: exit status, what it printed, and its errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments, self.project)
        return status, out.getvalue(), err.getvalue()

    def files(self, folder: Path) -> Sequence[str]:
        """Names of the files in `folder`, without locks."""
        return sorted(p.name for p in folder.glob("*") if p.suffix != ".lock")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """An empty project in a temporary folder."""
    project = Project(tmp_path)
    project.profiles.mkdir(parents=True)
    project.sanitiser.parent.mkdir(parents=True)
    project.sanitiser.write_text(SANITISER.read_text())
    return Workshop(project)
