"""How many CPU cores this process may use."""

import os


def available() -> int:
    """Cores that the system lets this process run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
