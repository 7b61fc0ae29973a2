import importlib.util
import math
import os
import shutil

import numba
import numpy as np
import pytest
import torch

from paperlib.length import exact, kernel
from paperlib.networks.fcn import fcn


def measure(nets, curves, dtype=np.float64, slope=0.0, rectify_output=False):
    """The kernel's table for networks of one shape, along curves `(K, n_0)` of one K."""
    linears = [[module for module in net if isinstance(module, torch.nn.Linear)] for net in nets]
    weights = [[m.weight.detach().numpy().ravel() for m in row] for row in linears]
    biases = [[m.bias.detach().numpy() for m in row] for row in linears]
    widths = [linears[0][0].in_features, *(m.out_features for m in linears[0])]
    return kernel.trace_block(
        np.stack([np.concatenate(row) for row in weights]).astype(dtype),
        np.stack([np.concatenate(row) for row in biases]).astype(dtype),
        np.array(widths),
        np.stack(curves).astype(dtype),
        np.stack([exact.arc_length(torch.as_tensor(curve)).numpy() for curve in curves]),
        dtype(slope),
        rectify_output,
    )


def expected(net, curve):
    """The kernel's row, from the image that `exact.trace` finds."""
    image = exact.trace(net, curve)
    steps, gaps = exact.polygon_steps(image.outputs), image.positions.diff()
    energy = (steps**2 / gaps)[gaps > 0].sum()
    first = image.outputs[:, 0]
    return [image.length, energy, image.pieces, first.max() - first.min()]


def polygon(n_0, vertices, seed=0):
    return np.random.default_rng(seed).normal(size=(vertices, n_0))


@pytest.mark.parametrize("rectify_output", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.25, -0.5, 1.0])
@pytest.mark.parametrize("widths", [[3, 2], [1, 1, 1], [4, 9, 3, 7, 2]])
def test_a_block_gives_what_exact_finds_for_each_network(widths, slope, rectify_output):
    output = "relu" if rectify_output else "linear"
    nets = [fcn(widths, seed, slope=slope, output=output, bias_var=0.1) for seed in range(6)]
    curves = [polygon(widths[0], 4, seed) for seed in range(6)]
    table = measure(nets, curves, slope=slope, rectify_output=rectify_output)
    rows = [expected(net, curve) for net, curve in zip(nets, curves, strict=True)]
    np.testing.assert_allclose(table, np.array(rows), rtol=1e-10, atol=1e-13)


def test_known_image():
    # |x| along [-1, 1], and an output that is 0 on the way
    net = fcn([1, 2, 1])
    with torch.no_grad():
        for name, values in {"0.weight": [[1.0], [-1.0]], "2.weight": [[1.0, 1.0]]}.items():
            net.get_parameter(name).copy_(torch.tensor(values))
        net.get_parameter("0.bias").zero_()
        net.get_parameter("2.bias").zero_()
    table = measure([net], [np.array([[-1.0], [1.0]])])
    assert dict(zip(kernel.COLUMNS, table[0], strict=True)) == {
        "length": 2.0,
        "energy": 2.0,
        "pieces": 2.0,
        "span": 1.0,
    }


def test_buffers_grow_with_the_breakpoints():
    widths, curve = [2, 60, 60, 60, 3], polygon(2, 20)
    net, other = fcn(widths, 1, bias_var=0.1), fcn(widths, 2, bias_var=0.1)
    row = expected(net, curve)
    assert row[2] > 4 * 20 + sum(widths)  # what the buffers hold at first
    table = measure([other, net, other], [curve] * 3)
    np.testing.assert_allclose(table[1], row, rtol=1e-10)
    np.testing.assert_array_equal(table[0], table[2])


def test_repeated_points_and_breakpoints_on_vertices_change_nothing():
    net, curve = fcn([2, 6, 6, 2], 3, bias_var=0.0), polygon(2, 3)
    curve[1] = 0.0  # where every neuron without a bias changes sign
    np.testing.assert_allclose(
        measure([net], [curve.repeat(2, axis=0)])[0], measure([net], [curve])[0], rtol=1e-13
    )


def test_one_curve_serves_all_networks():
    nets, curve = [fcn([2, 6, 6, 2], seed) for seed in range(3)], polygon(2, 3)
    np.testing.assert_array_equal(measure(nets, [curve]), measure(nets, [curve] * 3))


def test_the_last_bias_costs_no_digits():
    net, curve = fcn([2, 6, 6, 2], 3, dtype=torch.float64), polygon(2, 3)
    (near,) = measure([net], [curve])
    with torch.no_grad():
        net[-1].bias.fill_(1e12)
    np.testing.assert_array_equal(measure([net], [curve])[0], near)


def test_nan_is_not_turned_into_a_dead_layer():
    net, curve = fcn([2, 6, 6, 2], 3), polygon(2, 3)
    with torch.no_grad():
        net[0].weight[0, 0] = math.nan
    assert math.isnan(measure([net], [curve])[0, 0])


def test_without_a_folder_for_compiled_code_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    copy = tmp_path / "kernel_copy.py"
    shutil.copy(kernel.__file__, copy)
    (tmp_path / "__pycache__").touch()  # a file, so that nobody can write into it
    spec = importlib.util.spec_from_file_location("kernel_copy", copy)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module._CACHE
    assert kernel._CACHE


def test_a_dead_layer_gives_zero():
    net, curve = fcn([2, 6, 6, 2], 3), polygon(2, 3)
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.fill_(-1.0)
    length, energy, pieces, span = measure([net], [curve])[0]
    assert (length, energy, span) == (0.0, 0.0, 0.0)
    assert pieces == exact.trace(net, curve).pieces


def test_single_precision_is_close():
    nets = [fcn([3, 12, 12, 4], seed) for seed in range(20)]
    curves = [polygon(3, 3, seed) for seed in range(20)]
    single, double = measure(nets, curves, np.float32), measure(nets, curves)
    np.testing.assert_allclose(single[:, [0, 3]], double[:, [0, 3]], rtol=1e-5)
    np.testing.assert_allclose(single[:, 2], double[:, 2], atol=1)
