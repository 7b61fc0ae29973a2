"""Resets of layers, as pure functions on state dicts (*Are All Layers Created Equal?*, §2).

Re-initialisation puts a layer back to an earlier checkpoint of its own training, checkpoint 0 being
the initialisation. Re-randomisation draws it anew from the law that it was initialised by, which is
done by building the whole network anew from another seed: a module's `reset_parameters()` is
often another law than the one that the network was built with.

Names of tensors are compared without the prefixes that `torch.compile` and DataParallel add.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from paperlib.choices import check_choice
from paperlib.networks.laws import check_int

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
BUFFERS = ("reset", "keep")

T = TypeVar("T")
Build = Callable[[int], nn.Module]


def reinitialise(
    state: Mapping[str, Tensor],
    source: Mapping[str, Tensor],
    names: Iterable[str],
    *,
    buffers: str = "reset",
) -> dict[str, Tensor]:
    """`state` with the tensors `names` taken from `source`, e.g. θ^T with layer d at θ^τ (§2).

    Args:
        state: a network's state dict, e.g. at the end of training; left as it is.
        source: another state dict of the same network; left as it is.
        names: the tensors that the layer owns, e.g. a value of `networks.layers(model)`.
        buffers: a BatchNorm's running statistics among `names` are "reset" with the layer or
            "keep" their values in `state`. The paper does not say which.

    Returns:
        Detached copies under names without prefixes, in `state`'s order, dtypes and devices.

    Raises:
        ValueError: missing or unknown names, or shapes that differ; they are named.
    """
    check_choice("choice for buffers", buffers, BUFFERS)
    state, source = canonical(state), canonical(source)
    check_same(source, state, "the source of the reset")
    taken = set(owned(names, state, buffers=buffers))
    return {
        name: (source[name].detach().to(tensor, copy=True) if name in taken else _copied(tensor))
        for name, tensor in state.items()
    }


def rerandomise(
    build: Build,
    names: Iterable[str],
    seed: int,
    state: Mapping[str, Tensor],
    *,
    draw: int = 0,
    buffers: str = "reset",
) -> dict[str, Tensor]:
    """`state` with the tensors `names` drawn anew; the other arguments are those of `fresh`."""
    return reinitialise(state, fresh(build, seed, draw), names, buffers=buffers)


def fresh(build: Build, seed: int, draw: int = 0) -> dict[str, Tensor]:
    """State dict of a network built anew, as re-randomisation number `draw` of `seed`.

    `build(seed)` makes the network. It may use its argument or PyTorch's global CPU generator,
    which is seeded for the call and restored. The seed that it gets is derived from (seed, draw):
    were `seed` itself handed on, a network trained from that seed would get back its own θ^0.
    Raises ValueError for a negative seed or draw.
    """
    spawn_key = (check_int("draw", draw, 0),)
    sequence = np.random.SeedSequence(check_int("seed", seed, 0), spawn_key=spawn_key)
    derived = int(sequence.generate_state(1, np.uint64)[0] >> 1)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived)
        network = build(derived)
    return {name: _copied(t) for name, t in canonical(network.state_dict()).items()}


def canonical(named: Mapping[str, T]) -> dict[str, T]:
    """The same mapping under names without wrappers' prefixes, nested ones too.

    `_orig_mod` (torch.compile) goes wherever it stands; a leading `module` (DataParallel) goes if
    every name has it. Raises ValueError if two names become one.
    """
    plain = {name: _uncompiled(name) for name in named}
    while plain and all(name.startswith("module.") for name in plain.values()):
        plain = {name: short.removeprefix("module.") for name, short in plain.items()}
    stripped = {plain[name]: value for name, value in named.items()}
    if len(stripped) < len(named):
        short = list(plain.values())
        twice = sorted({name for name in short if short.count(name) > 1})
        raise ValueError(f"with and without a wrapper's prefix: {listed(twice)}; keep one of each.")
    return stripped


def owned(
    names: Iterable[str], state: Mapping[str, object], *, buffers: str = "reset"
) -> list[str]:
    """The `names` of a layer as `state`, which is canonical, has them.

    With buffers "keep", a BatchNorm's running statistics are left out. Raises ValueError for no
    names at all, and for names that `state` lacks.
    """
    if isinstance(names, str):
        raise ValueError(f"give a list of tensors' names, not the text {names!r}.")
    found, unknown = [], []
    for name in names:
        short = _uncompiled(name)
        while short not in state and short.startswith("module."):
            short = short.removeprefix("module.")
        (found if short in state else unknown).append(short)
    if unknown:
        raise ValueError(f"no tensor is named {listed(unknown)}. There are: {listed(state)}.")
    if not found:
        raise ValueError("a reset of no tensors: give at least one name.")
    return [name for name in found if buffers != "keep" or not is_statistic(name)]


def is_statistic(name: str) -> bool:
    """Whether a tensor's name is that of a BatchNorm's running statistic."""
    return name.rpartition(".")[2] in STATISTICS


def check_same(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    """ValueError, with `what` and the tensors, unless names and shapes are those of `wanted`."""
    faults = {
        "missing": [name for name in wanted if name not in state],
        "unknown": [name for name in state if name not in wanted],
        "of another shape": [
            f"{name} {tuple(tensor.shape)} for {tuple(wanted[name].shape)}"
            for name, tensor in state.items()
            if name in wanted and tensor.shape != wanted[name].shape
        ],
    }
    found = [f"{fault}: {listed(names)}" for fault, names in faults.items() if names]
    if found:
        raise ValueError(f"{what} does not fit the network. Tensors {'; '.join(found)}.")


def listed(names: Iterable[object], most: int = 12) -> str:
    """Names in a row for a message, cut after `most`."""
    given: Sequence[str] = [str(name) for name in names]
    more = f" and {len(given) - most} more" if len(given) > most else ""
    return ", ".join(given[:most]) + more


def _uncompiled(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
