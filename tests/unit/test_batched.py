import itertools

import pytest
import torch

from paperlib.length import batched, ensemble, exact
from paperlib.length.blocks import Layer
from paperlib.networks.fcn import assemble

WIDTHS = [3, 8, 5, 9, 2]


def batch(nets=7, vertices=3, dtype=torch.float64, device="cpu", rectify_output=False):
    """Random layers, points and positions, as `batched.measure` takes them."""
    rng = torch.Generator().manual_seed(0)
    points = torch.randn(nets, vertices, WIDTHS[0], generator=rng)
    layers = []
    for a, b in itertools.pairwise(WIDTHS):
        weight = torch.randn(nets, b, a, generator=rng) / a**0.5
        bias = 0.3 * torch.randn(nets, b, generator=rng)
        gated = len(layers) < len(WIDTHS) - 2 or rectify_output
        layers.append(Layer(weight.to(device, dtype), bias.to(device, dtype), gated))
    positions = exact.arc_length(points.double())
    return layers, points.to(device, dtype), positions.to(device)


def expected(layers, points, slope):
    rows = []
    for net in range(len(points)):
        model = assemble(
            [layer.weight[net] for layer in layers],
            [layer.bias[net] for layer in layers],
            rectify_output=layers[-1].gated,
            slope=slope,
            dtype=torch.float64,
        )
        image = exact.trace(model, points[net])
        energy = (exact.polygon_steps(image.outputs) ** 2 / image.positions.diff()).sum()
        first = image.outputs[:, 0]
        rows.append([image.length, energy, image.pieces, first.max() - first.min()])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("rectify_output", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.25, -0.5])
def test_a_batch_gives_what_exact_finds_for_each_network(slope, rectify_output):
    layers, points, positions = batch(rectify_output=rectify_output)
    table = batched.measure(layers, points, positions, slope, 2**30)
    rows = expected(layers, points, slope)
    torch.testing.assert_close(table, rows, rtol=1e-10, atol=1e-13)


def test_a_small_memory_cap_cuts_the_batch_and_changes_nothing(monkeypatch):
    arguments = batch()
    whole = batched.measure(*arguments, 0.0, 2**30)
    sizes = []
    rectify = exact.rectify
    monkeypatch.setattr(exact, "rectify", lambda t, z, a: sizes.append(len(z)) or rectify(t, z, a))
    cut = batched.measure(*arguments, 0.0, 20_000)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=0)
    assert 1 <= min(sizes) < 7
    batched.measure(*arguments, 0.0, 1)  # one network at a time is always allowed
    assert sizes[-1] == 1


def test_many_vertices_are_cut_before_the_first_layer(monkeypatch):
    layers, points, positions = batch()
    sizes, baddbmm = [], torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda b, z, w: sizes.append(len(z)) or baddbmm(b, z, w))
    batched.measure(layers, points, positions, 0.0, 3 * 3 * 8 * 8 * 6)
    assert max(sizes) == 3


def test_the_last_bias_costs_no_digits():
    layers, points, positions = batch()
    near = batched.measure(layers, points, positions, 0.0, 2**30)
    layers[-1].bias.fill_(1e12)
    assert torch.equal(batched.measure(layers, points, positions, 0.0, 2**30), near)


def test_a_dead_network_gives_zero_and_leaves_the_others_alone():
    layers, points, positions = batch()
    alive = batched.measure(layers, points, positions, 0.0, 2**30)
    layers[1].weight[2], layers[1].bias[2] = 0.0, -1.0
    table = batched.measure(layers, points, positions, 0.0, 2**30)
    assert table[2, [0, 1, 3]].tolist() == [0.0, 0.0, 0.0]
    others = [0, 1, 3, 4, 5, 6]
    torch.testing.assert_close(table[others], alive[others], rtol=1e-12, atol=0)


def test_single_precision_is_close():
    single = batched.measure(*batch(dtype=torch.float32), 0.0, 2**30)
    double = batched.measure(*batch(), 0.0, 2**30)
    assert single.dtype == torch.float64
    torch.testing.assert_close(single[:, [0, 3]], double[:, [0, 3]], rtol=1e-5, atol=0)


def test_no_tensor_is_made_on_another_device():
    # whatever is made without a device lands on "meta", which does not mix with the CPU
    plan = ensemble._Plan.make(
        WIDTHS, 0, torch.device("cpu"), "gaussian", {"output": "relu", "slope": 0.1}
    )
    plain = ensemble._on_device(plan, 0, torch.float64, 2**22)
    with torch.device("meta"), pytest.raises(RuntimeError):
        torch.ones(1) + plan.curves(0)
    with torch.device("meta"):
        guarded = ensemble._on_device(plan, 0, torch.float64, 2**22)
    assert torch.equal(guarded, plain)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_a_gpu_gives_what_the_cpu_gives(dtype, rtol):
    on_cpu = batched.measure(*batch(), 0.0, 2**30)
    on_gpu = batched.measure(*batch(dtype=dtype, device="cuda"), 0.0, 2**30).cpu()
    torch.testing.assert_close(on_gpu[:, [0, 3]], on_cpu[:, [0, 3]], rtol=rtol, atol=0)
