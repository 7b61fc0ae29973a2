"""Many random networks at once, in blocks of a fixed size, one layer after the other.

A block's generator is keyed by (seed, index of the block), and its size by the architecture
alone: what is drawn depends on nothing but the arguments, and memory does not grow with `nets`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import torch

from paperlib.networks import laws

_BLOCK_NUMBERS = 2**20  # at most so many entries of one layer in a block: it stays near the cache


class Layer(NamedTuple):
    """One layer of a block of networks."""

    weight: torch.Tensor  # (nets, n_out, n_in)
    bias: torch.Tensor  # (nets, n_out)
    gated: bool  # whether a ReLU follows


def block_sizes(widths: Sequence[int], nets: int, columns: int) -> list[int]:
    """Numbers of networks in the blocks; `columns` vectors are pushed through each network."""
    size = max(1, _BLOCK_NUMBERS // _numbers(widths, columns))
    return [min(size, nets - done) for done in range(0, nets, size)]


def block_bytes(widths: Sequence[int], size: int, columns: int) -> int:
    """Upper estimate of the memory of a block of `size` networks."""
    # Drawing holds up to three float32 copies, beside the float64 weights and their input.
    return 24 * size * _numbers(widths, columns)


def random_layers(
    rng: torch.Generator,
    widths: Sequence[int],
    nets: int,
    *,
    output: str = "linear",
    slope: float = 0.0,
    scale: float = 1.0,
    bias_var: float = 0.01,
    weight_law: str = "gaussian",
    dtype: torch.dtype = torch.float64,
) -> Iterator[Layer]:
    """The L layers of `nets` fresh networks, each drawn when it is asked for, on `rng`'s device.

    They are drawn in float32, so that one generator gives the same networks in every `dtype`.
    Options as in `networks.laws`.
    """
    weight_vars = laws.layer_variances(
        widths, output=output, slope=slope, scale=scale, law=weight_law
    )
    bias_vars = laws.bias_variances(widths, bias_var=bias_var, scale=scale, law=weight_law)
    for index, (n_in, n_out) in enumerate(pairwise(widths)):
        yield Layer(
            laws.draw(rng, weight_law, (nets, n_out, n_in), weight_vars[index]).to(dtype),
            laws.draw(rng, laws.bias_law(weight_law), (nets, n_out), bias_vars[index]).to(dtype),
            gated=index < len(widths) - 2 or output == "relu",
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensor operations on one CPU thread: faster for products as small as those of a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def random_frames(rng: torch.Generator, nets: int, n: int, d: int) -> torch.Tensor:
    """Uniformly random orthonormal d-frames in R^n, `(nets, n, d)` float64; d ≤ n."""
    gaussian = torch.randn(nets, n, d, dtype=torch.float64, device=rng.device, generator=rng)
    return torch.linalg.qr(gaussian).Q


def _numbers(widths: Sequence[int], columns: int) -> int:
    """Entries per network of the largest layer's weights, input and output."""
    return max(n_in * n_out + (n_in + n_out) * columns for n_in, n_out in pairwise(widths))
