"""How far a layer moved from its initialisation, ‖θ_d^τ − θ_d^0‖ (§3.1, App. D).

The paper shows an ∞-norm and a "normalized" 2-norm without defining the latter. Its ∞-norm is
un-normalised: re-randomised layers lie as far away as two draws of its initialiser do. For the
2-norm we give two candidates. For Fig. 1(b), 1/√p_d ("l2_rms", p_d the number of parameters) gives
neither the sizes nor the order of the layers of the ReRnd column; 1/√fan-in ("l2_fan_in") gives
all four layers up to one common factor of about 0.54, which is unexplained.

Only parameters count: BatchNorm's running statistics are left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats
from torch import Tensor

from paperlib.choices import check_choice
from paperlib.networks.laws import check_int
from paperlib.robustness.evaluate import RERANDOMISED, States
from paperlib.robustness.resets import Build, canonical, check_same, fresh, is_statistic, owned

Change = Mapping[str, Tensor]


def table(
    states: States,
    layers: Mapping[str, Sequence[str]],
    kind: str,
    *,
    build: Build | None = None,
    rerandomise: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Distance of each layer from checkpoint 0: rows layers, columns `ReRnd` and the epochs.

    Args:
        states: epoch to state dict; epoch 0 must be there.
        layers: name to tensors, e.g. `networks.layers(model)`.
        kind: a key of KINDS: "linf", "l2_rms", "l2_fan_in" or "relative".
        build, rerandomise, seed: as in `evaluate.matrix`, hence the same draws. Without `build`
            there is no `ReRnd`, which holds the mean over draws.

    Raises:
        ValueError: no epoch 0, an unknown kind, states or layers that do not fit.
    """
    if 0 not in states:
        raise ValueError(f"distances start from epoch 0; the states are of {sorted(states)}.")
    columns: dict[str | int, list[Mapping[str, Tensor]]] = {}
    if build is not None and check_int("rerandomise", rerandomise, 0):
        columns[RERANDOMISED] = [fresh(build, seed, draw) for draw in range(rerandomise)]
    columns |= {epoch: [states[epoch]] for epoch in sorted(states)}
    return pd.DataFrame(
        {
            column: [
                float(np.mean([distance(state, states[0], names, kind) for state in sources]))
                for names in layers.values()
            ]
            for column, sources in columns.items()
        },
        index=pd.Index(layers, name="layer"),
    )


def distance(
    state: Mapping[str, Tensor], origin: Mapping[str, Tensor], names: Sequence[str], kind: str
) -> float:
    """One layer's distance between two states of a network, in float64; see KINDS.

    Raises ValueError for an unknown kind, states or names that do not fit, or a layer without
    parameters.
    """
    measure = KINDS[check_choice("distance", kind, KINDS)]
    state, origin = canonical(state), canonical(origin)
    check_same(state, origin, "the state to measure")
    kept = [name for name in owned(names, origin) if not is_statistic(name)]
    if not kept:
        raise ValueError(f"{', '.join(names)}: running statistics only, no parameters to measure.")
    start = {name: origin[name].detach().cpu().double() for name in kept}
    change = {name: state[name].detach().cpu().double() - start[name] for name in kept}
    return measure(change, start)


def rank_correlation(damage: pd.Series, moved: pd.Series) -> float:
    """Spearman's ρ of damage with distance over the layers of one network (App. D).

    Both are indexed by layer. NaN if one of them is the same for all layers. Raises ValueError
    for different layers, or fewer than three.
    """
    if set(damage.index) != set(moved.index) or len(damage) != len(moved):
        raise ValueError(f"damage is of {list(damage.index)}, distance of {list(moved.index)}.")
    if len(damage) < 3:
        raise ValueError(f"a rank correlation needs three layers or more; got {len(damage)}.")
    moved = moved.reindex(damage.index)
    if damage.nunique() == 1 or moved.nunique() == 1:
        return math.nan
    return float(stats.spearmanr(damage, moved).statistic)


def _linf(change: Change, start: Change) -> float:
    """max_i |Δ_i|, un-normalised."""
    return max(float(delta.abs().max()) for delta in change.values())


def _l2_rms(change: Change, start: Change) -> float:
    """‖Δ‖_2/√p_d: the root mean square over the layer's p_d parameters."""
    return _norm(change) / math.sqrt(sum(delta.numel() for delta in change.values()))


def _l2_fan_in(change: Change, start: Change) -> float:
    """√Σ ‖Δ_k‖²/fan-in_k over the layer's tensors k.

    With a variance of weights in proportion to 1/fan-in, a layer's size then depends on its
    output width and on its initialiser only through fan-in. A bias has its weight's fan-in; a
    tensor with no weight beside it (BatchNorm's) has 1.
    """
    return math.sqrt(
        sum(float(delta.square().sum()) / _fan_in(name, change) for name, delta in change.items())
    )


def _relative(change: Change, start: Change) -> float:
    """‖Δ‖_2/‖θ_d^0‖_2: a layer that hardly moved is robust for no interesting reason."""
    size = _norm(start)
    return _norm(change) / size if size else math.nan


KINDS: dict[str, Callable[[Change, Change], float]] = {
    "linf": _linf,
    "l2_rms": _l2_rms,
    "l2_fan_in": _l2_fan_in,
    "relative": _relative,
}


def _norm(tensors: Change) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors.values()))


def _fan_in(name: str, tensors: Change) -> int:
    """Inputs of one output, for the weight `name` or the weight beside it; 1 if there is none."""
    shape = tensors[name].shape
    if len(shape) < 2:
        beside = tensors.get(f"{name.rpartition('.')[0]}.weight".lstrip("."))
        shape = beside.shape if beside is not None else shape
    return math.prod(shape[1:]) if len(shape) > 1 else 1
