import copy
import math
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from paperlib import networks
from paperlib.robustness import evaluate
from paperlib.robustness.evaluate import damage, errors, matrix, outcomes
from paperlib.robustness.resets import fresh, reinitialise


class Witness(nn.Module):
    """Hands its input on, and remembers the bytes of a batch; copies remember in the same place."""

    seen: ClassVar[list[bytes]] = []

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 2:  # not what memory is measured on
            self.seen.append(x.numpy().tobytes())
        return x


class Residual(nn.Module):
    """A pre-activation block that writes in place to its own input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x.tanh_()  # odd, so that no class wins on every image
        return x + self.linear(self.norm(x))


class Opaque(nn.Module):
    """A network whose order of modules cannot be known."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 3)
        self.first = nn.Linear(6, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dropout(self.first(x).relu()))


def fully_connected(seed: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )


def convolutional(seed: int) -> nn.Module:
    relu = nn.ReLU(inplace=True)  # one module at several places
    features = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), relu, nn.Conv2d(3, 3, 3, padding=1), relu
    )
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), features, nn.Dropout(0.5), nn.Flatten(), nn.Linear(18, 3)
    )


def residual(seed: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), Residual(8), Residual(8), nn.Tanh(), nn.Linear(8, 3))


def writing_first(seed: int) -> nn.Module:
    """A network that writes in place to the very images that it is given."""
    return nn.Sequential(nn.Hardtanh(-0.5, 0.5, inplace=True), nn.Linear(6, 3))


def tied(seed: int) -> nn.Module:
    """The first and the third layer are one."""
    shared = nn.Linear(6, 6)
    return nn.Sequential(shared, nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), shared, nn.Linear(6, 3))


def hooked(seed: int) -> nn.Module:
    """A part has a hook, which would be lost if the part were taken apart."""
    part = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    part.register_forward_hook(lambda module, inputs, output: output.flip(1))
    return nn.Sequential(part, nn.Linear(8, 3))


def opaque(seed: int) -> nn.Module:
    return Opaque()


NETWORKS = [fully_connected, convolutional, residual, tied, hooked, opaque]
GROUPINGS = {
    residual: {"stem": ["0"], "block1": ["1"], "block2": ["2"], "final": ["4"]},
    tied: {"shared": ["0", "4"], "middle": ["2"], "final": ["5"]},
}


@dataclass
class Case:
    """A network in double precision with states of epochs 0, 1, 4, random but for their names."""

    build: Callable[[int], nn.Module]
    model: nn.Module
    states: dict[int, dict[str, Tensor]]
    layers: dict[str, list[str]]
    images: Tensor
    labels: Tensor

    @property
    def arguments(self) -> tuple:
        return self.model, self.states, self.images, self.labels

    @classmethod
    def of(cls, make: Callable[[int], nn.Module], images: int = 150) -> "Case":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make(0).double()
            states = {epoch: perturbed(make(0).double()) for epoch in (0, 1, 4)}
            data = torch.randn(images, 6, dtype=torch.float64)
            labels = torch.randint(3, (images,))
        layers = networks.layers(model, GROUPINGS.get(make))
        return cls(lambda seed: make(seed).double(), model, states, layers, data, labels)


def perturbed(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, moved so far that every class gets images and every reset matters."""
    state = {name: t.clone() for name, t in model.state_dict().items()}
    for name, tensor in state.items():
        if name.endswith("running_var"):
            tensor.mul_(0.2 + torch.rand_like(tensor))
        elif tensor.is_floating_point():
            tensor.mul_(1.5).add_(0.3 * torch.randn_like(tensor))
    return state


def plain_wrong(
    case: Case,
    state: dict[str, Tensor],
    batch: int,
    layout: torch.memory_format = torch.contiguous_format,
) -> np.ndarray:
    """Whether each image is wrong, by a deep copy, load_state_dict and the whole network."""
    net = copy.deepcopy(case.model).eval().to(memory_format=layout)
    net.load_state_dict(state)
    with torch.no_grad():
        outputs = torch.cat([net(part.clone()) for part in case.images.split(batch)])
    return (outputs.argmax(1) != case.labels).numpy()


def plain_cells(
    case: Case, draws: int, seed: int, buffers: str
) -> Iterator[tuple[str, str | int, dict[str, Tensor]]]:
    """Layer, column and state of every network of the matrix."""
    final = case.states[4]
    sources: list[tuple[str | int, dict[str, Tensor]]] = [
        ("ReRnd", fresh(case.build, seed, i)) for i in range(draws)
    ]
    sources += case.states.items()
    for column, source in sources:
        for layer, names in case.layers.items():
            yield layer, column, reinitialise(final, source, names, buffers=buffers)
        yield "fullmodel", column, source


def plain_outcomes(
    case: Case, draws: int = 2, seed: int = 7, buffers: str = "reset", **options: object
) -> dict[tuple[str, str | int], np.ndarray]:
    cells: dict[tuple[str, str | int], list[np.ndarray]] = {}
    for layer, column, state in plain_cells(case, draws, seed, buffers):
        cells.setdefault((layer, column), []).append(plain_wrong(case, state, 40, **options))
    return {cell: np.stack(rows) for cell, rows in cells.items()}  # (draws, images)


def ours(case: Case, function: Callable = matrix, **options):
    given = dict(layers=case.layers, build=case.build, rerandomise=2, seed=7, batch=40) | options
    return function(*case.arguments, **given)


def assert_brute_force(case: Case, buffers: str = "reset") -> None:
    wanted = plain_outcomes(case, buffers=buffers)
    found, table = ours(case, outcomes, buffers=buffers), ours(case, buffers=buffers)
    assert list(table.index) == [*case.layers, "fullmodel"]
    assert list(table.columns) == ["ReRnd", 0, 1, 4]
    for (layer, column), wrong in wanted.items():
        assert np.array_equal(found.wrong[layer, column], wrong), (layer, column)
        assert table.loc[layer, column] == wrong.sum() / wrong.size, (layer, column)


@pytest.mark.parametrize("make", NETWORKS)
def test_cells_of_the_test_networks_differ_so_that_a_mistaken_cell_shows(make):
    wanted = plain_outcomes(Case.of(make))
    cells = [wrong.tobytes() for (_, column), wrong in wanted.items() if column != 4]
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("buffers", ["reset", "keep"])
def test_every_cell_equals_brute_force(make, buffers):
    assert_brute_force(Case.of(make), buffers)


@pytest.mark.parametrize("make", [fully_connected, convolutional, residual, tied])
def test_outputs_equal_those_of_brute_force_to_the_last_digit(make):
    case = Case.of(make)
    case.model = nn.Sequential(case.model, Witness())
    case.build = lambda seed: nn.Sequential(make(seed).double(), Witness())
    case.states = {t: {f"0.{n}": v for n, v in s.items()} for t, s in case.states.items()}
    case.layers = {layer: [f"0.{n}" for n in names] for layer, names in case.layers.items()}
    Witness.seen.clear()
    ours(case)
    found = set(Witness.seen)
    Witness.seen.clear()
    plain_outcomes(case, layout=torch.channels_last)
    assert found == set(Witness.seen)
    assert len(found) > 3 * len(case.layers)


def test_a_layer_is_run_only_from_its_own_input_on():
    case = Case.of(fully_connected)
    calls = 0

    def count(_module: nn.Module, _inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal calls
        calls += len(output) == 150

    # Deep copies share the hook, since functions are not copied.
    case.model[1].register_forward_hook(count)
    ours(case, batch=150)
    # Once for the final network; layer1 and fullmodel by 2 draws and 2 checkpoints.
    assert calls == 1 + 2 * 4


def swapped_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluate.owned
    turn = iter(["3.weight", "3.bias"] * 99)
    monkeypatch.setattr(
        evaluate,
        "owned",
        lambda names, state: [next(turn) if n.startswith("1.") else n for n in right(names, state)],
    )


def reset_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    holding = evaluate.Chain.holding
    monkeypatch.setattr(
        evaluate.Chain,
        "holding",
        lambda self, tensors: holding(self, tensors if len(tensors) > 2 else {}),
    )


def wrong_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = evaluate.Chain.fitted
    later: dict[str, dict[str, Tensor]] = {}

    def shifted(self: evaluate.Chain, state: dict[str, Tensor], what: str) -> dict[str, Tensor]:
        later[what] = fitted(self, state, what)
        return later["the state of epoch 0" if what.endswith("epoch 1") else what]

    monkeypatch.setattr(evaluate.Chain, "fitted", shifted)


def wrong_final_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "_epochs", lambda states: sorted(states, reverse=True))


def training_seed_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluate.fresh
    monkeypatch.setattr(evaluate, "fresh", lambda build, seed, draw: right(build, seed + 1, draw))


def start_one_layer_late(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = evaluate.Chain.rest
    monkeypatch.setattr(
        evaluate.Chain,
        "rest",
        lambda self, x, start: rest(self, self.elements[start](x), start + 1 + (start == 3)),
    )


@pytest.mark.parametrize(
    "mutation",
    [
        swapped_layers,
        reset_that_does_nothing,
        wrong_epoch,
        wrong_final_epoch,
        training_seed_drawn_again,
        start_one_layer_late,
    ],
)
def test_a_wrong_matrix_does_not_pass_for_brute_force(mutation, monkeypatch):
    case = Case.of(fully_connected)
    assert_brute_force(case)
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        assert_brute_force(case)


@pytest.mark.parametrize("make", [convolutional, residual, opaque, writing_first])
@pytest.mark.parametrize("buffers", ["reset", "recompute"])
def test_model_states_images_and_generator_are_left_as_they_were(make, buffers):
    case = Case.of(make)
    case.model.train()
    calibration = case.images[:32] if buffers == "recompute" else None
    before = copy.deepcopy((case.model.state_dict(), case.states, case.images, case.labels))
    generator = torch.get_rng_state()
    ours(case, buffers=buffers, calibration=calibration)
    after = (case.model.state_dict(), case.states, case.images, case.labels)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(module.training for module in case.model.modules())
    assert all(p.requires_grad and p.grad is None for p in case.model.parameters())
    assert torch.equal(generator, torch.get_rng_state())


def test_the_own_parameters_of_the_model_play_no_part():
    case = Case.of(fully_connected)
    expected = ours(case)
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.fill_(math.nan)
    pd.testing.assert_frame_equal(ours(case), expected)


def test_recomputed_statistics_are_those_of_the_calibration_images():
    case = Case.of(convolutional)
    calibration = torch.randn(50, 6, dtype=torch.float64)
    options = dict(rerandomise=0, buffers="recompute", calibration=calibration)
    found = ours(case, outcomes, **options)
    for layer, column, state in plain_cells(case, 0, 7, "reset"):
        net = copy.deepcopy(case.model).eval()
        net.load_state_dict(state)
        norm = net[1][1]
        with torch.no_grad():
            parts = [net[1][0](net[0](part)) for part in calibration.split(25)]  # two by batch 40
            norm.running_mean.copy_(sum(p.mean((0, 2, 3)) for p in parts) / 2)
            norm.running_var.copy_(sum(p.var((0, 2, 3)) for p in parts) / 2)
        wrong = plain_wrong(case, net.state_dict(), 40)
        assert np.array_equal(found.wrong[layer, column], wrong[None])


def test_the_buffers_choices_differ_where_statistics_matter():
    case = Case.of(convolutional)
    tables = [
        ours(case, rerandomise=0, buffers="reset"),
        ours(case, rerandomise=0, buffers="keep"),
        ours(case, rerandomise=0, buffers="recompute", calibration=case.images),
    ]
    assert not tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])
    # A whole checkpoint has its own statistics, whatever the choice for layers.
    assert tables[0].loc["fullmodel"].equals(tables[1].loc["fullmodel"])


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda m: m])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_wrapped_models_and_prefixed_states_give_the_same_matrix(wrap, prefix):
    case = Case.of(fully_connected)
    expected = ours(case)
    case.model = wrap(case.model)
    case.states = {t: {prefix + n: v for n, v in s.items()} for t, s in case.states.items()}
    pd.testing.assert_frame_equal(ours(case), expected)
    pd.testing.assert_frame_equal(ours(case, layers=None), expected)
    pd.testing.assert_frame_equal(ours(case, layers=networks.layers(case.model)), expected)


def test_batches_inference_mode_and_precision_of_images_do_not_change_errors():
    case = Case.of(residual)
    expected = ours(case)
    pd.testing.assert_frame_equal(ours(case, batch=1000), expected)
    with torch.inference_mode():
        pd.testing.assert_frame_equal(ours(case), expected)
    case.images = case.images.float()
    assert np.abs(ours(case) - expected).to_numpy().max() <= 1 / 150


class Viewing(nn.Module):
    """A convolution, and a view of its output that is only there channel by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.last = nn.Linear(4 * 5 * 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(x).view(-1, 4 * 5 * 5))


class Layouts(nn.Module):
    """Hands a batch of images on, and remembers whether their channels come last."""

    seen: ClassVar[set[bool]] = set()

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 2:
            self.seen.add(x.is_contiguous(memory_format=torch.channels_last))
        return x


def pictures(*modules: nn.Module) -> tuple[nn.Module, dict[int, dict[str, Tensor]], Tensor, Tensor]:
    """A float32 network on images 2×5×5, with states of two epochs, images and labels."""
    torch.manual_seed(1)
    model = nn.Sequential(*modules)
    states = {epoch: perturbed(model) for epoch in (0, 1)}
    return model, states, torch.rand(60, 2, 5, 5), torch.randint(3, (60,))


@pytest.fixture
def convolutions():
    return pictures(
        nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), Layouts(), nn.Flatten(), nn.Linear(200, 3)
    )


def test_convolutions_run_channels_last(convolutions):
    Layouts.seen.clear()
    found = matrix(*convolutions, rerandomise=0)
    assert Layouts.seen == {True}
    model, states, images, labels = convolutions
    model.load_state_dict(states[0])
    assert found.loc["fullmodel", 0] == pytest.approx(
        (model(images).argmax(1) != labels).double().mean().item(), abs=1 / 60
    )


def test_a_network_that_needs_its_channels_first_has_them():
    model, states, images, labels = pictures(Viewing())
    with pytest.raises(RuntimeError, match="view"):
        copy.deepcopy(model).to(memory_format=torch.channels_last)(images)
    found = matrix(model, states, images, labels, rerandomise=0)
    model.load_state_dict(states[0])
    assert found.loc["fullmodel", 0] == (model(images).argmax(1) != labels).double().mean().item()


def test_bfloat16_is_autocast_of_every_cell(convolutions):
    model, states, images, labels = convolutions
    found = outcomes(*convolutions, rerandomise=0, precision="bfloat16")
    for layer, names in networks.layers(model).items():
        model.load_state_dict(reinitialise(states[1], states[0], names))
        model.to(memory_format=torch.channels_last)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            wrong = model(images).argmax(1) != labels
        assert np.array_equal(found.wrong[layer, 0][0], wrong.numpy())
    assert found.final.mean() == pytest.approx(
        outcomes(*convolutions, rerandomise=0).final.mean(), abs=0.1
    )


class Alive(TorchDispatchMode):
    """The most bytes at once of tensors made inside, by a census after each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[Tensor]] = []
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and not func.is_view:
            self.made.append(weakref.ref(made))
        alive = [t.untyped_storage() for t in (ref() for ref in self.made) if t is not None]
        self.most = max(self.most, sum({s.data_ptr(): s.nbytes() for s in alive}.values()))
        return made


@pytest.mark.parametrize("cap", [30_000, 90_000])
def test_what_is_held_at_once_obeys_the_cap(convolutions, cap, monkeypatch):
    expected = outcomes(*convolutions, rerandomise=0)
    mark = evaluate._Walk.mark
    most = []

    def watched(self: evaluate._Walk, wrong: Tensor, images: Tensor, labels: Tensor) -> None:
        with Alive() as alive:
            mark(self, wrong, images, labels)
        most.append(alive.most)

    monkeypatch.setattr(evaluate._Walk, "mark", watched)
    found = outcomes(*convolutions, rerandomise=0, memory=cap)
    assert 0.8 * cap < max(most) <= cap
    for cell, wrong in expected.wrong.items():
        assert np.array_equal(found.wrong[cell], wrong)


def test_a_cap_too_small_for_one_image_is_refused_with_what_is_needed(convolutions):
    with pytest.raises(ValueError, match="a single image takes") as error:
        outcomes(*convolutions, rerandomise=0, memory=1000)
    needed = int(re.search(r"takes ([\d,]+)", str(error.value))[1].replace(",", ""))
    outcomes(*convolutions, rerandomise=0, memory=needed)


def test_draws_and_their_spread_are_in_attrs():
    case = Case.of(fully_connected)
    found = ours(case, rerandomise=4)
    for row in found.index:
        draws = found.attrs["draws"][row]
        assert len(set(draws)) > 1
        assert found.loc[row, "ReRnd"] == pytest.approx(np.mean(draws))
        assert found.attrs["sd"][row] == pytest.approx(np.std(draws, ddof=1))
    # Joining frames compares attrs; plain numbers survive it.
    assert pd.concat([found, found]).attrs == found.attrs


def test_a_seed_fixes_the_draws():
    case = Case.of(fully_connected)
    first = ours(case).attrs["draws"]
    assert ours(case).attrs["draws"] == first
    assert ours(case, seed=8).attrs["draws"] != first


def test_an_output_of_nan_is_wrong():
    case = Case.of(fully_connected)
    case.states[0]["5.bias"][:] = math.nan
    case.labels[:] = 0  # argmax of a row of NaN is 0
    assert ours(case).loc["layer3", 0] == 1.0


def test_damage_is_the_paired_difference_in_points():
    case = Case.of(fully_connected)
    result = outcomes(*case.arguments, build=case.build, rerandomise=3)
    table, found = errors(result), damage(result).set_index(["layer", "column"])
    for row in table.index:
        for column in table.columns:
            expected = 100 * (table.loc[row, column] - table.loc["fullmodel", 4])
            cell = found.loc[(row, column)]
            assert cell.damage == pytest.approx(expected, abs=1e-12)
            assert cell.low < cell.damage < cell.high
    draws = 100 * (np.array(table.attrs["draws"]["layer1"]) - table.loc["fullmodel", 4])
    interval = stats.t.interval(0.95, 2, draws.mean(), stats.sem(draws))
    assert found.loc[("layer1", "ReRnd"), ["low", "high"]].tolist() == pytest.approx(interval)


def test_no_change_on_the_images_is_not_certainty():
    wrong = np.zeros(100, dtype=bool)
    result = evaluate.Outcomes(
        ("layer1", "fullmodel"),
        (0, 1),
        {(row, t): wrong[None] for row in ("layer1", "fullmodel") for t in (0, 1)},
    )
    row = damage(result).iloc[0]
    # Wald with 0.5 added to each of four outcomes: ± 1.96 √(1/102)/√102.
    assert (row.damage, row.high) == (0, pytest.approx(100 * 1.959964 / 102, rel=1e-6))
    assert row.low == -row.high


def test_damage_intervals_cover():
    rng = np.random.default_rng(0)
    before, worse, better, n = 0.1, 0.03, 0.01, 400
    covered = 0
    for _ in range(1000):
        wrong = rng.random(n) < before
        chance = rng.random(n)
        # Of right images worse/(1-before) turn wrong, of wrong ones better/before turn right.
        after = np.where(wrong, chance >= better / before, chance < worse / (1 - before))
        low, high = evaluate._paired_interval(after, wrong)
        covered += low <= worse - better <= high
    assert 0.93 <= covered / 1000 <= 0.98


def test_missing_build_and_builds_that_ignore_the_seed_are_refused():
    case = Case.of(fully_connected)
    with pytest.raises(ValueError, match="give build="):
        ours(case, build=None)
    assert list(ours(case, build=None, rerandomise=0).columns) == [0, 1, 4]
    fixed = copy.deepcopy(case.model)
    with pytest.raises(ValueError, match="same network from every seed"):
        ours(case, build=lambda seed: fixed)
    with pytest.raises(ValueError, match="made by build does not fit"):
        ours(case, build=opaque)


def test_states_that_do_not_fit_are_named_with_their_epoch():
    case = Case.of(fully_connected)
    del case.states[1]["5.bias"]
    with pytest.raises(ValueError, match=r"epoch 1 does not fit.*missing: 5\.bias"):
        ours(case)
    with pytest.raises(ValueError, match="states are empty"):
        matrix(case.model, {}, case.images, case.labels, rerandomise=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(images=torch.zeros(150, 6, dtype=torch.uint8)), "uint8.*floating"),
        (dict(images=torch.zeros(0, 6), labels=torch.zeros(0, dtype=torch.long)), "at least one"),
        (dict(labels=torch.zeros(149, dtype=torch.long)), r"\(149,\).*one class number an image"),
        (dict(labels=torch.full((150,), -1)), "from 0"),
        (dict(labels=torch.full((150,), 3)), r"labels up to 3"),
        (dict(model=nn.Sequential(nn.ReLU())), "no parameters"),
    ],
)
def test_images_labels_and_models_that_do_not_fit_are_refused(change, message):
    case = Case.of(fully_connected)
    for name, value in change.items():
        setattr(case, name, value)
    with pytest.raises(ValueError, match=message):
        ours(case)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(layers={}), "at least one"),
        (dict(layers={"fullmodel": ["1.weight"]}), "none named 'fullmodel'"),
        (dict(layers={"a": ["7.weight"]}), r"no tensor is named 7\.weight"),
        (dict(batch=0), "batch"),
        (dict(memory=0), "memory"),
        (dict(precision="bf16"), "precision 'bf16'"),
        (dict(rerandomise=-1), "rerandomise"),
        (dict(buffers="kept"), "did you mean 'keep'"),
        (dict(buffers="recompute"), "give calibration"),
        (dict(calibration=torch.rand(3, 6)), "only with it"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ours(Case.of(fully_connected), **options)
