"""What trainings will cost before they start: operations, time on a device, room in the store."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from paperlib import devices
from paperlib.training import data
from paperlib.training.runs import Spec

# A forward pass, and twice as much for the gradients of activations and of weights.
PASSES = 3
# FLOP/s of one CPU core while it trains: what small networks reached on a quiet one.
CORE = {"float32": 50e9, "bfloat16": 100e9}
# On other devices: the share of the speed of a large matrix product that training reaches.
SHARE = {"float32": 0.5, "bfloat16": 0.1}
# Seconds that every layer with weights takes in every step, however small it is.
OVERHEAD = 3e-4

PRODUCT = 4096  # rows of the matrix product that is timed
TIMED = 0.5  # seconds of timing


@dataclass(frozen=True)
class Estimate:
    """What a number of trainings needs.

    Attributes:
        runs: their number.
        flop: floating-point operations of all.
        seconds: from start to end; rough.
        stored: bytes of the states that are kept.
        device: where they are trained, in words.
        assumption: what the seconds rest on, in words.
    """

    runs: int
    flop: float
    seconds: float
    stored: int
    device: str
    assumption: str

    def __str__(self) -> str:
        unit, name = (3600, "hours") if self.seconds >= 3600 else (60, "minutes")
        return (
            f"{self.runs} runs, about {_short(self.flop / 1e15)} PFLOP, about "
            f"{_short(self.seconds / unit)} {name} on {self.device}, "
            f"{_short(self.stored / 2**30)} GiB of store (assumed: {self.assumption})"
        )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


@dataclass(frozen=True)
class Shape:
    """What a network costs.

    Attributes:
        flop: of the forward pass of one image.
        layers: modules with weights of their own.
        stored: bytes of a state.
    """

    flop: int
    layers: int
    stored: int


def shape(spec: Spec) -> Shape:
    """Count the operations and the bytes of the network of `spec`; nothing is computed.

    A multiplication and an addition are two operations; activations, pooling and normalisation
    count for none. Raises ValueError where the spec does not tell the shape of its images.
    """
    options = spec.contents()["options"]
    if "image_shape" not in options:
        raise ValueError(f"give image_shape in the options of {spec.title}.")
    model = spec.build().to("meta").eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, *options["image_shape"], device="meta"))
    return Shape(
        flop=counter.get_total_flops(),
        layers=sum(any(True for _ in m.parameters(recurse=False)) for m in model.modules()),
        stored=sum(t.numel() * t.element_size() for t in model.state_dict().values()),
    )


def estimate(specs: Sequence[Spec], device: str = "cpu", jobs: int = 1) -> Estimate:
    """What training `specs` from their start will need, `jobs` at a time.

    Training on the images is counted; evaluation, which is little beside it, is not. On a device
    that is no CPU, its speed is measured, for a second.

    Raises:
        ValueError: an unknown device, or a spec that does not tell its images' number or shape.
        DataError: photos that are not at hand.
    """
    where = devices.resolve(device)
    shapes: dict[str, Shape] = {}
    rates: dict[str, float] = {}
    flop, stored, seconds = 0.0, 0, []
    for spec in specs:
        recipe, precision = spec.recipe, spec.recipe.precision
        key = json.dumps([spec.network, spec.contents()["options"]], sort_keys=True)
        if key not in shapes:
            shapes[key] = shape(spec)
        network = shapes[key]
        if precision not in rates:
            rates[precision] = rate(where, precision)
        images = _images(spec)
        steps = -(-images // recipe.batch_size) * recipe.epochs
        work = PASSES * network.flop * images * recipe.epochs
        # Threads divide the work on a CPU only.
        speed = rates[precision] * (recipe.threads if where.type == "cpu" else 1)
        seconds.append(work / speed + OVERHEAD * network.layers * steps)
        flop += work
        stored += network.stored * len(spec.kept)
    return Estimate(
        runs=len(specs),
        flop=flop,
        seconds=max(sum(seconds) / jobs, *seconds, 0.0),
        stored=stored,
        device=f"{device}, {jobs} at a time",
        assumption=", ".join(f"{rate / 1e9:,.0f} GFLOP/s in {p}" for p, rate in rates.items()),
    )


def _images(spec: Spec) -> int:
    if spec.train_images is not None:
        return spec.train_images
    facts = data.facts(spec.data)
    if facts is None:
        raise ValueError(f"give train_images of {spec.title}.")
    return facts.train_images


def rate(device: torch.device, precision: str) -> float:
    """FLOP/s at which a training is assumed to run on one CPU core, or on another device."""
    if device.type == "cpu":
        return CORE[precision]
    return SHARE[precision] * _product_rate(device, getattr(torch, precision))


def _product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large matrix product."""
    a = torch.ones(PRODUCT, PRODUCT, device=device, dtype=dtype)
    (a @ a)[0, 0].item()  # the first one loads libraries
    start, products = time.perf_counter(), 0
    while time.perf_counter() - start < TIMED:
        for _ in range(4):
            b = a @ a
        b[0, 0].item()  # waits for the device
        products += 4
    return 2 * PRODUCT**3 * products / (time.perf_counter() - start)
