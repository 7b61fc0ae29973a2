"""A process of its own for each side of a benchmark, on the same cores with as many threads."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import torch

CORES = 2
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@contextmanager
def worker(threads: int = CORES) -> Iterator[Executor]:
    """One fresh process, idle between its tasks, on `CORES` cores with so many threads.

    Where the system cannot pin a process to cores, only the threads are limited.
    """
    # the libraries read these once, when they are loaded in the new process
    os.environ.update(dict.fromkeys(POOLS, str(threads)))
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=_pin, initargs=(threads,)) as process:
        yield process


def _pin(threads: int) -> None:
    os.environ["PAPERLIB_PROGRESS"] = "off"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    torch.set_num_threads(threads)
