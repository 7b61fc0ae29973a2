"""Exact length distortions of many random networks at once (§3.2; Figs 1-3).

Networks are drawn in blocks. A block has its own random numbers, keyed by (seed, block), so that
the result depends neither on the number of threads nor on the memory cap, and any single network
of a sample can be had again with `member`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypedDict, Unpack

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from paperlib import cores, devices
from paperlib.choices import check_choice
from paperlib.length import batched, blocks, exact, kernel
from paperlib.networks import laws
from paperlib.networks.fcn import assemble
from paperlib.progress import track

DTYPES = {"double": torch.float64, "single": torch.float32}
WEIGHTS_PER_BLOCK = {"cpu": 2**19, "cuda": 2**26}
NETS_PER_BLOCK = {"cpu": 256, "cuda": 4096}  # at most


@dataclass(frozen=True)
class Sample:
    """One curve's image under many networks: float64 tensors `(nets,)` on the CPU."""

    lengths: Tensor
    """Length distortion: length of the image, with multiplicity, over that of the curve."""
    energies: Tensor
    """Mean of ‖J_x u‖² along the curve. Its expectation is exactly n_L/n_0 (§5, by the paper's
    initialisation), and lengths² ≤ energies."""
    pieces: Tensor
    """Number of linear pieces of the image."""
    spans: Tensor
    """Max - min of the first output coordinate, over the length of the curve. For n_L = 1 it is
    the length of the image as a set, without multiplicity."""


class Initialisation(TypedDict, total=False):
    """How networks are drawn, by the names and with the defaults of `sample_images`."""

    bias_var: float
    weight_law: str
    output: str
    slope: float
    scale: float


class Options(Initialisation, total=False):
    """What `sample_images` takes by name; its docstring says what each means."""

    curve: str | Tensor | np.ndarray
    precision: str
    device: str
    max_bytes: int
    threads: int | None


def sample_lengths(
    widths: Sequence[int], nets: int, seed: int, **options: Unpack[Options]
) -> Tensor:
    """Exact length distortions of `nets` fresh random networks: float64 `(nets,)`, on the CPU.

    Options and errors are those of `sample_images`. The mean is `theory.mean_length(widths)`.
    """
    return sample_images(widths, nets, seed, **options).lengths


def sample_images(
    widths: Sequence[int],
    nets: int,
    seed: int,
    *,
    curve: str | Tensor | np.ndarray = "gaussian",
    bias_var: float = 0.01,
    weight_law: str = "gaussian",
    output: str = "linear",
    slope: float = 0.0,
    scale: float = 1.0,
    precision: str = "double",
    device: str = "cpu",
    max_bytes: int = 2**30,
    threads: int | None = None,
) -> Sample:
    """Measure the image of a curve under each of `nets` fresh random networks, exactly.

    Args:
        widths: [n_0, …, n_L].
        nets: number of networks, at least 1.
        seed: same seed, same networks, whatever the number of threads, the memory cap and the
            precision. A GPU draws other networks than a CPU.
        curve: "gaussian" (a fresh segment a network, both ends from N(0, I)), or the points
            `(K, n_0)` of a polygon, the same for all networks.
        bias_var, weight_law, output, slope, scale: the initialisation, see `networks.laws`.
        precision: "double", or "single" for products in float32: faster, relative error of a
            length about 1e-6, but more for curves or images much shorter than their distance from
            the origin. Weights are drawn in float32 and lengths are summed in float64 in both.
        device: "cpu" (compiled kernel) or "cuda", "cuda:N" (batched tensor operations).
        max_bytes: cap on the memory that the computation takes at a time, beside the result;
            on a CPU fewer threads are used where it is tight.
        threads: threads on the CPU; by default the cores that this process may use.

    Raises:
        ValueError: a value outside its range, an unknown name, a device that is not there,
            or a memory cap below what one block of networks needs.
    """
    where = devices.resolve(device)
    if where.type not in NETS_PER_BLOCK:
        raise ValueError(f"lengths are summed in float64, which {device!r} lacks: use 'cpu'.")
    initialisation = Initialisation(
        output=output, slope=slope, scale=scale, bias_var=bias_var, weight_law=weight_law
    )
    plan = _Plan.make(widths, seed, where, curve, initialisation)
    nets = laws.check_int("nets", nets, 1)
    dtype = DTYPES[check_choice("precision", precision, DTYPES)]
    max_bytes = laws.check_int("max_bytes", max_bytes, 1)
    threads = laws.check_int("threads", cores.available() if threads is None else threads, 1)
    if max_bytes < plan.block_bytes:
        raise ValueError(
            f"max_bytes = {max_bytes} is below the {plan.block_bytes} bytes that "
            f"{plan.nets} networks of these widths need at a time along such a curve."
        )

    blocks = -(-nets // plan.nets)
    what = f"{nets} networks of {plan.layers} layers"
    table = torch.empty(blocks, plan.nets, len(kernel.COLUMNS), dtype=torch.float64)
    if where.type == "cpu":
        threads = min(threads, blocks, max_bytes // plan.block_bytes)
        with _workers(threads) as pool:
            results = _in_order(
                pool, lambda block: _on_cpu(plan, block, dtype), blocks, 8 * threads
            )
            for block, result in zip(track(blocks, what), results, strict=True):
                table[block] = result
    else:
        for block in track(blocks, what):
            table[block] = _on_device(plan, block, dtype, max_bytes)
    sample = Sample(*table.flatten(0, 1)[:nets].T.contiguous())
    vanished = (sample.lengths == 0) & (sample.spans > 0)
    if not bool(table.isfinite().all()) or bool(vanished.any()):
        raise ValueError(
            "the networks' weights or outputs are not finite numbers, or too large or too small "
            f"for {precision} precision: choose a scale nearer to 1, or rescale the curve."
        )
    return sample


def member(
    widths: Sequence[int],
    seed: int,
    index: int,
    *,
    dtype: torch.dtype = torch.float64,
    **options: Unpack[Options],
) -> tuple[nn.Sequential, Tensor]:
    """Network `index` of the sample that `sample_images` draws, and its curve `(K, n_0)`.

    Give the options of the sample; those that do not change the draw are ignored. Errors as in
    `sample_images`, and TypeError for a name that is none of its options.
    """
    for name in options:
        try:
            check_choice("option", name, Options.__annotations__)
        except ValueError as error:
            raise TypeError(str(error)) from None
    check_choice("precision", options.get("precision", "double"), DTYPES)
    where = devices.resolve(options.get("device", "cpu"))
    known = Initialisation.__annotations__
    initialisation = Initialisation(**{k: v for k, v in options.items() if k in known})
    plan = _Plan.make(widths, seed, where, options.get("curve", "gaussian"), initialisation)
    block, row = divmod(laws.check_int("index", index, 0), plan.nets)
    layers = plan.draw(block, dtype)
    net = assemble(
        [layer.weight[row] for layer in layers],
        [layer.bias[row] for layer in layers],
        rectify_output=layers[-1].gated,
        slope=plan.slope,
        dtype=dtype,
    )
    curves = plan.curves(block)
    return net, curves[row % len(curves)].cpu()


@dataclass(frozen=True)
class _Plan:
    """How the blocks of a sample are drawn: architecture, initialisation and curve."""

    widths: tuple[int, ...]
    seed: int
    device: torch.device
    curve: Tensor | None  # (K, n_0) float64, or None for a fresh Gaussian segment a network
    initialisation: Initialisation

    @classmethod
    def make(
        cls,
        widths: Sequence[int],
        seed: int,
        device: torch.device,
        curve: str | Tensor | np.ndarray,
        initialisation: Initialisation,
    ) -> "_Plan":
        """The plan, once everything in it is found to be allowed."""
        widths = laws.check_widths(widths)
        plan = cls(
            widths,
            laws.check_int("seed", seed, 0),
            device,
            _points(curve, widths[0]),
            initialisation,
        )
        list(blocks.random_layers(laws.generator(0), widths, 0, **initialisation))
        return plan

    @property
    def slope(self) -> float:
        return self.initialisation.get("slope", 0.0)

    @property
    def layers(self) -> int:
        return len(self.widths) - 1

    @property
    def weights_per_net(self) -> int:
        return sum(a * b for a, b in pairwise(self.widths))

    @property
    def nets(self) -> int:
        """Networks in a block: by the architecture alone, since it decides what a seed draws."""
        fitting = WEIGHTS_PER_BLOCK[self.device.type] // self.weights_per_net
        return max(1, min(NETS_PER_BLOCK[self.device.type], fitting))

    @property
    def block_bytes(self) -> int:
        """Bytes for a block's weights and curves, and for the points of one network."""
        # drawn in float32 and kept in float64; the kernel's copy is made when the draws are gone
        a_weight = 8 + (8 if self.device.type == "cpu" else 4)
        vertices = 2 if self.curve is None else len(self.curve)
        curves = self.nets if self.curve is None else 1
        a_vertex = self.widths[0] * (8 + 8) + 8  # in both precisions, and its arc length
        # the kernel's two buffers, which may have to grow once
        room = 4 * vertices + sum(self.widths)
        points = 4 * room * max(self.widths) * 8
        return self.nets * self.weights_per_net * a_weight + curves * vertices * a_vertex + points

    def draw(self, block: int, dtype: torch.dtype) -> list[blocks.Layer]:
        """The layers of a block of networks."""
        rng = laws.generator(self.seed, block, 0, device=self.device)
        return list(
            blocks.random_layers(rng, self.widths, self.nets, **self.initialisation, dtype=dtype)
        )

    def curves(self, block: int) -> Tensor:
        """Points of each network's curve, float64 `(nets, K, n_0)`, or `(1, K, n_0)` if fixed."""
        if self.curve is not None:
            return self.curve.to(self.device)[None]
        rng = laws.generator(self.seed, block, 1, device=self.device)
        return laws.draw(rng, "gaussian", (self.nets, 2, self.widths[0]), 1.0).double()


def _on_cpu(plan: _Plan, block: int, dtype: torch.dtype) -> Tensor:
    """Measurements `(nets, 4)` of a block, by the compiled kernel."""
    layers = plan.draw(block, dtype)
    points = plan.curves(block)
    positions = exact.arc_length(points)
    measured = kernel.trace_block(
        torch.cat([layer.weight.flatten(1) for layer in layers], dim=1).numpy(),
        torch.cat([layer.bias for layer in layers], dim=1).numpy(),
        np.array(plan.widths),
        points.to(dtype).contiguous().numpy(),
        positions.numpy(),
        np.dtype(str(dtype).removeprefix("torch.")).type(plan.slope),
        layers[-1].gated,
    )
    return _per_length(torch.from_numpy(measured), positions[:, -1])


def _on_device(plan: _Plan, block: int, dtype: torch.dtype, max_bytes: int) -> Tensor:
    """Measurements `(nets, 4)` of a block, by batched tensor operations."""
    points = plan.curves(block)
    positions = exact.arc_length(points)
    layers = plan.draw(block, dtype)
    measured = batched.measure(
        layers,
        points.to(dtype).expand(plan.nets, -1, -1),
        positions.expand(plan.nets, -1),
        plan.slope,
        max_bytes,
    )
    return _per_length(measured, positions[:, -1]).cpu()


def _in_order(
    pool: Executor, work: Callable[[int], Tensor], items: int, ahead: int
) -> Iterator[Tensor]:
    """Results of `work` on 0, 1, …; no more than `ahead` wait at a time, however many there are."""
    waiting: deque[Future[Tensor]] = deque()
    for item in range(items):
        if len(waiting) == ahead:
            yield waiting.popleft().result()
        waiting.append(pool.submit(work, item))
    while waiting:
        yield waiting.popleft().result()


def _per_length(measured: Tensor, curve_lengths: Tensor) -> Tensor:
    """Measurements by `kernel.COLUMNS`, with all but the number of pieces per unit of length."""
    unit = torch.ones_like(curve_lengths)
    return measured / torch.stack([curve_lengths, curve_lengths, unit, curve_lengths], dim=1)


def _points(curve: str | Tensor | np.ndarray, n_0: int) -> Tensor | None:
    """The points of a fixed curve, float64 `(K, n_0)`, or None for "gaussian"."""
    if isinstance(curve, str):
        check_choice("curve", curve, ("gaussian",))
        return None
    return exact.as_points(curve, n_0).cpu()


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def _workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of that many threads, each with single-threaded products; quick to interrupt."""
    pool = ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1))
    with _libraries().limit(limits=1, user_api="blas"):
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
