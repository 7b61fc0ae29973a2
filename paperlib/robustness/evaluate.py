"""The robustness matrix: test error of the final network with one layer reset (§2, Fig. 1).

Resetting layer d leaves all before it as in the final network. So each batch of images walks
through the final network once, and from each layer's input on only the rest is run, for every
checkpoint and draw. Nothing is approximated: every number comes from the same operations on the
same inputs as by loading each state and running the whole network, in batches of the same size and
of the same layout in memory, which for convolutions is channels last.
Networks that are not built of nn.Sequential have no known order, and are run whole.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor, nn

from paperlib import networks
from paperlib.choices import check_choice
from paperlib.networks.laws import check_int
from paperlib.progress import track
from paperlib.robustness.chain import Chain
from paperlib.robustness.held import Held
from paperlib.robustness.resets import Build, fresh, is_statistic, owned

RERANDOMISED = "ReRnd"  # the paper's names of the column and of the row
FULL_MODEL = "fullmodel"
BUFFERS = ("reset", "keep", "recompute")
PRECISIONS = ("float32", "bfloat16")
LEVEL = 0.95
# More at once is hardly faster, and on a CPU slower where tensors are too large to be recycled.
BATCH = 250
MEMORY = 2 * 2**30

Column = str | int
States = Mapping[int, Mapping[str, Tensor]]


@dataclass(frozen=True)
class Outcomes:
    """Which images each reset network gets wrong.

    wrong: (layer, column) to booleans `(draws, images)`; layers include `fullmodel`, columns are
    `ReRnd` and the epochs, and only `ReRnd` has several draws.
    """

    layers: tuple[str, ...]
    columns: tuple[Column, ...]
    wrong: Mapping[tuple[str, Column], np.ndarray]

    @property
    def final(self) -> np.ndarray:
        """Which images the final network gets wrong: booleans `(images,)`."""
        return self.wrong[FULL_MODEL, self.columns[-1]][0]


def matrix(
    model: nn.Module,
    states: States,
    images: Tensor,
    labels: Tensor,
    *,
    layers: Mapping[str, Sequence[str]] | None = None,
    build: Build | None = None,
    rerandomise: int = 5,
    seed: int = 0,
    batch: int = BATCH,
    memory: int = MEMORY,
    precision: str = "float32",
    buffers: str = "reset",
    calibration: Tensor | None = None,
) -> pd.DataFrame:
    """Test error of the final network with one layer reset; arguments and errors of `outcomes`.

    Rows are the layers and `fullmodel`, columns `ReRnd` (mean over draws) and the epochs.
    `attrs["draws"]` has the error of each draw by row, `attrs["sd"]` their sample s.d.
    """
    return errors(
        outcomes(
            model,
            states,
            images,
            labels,
            layers=layers,
            build=build,
            rerandomise=rerandomise,
            seed=seed,
            batch=batch,
            memory=memory,
            precision=precision,
            buffers=buffers,
            calibration=calibration,
        )
    )


@torch.inference_mode(False)  # a caller's inference mode would hide writes in place
def outcomes(
    model: nn.Module,
    states: States,
    images: Tensor,
    labels: Tensor,
    *,
    layers: Mapping[str, Sequence[str]] | None = None,
    build: Build | None = None,
    rerandomise: int = 5,
    seed: int = 0,
    batch: int = BATCH,
    memory: int = MEMORY,
    precision: str = "float32",
    buffers: str = "reset",
    calibration: Tensor | None = None,
) -> Outcomes:
    """Evaluate every cell of the robustness matrix, image by image.

    An output with a NaN counts as wrong. Model, states and images are left as they are.

    Args:
        model: gives architecture, device and dtype; run in eval mode, on a copy. Its own
            parameters play no part.
        states: epoch to state dict; the largest epoch is the final network.
        images: `(N, …)`, floating, in [0, 1] if the model normalises them itself.
        labels: class numbers `(N,)`.
        layers: name to the tensors that are reset together, by default `networks.layers(model)`.
            They may overlap, and need not cover the network.
        build: makes the network anew from a seed, see `resets.fresh`; for `ReRnd`.
        rerandomise: draws of the `ReRnd` column; 0 leaves the column out.
        seed: of the draws.
        batch: images at a time, at most. Results do not change with it, but for the last digits of
            the network's outputs; those of calibration do, which takes so many at a time.
        memory: bytes that the images under way may hold on the device; `batch` is lowered to that.
            States and calibration come on top.
        precision: "float32" leaves the network in its own precision. "bfloat16" is autocast: on
            hardware that has it, convolutional networks are about 3 times as fast, and some images
            near a boundary of classes change sides.
        buffers: BatchNorm's running statistics in a reset layer are "reset" with it, or "keep"
            the final network's values; with "recompute" those of the whole network, the final one
            included, are averaged anew over `calibration` after each reset.
        calibration: training images, for "recompute" only.

    Raises:
        ValueError: states, layers, images or labels that do not fit; the error says which.
    """
    check_int("batch", batch, 1)
    check_int("memory", memory, 1)
    check_int("rerandomise", rerandomise, 0)
    check_choice("precision", precision, PRECISIONS)
    check_choice("choice for buffers", buffers, BUFFERS)
    if (calibration is not None) != (buffers == "recompute"):
        raise ValueError('give calibration images with buffers="recompute", and only with it.')
    _check_images(images, labels, calibration)
    network = Chain(model)
    network.lay_out(images[:1])
    epochs = _epochs(states)
    checkpoints = {t: network.fitted(states[t], f"the state of epoch {t}") for t in epochs}
    draws = _draws(network, build, rerandomise, seed)
    layers = networks.layers(network.root) if layers is None else layers
    if not layers or FULL_MODEL in layers:
        raise ValueError(f"layers: give at least one, and none named {FULL_MODEL!r}.")
    groups = {layer: owned(names, network.slots) for layer, names in layers.items()}
    groups[FULL_MODEL] = list(network.slots)

    final = checkpoints[epochs[-1]]
    base = final
    if calibration is not None:
        base = {**final, **network.statistics(final, calibration, batch)}

    sources: list[tuple[Column, dict[str, Tensor]]] = [(RERANDOMISED, d) for d in draws]
    sources += list(checkpoints.items())
    cells: list[_Cell] = []
    for layer, names in groups.items():
        for column, source in sources:
            # The whole model at a checkpoint is that checkpoint, statistics and all.
            kept = buffers == "keep" and layer != FULL_MODEL
            reset = {n: source[n] for n in names if not (kept and is_statistic(n))}
            if all(torch.equal(tensor, final[n]) for n, tensor in reset.items()):
                cells.append(_Cell(layer, column, None, {}))
                continue
            start = min(network.position[n] for n in reset)
            if calibration is not None:
                reset |= network.statistics({**final, **reset}, calibration, batch)
            cells.append(_Cell(layer, column, start, reset))
    walk = _Walk(network, base, cells, int(labels.max()), precision)
    batch = min(batch, _images_within(memory, walk, images, labels))
    wrong = walk.wrong(images, labels, batch).cpu().numpy()

    by_cell: dict[tuple[str, Column], list[np.ndarray]] = {}
    for cell, row in zip(cells, wrong, strict=True):
        by_cell.setdefault((cell.layer, cell.column), []).append(row)
    columns = ([RERANDOMISED] if draws else []) + epochs
    return Outcomes(
        tuple(groups), tuple(columns), {key: np.stack(rows) for key, rows in by_cell.items()}
    )


def errors(result: Outcomes) -> pd.DataFrame:
    """Test error by layer (rows) and column, as in `matrix`."""
    table = pd.DataFrame(
        {c: [float(result.wrong[row, c].mean()) for row in result.layers] for c in result.columns},
        index=pd.Index(result.layers, name="layer"),
    )
    if RERANDOMISED in result.columns:
        draws = {row: result.wrong[row, RERANDOMISED].mean(axis=1) for row in result.layers}
        # Plain floats: pandas compares attrs when it joins frames.
        table.attrs["draws"] = {row: errors.tolist() for row, errors in draws.items()}
        table.attrs["sd"] = {row: _sd(errors) for row, errors in draws.items()}
    return table


def damage(result: Outcomes) -> pd.DataFrame:
    """Damage of each reset: test error minus the final network's on the same images, in points.

    Columns `layer`, `column`, `damage`, `low`, `high`. The 95 % interval of a checkpoint is that
    of a paired difference of proportions over images, by Wald with half an image added to each
    of the four outcomes (Agresti and Min, 2005), so that no change is not certainty. That of
    `ReRnd` is a t interval over draws, NaN for one draw. Neither covers the spread over seeds.
    """
    rows = []
    for layer in result.layers:
        for column in result.columns:
            wrong = result.wrong[layer, column]  # (draws, images)
            change = wrong.mean(axis=1) - result.final.mean()  # (draws,)
            if column == RERANDOMISED:
                low, high = _t_interval(change)
            else:
                low, high = _paired_interval(wrong[0], result.final)
            points = 100 * np.array([change.mean(), low, high])
            rows.append((layer, column, *points.tolist()))
    return pd.DataFrame(rows, columns=["layer", "column", "damage", "low", "high"])


@dataclass(frozen=True)
class _Cell:
    """One network: from element `start` of the chain on, `reset` replaces the final tensors.

    `start` is None for the final network itself.
    """

    layer: str
    column: Column
    start: int | None
    reset: dict[str, Tensor]


@dataclass(frozen=True)
class _Walk:
    """Takes images through the final network, and from each layer on through its cells' networks.

    `base` is the state of the final network, `highest` the largest label of all images.
    """

    network: Chain
    base: Mapping[str, Tensor]
    cells: Sequence[_Cell]
    highest: int
    precision: str

    def wrong(self, images: Tensor, labels: Tensor, batch: int) -> Tensor:
        """Whether each cell's network is wrong on each image: booleans `(cells, images)`."""
        wrong = torch.empty(
            len(self.cells), len(images), dtype=torch.bool, device=self.network.device
        )
        for low in track(range(0, len(images), batch), "batches of test images"):
            part = slice(low, low + batch)
            self.mark(wrong[:, part], images[part], labels[part])
        return wrong

    @torch.no_grad()  # not in inference mode, in which writes in place would leave no trace
    def mark(self, wrong: Tensor, images: Tensor, labels: Tensor) -> None:
        """Fill in `wrong` for one batch."""
        network = self.network
        answers, inputs = labels.to(network.device), network.placed(images)
        with network.holding(self.base), self._autocast():
            for i, element in enumerate(network.elements):
                here = [row for row, cell in enumerate(self.cells) if cell.start == i]
                for row, own in zip(here, _unspoilt(inputs, len(here)), strict=True):
                    with network.holding(self.cells[row].reset):
                        wrong[row] = _wrong(network.rest(own, i), answers, self.highest)
                inputs = element(inputs)
            unchanged = [row for row, cell in enumerate(self.cells) if cell.start is None]
            wrong[unchanged] = _wrong(inputs, answers, self.highest)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        # It would not notice that tensors are exchanged, so it must not keep its copies of them.
        return torch.autocast(self.network.device.type, torch.bfloat16, cache_enabled=False)


def _images_within(memory: int, walk: _Walk, images: Tensor, labels: Tensor) -> int:
    """How many images at a time hold no more than `memory` bytes, as measured on one and on two.

    ValueError if not even one does.
    """
    by_start: dict[int | None, list[_Cell]] = {}
    for cell in walk.cells:
        by_start.setdefault(cell.start, []).append(cell)
    # From a second one on, all that start at the same element hold as much.
    cells = [cell for same in by_start.values() for cell in same[:2]]
    walk = replace(walk, cells=cells)
    states = [walk.base, *(cell.reset for cell in cells)]
    known = [tensor for state in states for tensor in state.values()]
    most = []
    for count in (1, 2):
        same = images[:1].expand(count, *images.shape[1:]), labels[:1].expand(count)
        wrong = torch.empty(len(cells), count, dtype=torch.bool, device=walk.network.device)
        with Held([*known, *same, wrong]) as held:
            walk.mark(wrong, *same)
        most.append(held.most)
    each = most[1] - most[0]
    if most[0] > memory:
        raise ValueError(
            f"memory is {memory:,} bytes, but a single image takes {most[0]:,} on its way through "
            "the network: give at least that many."
        )
    return 1 + (memory - most[0]) // each


def _unspoilt(inputs: Tensor, times: int) -> Iterator[Tensor]:
    """Yield `inputs` so many times, or copies if the first user turns out to write in place."""
    if not times:
        return
    probe = inputs.clone()
    version = probe._version
    yield probe
    writes = probe._version != version
    for _ in range(times - 1):
        yield inputs.clone() if writes else inputs


def _wrong(outputs: Tensor, labels: Tensor, highest: int) -> Tensor:
    """Whether the largest of `outputs` `(images, classes)` is not the label; booleans."""
    if outputs.ndim != 2 or len(outputs) != len(labels) or outputs.shape[1] <= highest:
        raise ValueError(
            f"the model's output is {tuple(outputs.shape)} for {len(labels)} images with labels "
            f"up to {highest}: one score an image and class, (images, classes), is needed."
        )
    return (outputs.argmax(1) != labels) | outputs.isnan().any(1)


def _draws(network: Chain, build: Build | None, number: int, seed: int) -> list[dict[str, Tensor]]:
    """The re-randomised networks; ValueError if they cannot be built, or are all the same."""
    if not number:
        return []
    if build is None:
        raise ValueError(
            "re-randomisation builds the network anew: give build=, a function of a seed that "
            "makes the network, or rerandomise=0."
        )
    drawn = [
        network.fitted(fresh(build, seed, i), "a network made by build") for i in range(number)
    ]
    if number > 1 and all(torch.equal(t, drawn[1][name]) for name, t in drawn[0].items()):
        raise ValueError(
            "build makes the same network from every seed: let it draw from its argument or from "
            "PyTorch's global generator."
        )
    return drawn


def _epochs(states: States) -> list[int]:
    if not states:
        raise ValueError("states are empty: give at least the final one, {epoch: state dict}.")
    return sorted(check_int("every epoch", epoch, 0) for epoch in states)


def _check_images(images: Tensor, labels: Tensor, calibration: Tensor | None) -> None:
    for name, given in (("images", images), ("calibration", calibration)):
        if given is not None and (given.dtype == torch.uint8 or not len(given)):
            raise ValueError(
                f"{name} are {tuple(given.shape)} of {given.dtype}: at least one is needed, as "
                "floating numbers (in [0, 1], if the model normalises them)."
            )
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.min() < 0:
        raise ValueError(
            f"labels are {tuple(labels.shape)} of {labels.dtype} for images "
            f"{tuple(images.shape)}: one class number an image, from 0, is needed."
        )


def _paired_interval(wrong: np.ndarray, before: np.ndarray) -> tuple[float, float]:
    """95 % interval of mean(wrong) − mean(before), booleans `(images,)`, see `damage`."""
    n = wrong.size + 2
    worse, better = np.sum(wrong & ~before) + 0.5, np.sum(before & ~wrong) + 0.5
    centre = (worse - better) / n
    half = stats.norm.ppf((1 + LEVEL) / 2) * math.sqrt((worse + better) / n - centre**2)
    half /= math.sqrt(n)
    return max(centre - half, -1.0), min(centre + half, 1.0)


def _t_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean over draws `(draws,)`; NaN for one draw."""
    if values.size < 2:
        return math.nan, math.nan
    half = stats.t.ppf((1 + LEVEL) / 2, values.size - 1) * _sd(values) / math.sqrt(values.size)
    return values.mean() - half, values.mean() + half


def _sd(values: Sequence[float] | np.ndarray) -> float:
    """Sample standard deviation; NaN for one value."""
    values = np.asarray(values)
    return float(values.std(ddof=1)) if values.size > 1 else math.nan
