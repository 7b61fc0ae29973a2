"""Committed notebooks run again and compared with their own outputs, by nbval."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import nbformat

from paperlib.paths import Project
from paperlib.running.committed import problems
from paperlib.running.errors import NotebookFailed, Refused
from paperlib.running.execute import START_TIMEOUT
from paperlib.running.kernels import kernel_environment, private_kernel
from paperlib.running.notebooks import load
from paperlib.running.profiles import notebook_names, notebook_path

CELL_TIMEOUT = 600  # seconds; also what a killed kernel costs, which nbval does not notice
WORKERS = min(4, os.cpu_count() or 1)  # kernels at once


def check(project: Project, names: Sequence[str] = (), cell_timeout: int = CELL_TIMEOUT) -> int:
    """Compare the notebooks `names` (all where empty) with what they print now.

    Figures go to `build/nbval/figures`, so that no committed file is touched.

    Returns:
        The exit status of pytest.

    Raises:
        Refused: there is no such notebook, or it is malformed.
        NotebookFailed: a notebook is not fit to be compared; see `committed.problems`.
    """
    paths = [notebook_path(project, name) for name in names or notebook_names(project)]
    if not paths:
        raise Refused(f"no notebooks in {project.notebooks}")
    for path in paths:
        load(path)
    unfit = [
        f"{path.stem}: {problem}"
        for path in paths
        for problem in problems(nbformat.read(path, as_version=4), path.stem)
    ]
    if unfit:
        raise NotebookFailed("\n".join(unfit))
    build = project.build("nbval")
    shutil.rmtree(build, ignore_errors=True)
    (build / "figures").mkdir(parents=True)
    environment = kernel_environment(project, build / "figures", "nbval", "nbval")
    workers = 0 if len(paths) == 1 else min(WORKERS, len(paths))
    with private_kernel(environment):
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "--nbval", *map(str, paths)),
                *("--rootdir", str(project.root), "-p", "no:cacheprovider"),
                *("--nbval-sanitize-with", str(project.sanitiser)),
                *("--nbval-cell-timeout", str(cell_timeout)),
                *("--nbval-kernel-startup-timeout", str(START_TIMEOUT)),
                # One kernel for each notebook, and nbval's own time limit rather than a test's.
                *("--numprocesses", str(workers), "--dist", "loadscope"),
                *("--override-ini", "timeout=0"),
            ],
            cwd=project.root,
            env=os.environ,
            check=False,
        ).returncode
