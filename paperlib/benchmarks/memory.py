"""Peak memory of `sample_lengths`: bounded by its cap, whatever the number of networks."""

import resource
import sys
from collections.abc import Sequence

from paperlib.benchmarks.workers import worker
from paperlib.length.ensemble import sample_lengths


def peak_growth(widths: Sequence[int], nets: int, max_bytes: int) -> int:
    """Bytes by which a sample raises the peak memory of a fresh process.

    Libraries and the compiled kernel are loaded before.
    """
    with worker() as process:
        return process.submit(_growth, widths, nets, max_bytes).result()


def _growth(widths: Sequence[int], nets: int, max_bytes: int) -> int:
    sample_lengths([2, 2, 2], 600, 0)
    before = _peak()
    sample_lengths(widths, nets, 0, max_bytes=max_bytes)
    return _peak() - before


def _peak() -> int:
    """Largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
