"""A process of its own for each side of a benchmark, on the same cores with as many threads."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import torch

AVAILABLE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
CORES = min(2, AVAILABLE or 1)
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@contextmanager
def worker(cores: int = CORES) -> Iterator[Executor]:
    """One fresh process, idle between its tasks, on so many cores with as many threads.

    What it starts itself, like processes that load images, shares these cores.

    Where the system cannot pin a process to cores, only the threads are limited.
    """
    # the libraries read these once, when they are loaded in the new process
    os.environ.update(dict.fromkeys(POOLS, str(cores)))
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=_pin, initargs=(cores,)) as process:
        yield process


def _pin(cores: int) -> None:
    os.environ["PAPERLIB_PROGRESS"] = "off"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    torch.set_num_threads(cores)
