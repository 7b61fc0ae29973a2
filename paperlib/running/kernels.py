"""Kernels of the interpreter that runs us: quiet, private, deaf to the user's Jupyter settings."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from traitlets.config import Config

from paperlib.paths import Project

NAME = "python3"
# A socket's path may have about a hundred characters: 30 of them are left to ours.
LONGEST_FOLDER = 70


@contextmanager
def private_kernel(environment: Mapping[str, str]) -> Iterator[Config]:
    """While this lasts, `python3` is a kernel of this interpreter with `environment` added.

    Kernelspecs of other environments, startup files and saved history play no part.

    Returns:
        The configuration under which a kernel manager talks to it through files in place of
        network ports: no two kernels can pick the same port, nothing can be overheard, and
        ipykernel has no reason to warn about either.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=_folder_for_sockets()) as folder:
        spec = Path(folder, "kernels", NAME, "kernel.json")
        spec.parent.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        # A kernel that outlives an interrupted runner by a moment has nothing to say about it.
        argv.append("--IPKernelApp.log_level=ERROR")
        spec.write_text(
            json.dumps(
                {
                    "argv": argv,
                    "display_name": "Python 3 (ipykernel)",
                    "language": "python",
                    "env": {**environment, "IPYTHONDIR": str(Path(folder, "ipython"))},
                }
            )
        )
        before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield Config(KernelManager={"transport": "ipc", "ip": str(Path(folder, "socket"))})
        finally:
            if before is None:
                del os.environ["JUPYTER_PATH"]
            else:
                os.environ["JUPYTER_PATH"] = before


def _folder_for_sockets() -> str:
    """The user's temporary folder, or `/tmp` where sockets in that one could not be opened."""
    chosen = tempfile.gettempdir()
    return chosen if len(os.fsencode(chosen)) <= LONGEST_FOLDER else "/tmp"


def kernel_environment(project: Project, figures: Path, profile: str, key: str) -> dict[str, str]:
    """What a notebook's kernel is told: where figures go, under which profile and source key."""
    inherited = os.environ.get("PYTHONPATH")
    return {
        "PAPERLIB_FIGURES": str(figures),
        "PAPERLIB_PROFILE": profile,
        "PAPERLIB_KEY": key,
        "PAPERLIB_PROGRESS": "off",
        "PAPERLIB_ROOT": str(project.root),
        # Digits then do not depend on the number of cores, and small products are faster so.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # The kernel starts in another folder and must still import the sources that were hashed.
        "PYTHONPATH": os.pathsep.join(filter(None, (str(project.package.parent), inherited))),
        # A backend forced from outside would leave the notebook without pictures.
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
