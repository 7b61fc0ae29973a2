"""Groups of layers that are reset together (§4, App. B).

A group is the union of its layers' tensors, so `evaluate.matrix(layers=union(…))` gives the joint
robustness. The patterns of a plain list of layers are those of Fig. 11, the patterns of residual
blocks those of Figs. 6, 12 and 13; the greedy search and the random groups are ours.
"""

import math
import re
from collections.abc import Container, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from torch import Tensor, nn

from paperlib import networks
from paperlib.robustness.evaluate import FULL_MODEL, States, matrix

Layers = Mapping[str, Sequence[str]]


def all_but_first(layers: Sequence[str]) -> list[str]:
    """Layers 2, 3, 4, … of a list of names."""
    return list(layers[1:])


def every_other(layers: Sequence[str]) -> list[str]:
    """Layers 2, 4, 6, …; the paper does not say where to start, and the first is critical."""
    return list(layers[1::2])


def two_in_three(layers: Sequence[str]) -> list[str]:
    """Layers 2, 3, 5, 6, …; where to start is our reading, as in `every_other`."""
    return [layer for i, layer in enumerate(layers) if i % 3]


def residual_blocks(layers: Sequence[str], stages: Container[int] | None = None) -> list[str]:
    """The residual blocks `stageS.resblkB` of a network, of some stages only or of all."""
    return [
        name for name, (stage, _) in _places(layers).items() if stages is None or stage in stages
    ]


def later_blocks(layers: Sequence[str], stages: Container[int] | None = None) -> list[str]:
    """`residual_blocks`, all but the first of each stage."""
    places = _places(layers)
    return [name for name in residual_blocks(layers, stages) if places[name][1] > 1]


def outer_blocks(layers: Sequence[str]) -> list[str]:
    """`later_blocks` of stages 1 and 4."""
    return later_blocks(layers, (1, 4))


def alternate_blocks(layers: Sequence[str]) -> list[str]:
    """Blocks 2, 4, 6, … of every stage; where to start is our reading, as in `every_other`."""
    return [name for name, (_, block) in _places(layers).items() if block % 2 == 0]


def of_size(
    layers: Sequence[str], size: int, most: int, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """All groups of `size` layers, or `most` different ones drawn at random if there are more."""
    if math.comb(len(layers), size) <= most:
        return list(combinations(layers, size))
    found: dict[tuple[str, ...], None] = {}  # a set that keeps its order
    while len(found) < most:
        members = np.sort(rng.choice(len(layers), size, replace=False))
        found[tuple(layers[i] for i in members)] = None
    return list(found)


def union(layers: Layers, groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The tensors of each group: `groups` maps its name to names of layers.

    Raises ValueError for an empty group, or for layers that are not known or come twice.
    """
    for group, members in groups.items():
        unknown = [member for member in members if member not in layers]
        if isinstance(members, str) or unknown or not members:
            raise ValueError(
                f"group {group!r} is {members!r}: give a list of layers out of {', '.join(layers)}."
            )
        if len(set(members)) < len(members):
            raise ValueError(f"group {group!r} has a layer twice: {', '.join(members)}.")
    return {
        group: [tensor for member in members for tensor in layers[member]]
        for group, members in groups.items()
    }


def greedy(
    model: nn.Module,
    states: States,
    images: Tensor,
    labels: Tensor,
    *,
    layers: Layers | None = None,
    epoch: int = 0,
    batch: int = 2000,
) -> pd.DataFrame:
    """For each size, the group that the greedy search finds to be the most robust.

    From the empty group, it adds the layer whose reset to `epoch`, together with those before,
    costs the least test error; the earlier layer if two cost the same. A row a size, columns
    `size`, `added`, `group` (a tuple in the network's order) and `error`. The error is that of
    the images that chose the group, hence too good: evaluate the groups on other images.

    Other arguments and errors as in `evaluate.matrix`; ValueError if `epoch` is not in `states`.
    """
    if epoch not in states:
        raise ValueError(f"no state of epoch {epoch}; there are {sorted(states)}.")
    layers = networks.layers(model) if layers is None else layers
    used = {t: states[t] for t in {epoch, max(states)}}
    chosen: list[str] = []
    rows = []
    while len(chosen) < len(layers):
        candidates = {layer: [*chosen, layer] for layer in layers if layer not in chosen}
        errors = matrix(
            model,
            used,
            images,
            labels,
            layers=union(layers, candidates),
            rerandomise=0,
            batch=batch,
        )[epoch].drop(FULL_MODEL)
        added = str(errors.idxmin())
        chosen.append(added)
        group = tuple(layer for layer in layers if layer in chosen)
        rows.append((len(chosen), added, group, float(errors[added])))
    return pd.DataFrame(rows, columns=["size", "added", "group", "error"])


def _places(layers: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Stage and number in it of each residual block; other layers are left out."""
    found = {name: re.fullmatch(r"stage(\d+)\.resblk(\d+)", name) for name in layers}
    return {name: (int(match[1]), int(match[2])) for name, match in found.items() if match}
