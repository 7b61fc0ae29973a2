"""Where a result came from: profile, source key, device, threads and versions.

The runner sets PAPERLIB_PROFILE and PAPERLIB_KEY; a notebook run by hand says so instead.
"""

import os
import platform
from importlib.metadata import version

PACKAGES = ("torch", "numpy", "scipy", "numba", "pandas", "matplotlib", "seaborn")


def profile() -> str:
    """Name of the profile that the current run belongs to; "lab" outside the runner."""
    return os.environ.get("PAPERLIB_PROFILE", "lab")


def source_key() -> str:
    """The runner's key of parameters, code, data and versions; "interactive" outside the runner."""
    return os.environ.get("PAPERLIB_KEY", "interactive")


def threads() -> int:
    """CPU threads that torch uses."""
    # Imported here since it takes seconds, which the claims command need not pay.
    import torch

    return torch.get_num_threads()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers and figures depend on."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
