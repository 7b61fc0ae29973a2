"""Exact lengths against an independent reference: bisection between changes of the gates.

Where all gates agree at both ends of a segment they agree in between, because a set of inputs with
given gates is convex. So bisection finds every linear piece, to the resolution of float64.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paperlib.length import exact
from paperlib.networks.fcn import assemble, fcn

width = st.integers(1, 6)
slopes = st.sampled_from([0.0, 0.3, -0.5, 1.0])
seeds = st.integers(0, 2**31)


@st.composite
def cases(draw, least_hidden=0, slope=slopes):
    """A network and a polygon `(K, n_0)`, generic or with many ties: integer weights and points."""
    widths = draw(st.lists(width, min_size=least_hidden + 2, max_size=5))
    rng = np.random.default_rng(draw(seeds))
    shapes = [
        *((b, a) for a, b in itertools.pairwise(widths)),
        (draw(st.integers(2, 4)), widths[0]),
    ]
    if draw(st.booleans()):
        weights = [rng.normal(size=shape) * math.sqrt(2 / shape[1]) for shape in shapes]
        biases = [0.3 * rng.normal(size=shape[0]) for shape in shapes]
    else:
        weights = [rng.integers(-2, 3, size=shape).astype(float) for shape in shapes]
        biases = [rng.integers(-2, 3, size=shape[0]).astype(float) for shape in shapes]
    polygon = weights.pop()
    biases.pop()
    polygon[-1] += (polygon == polygon[0]).all()  # never one point only
    net = assemble(
        [torch.from_numpy(weight) for weight in weights],
        [torch.from_numpy(bias) for bias in biases],
        rectify_output=draw(st.booleans()),
        slope=draw(slope),
        dtype=torch.float64,
    )
    return net, polygon


def evaluate(net, x):
    """Output of the network at the points `x` `(points, n_0)`, and whether each gate is open."""
    gates = [np.zeros((len(x), 0), bool)]
    for module in net:
        if isinstance(module, nn.Linear):
            x = x @ module.weight.detach().numpy().T + module.bias.detach().numpy()
        else:
            gates.append(x > 0)
            x = np.where(x > 0, x, getattr(module, "negative_slope", 0.0) * x)
    return x, np.concatenate(gates, axis=1)


def chords(values):
    return np.linalg.norm(np.diff(values, axis=0), axis=1).sum()


def by_bisection(net, polygon):
    """Length of the image, and the number of different gate patterns met, segment by segment."""
    length, pieces = 0.0, 0
    for start, end in itertools.pairwise(polygon):
        if (start == end).all():
            continue
        knots = np.array([0.0, 1.0])
        for _ in range(40):
            outputs, gates = evaluate(net, start + knots[:, None] * (end - start))
            changes = (gates[1:] != gates[:-1]).any(axis=1)
            if not changes.any():
                break
            knots = np.sort(np.concatenate([knots, (knots[1:] + knots[:-1])[changes] / 2]))
        length += chords(outputs)
        # all that is left of a change is one tiny gap
        pieces += changes.sum() + 1
    return length, pieces


def sampled(net, polygon, steps):
    """Length of the polygon through the images of `steps` + 1 equidistant points a segment."""
    t = np.linspace(0, 1, steps + 1)[:, None]
    return sum(chords(evaluate(net, a + t * (b - a))[0]) for a, b in itertools.pairwise(polygon))


def layer_maps(net):
    return [module for module in net if isinstance(module, nn.Linear)]


def lipschitz(net):
    """A bound of the network's stretch for slopes up to 1: the product of the spectral norms."""
    return math.prod(np.linalg.norm(m.weight.detach().numpy(), 2) for m in layer_maps(net))


@given(cases())
def test_length_is_that_of_the_pieces_found_by_bisection(case):
    net, polygon = case
    length, _ = by_bisection(net, polygon)
    assert exact.curve_length(net, polygon).item() == pytest.approx(length, rel=1e-9, abs=1e-9)


@given(st.lists(width, min_size=3, max_size=5), seeds, st.sampled_from(["linear", "relu"]))
def test_pieces_are_the_different_gate_patterns_along_the_curve(widths, seed, output):
    net = fcn(widths, seed, output=output, bias_var=0.1, dtype=torch.float64)
    polygon = np.random.default_rng(seed).normal(size=(3, widths[0]))
    assert exact.trace(net, polygon).pieces == by_bisection(net, polygon)[1]


@given(cases())
def test_vertices_lie_on_the_image(case):
    net, polygon = case
    image = exact.trace(net, polygon)
    corners = np.concatenate([[0], np.linalg.norm(np.diff(polygon, axis=0), axis=1).cumsum()])
    distinct = np.diff(corners, prepend=-1) > 0  # np.interp wants increasing positions
    x = [np.interp(image.positions, corners[distinct], xs) for xs in polygon[distinct].T]
    outputs, _ = evaluate(net, np.stack(x, axis=1))
    np.testing.assert_allclose(image.outputs, outputs, atol=1e-10 * (1 + abs(outputs).max()))


@given(cases())
def test_dense_sampling_approaches_the_exact_length_from_below(case):
    net, polygon = case
    image = exact.trace(net, polygon)
    length = image.length.item()
    lengths = [sampled(net, polygon, steps) for steps in (1, 8, 64, 512)]
    for coarse, fine in itertools.pairwise([*lengths, length]):
        assert coarse <= fine + 1e-9 * (1 + length)
    # an interval of the grid without a breakpoint loses nothing
    longest = np.linalg.norm(np.diff(polygon, axis=0), axis=1).max() / 512
    assert length - lengths[-1] <= image.pieces * longest * lipschitz(net) + 1e-9 * (1 + length)


@given(cases(), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5))
def test_splitting_the_segments_changes_nothing(case, fractions):
    net, polygon = case
    split = [polygon[0]]
    for a, b in itertools.pairwise(polygon):
        split += [a + t * (b - a) for t in sorted(fractions)] + [b]
    length = exact.curve_length(net, polygon).item()
    assert exact.curve_length(net, split).item() == pytest.approx(length, rel=1e-9, abs=1e-9)


@given(cases())
def test_repeated_points_change_nothing(case):
    net, polygon = case
    image, repeated = exact.trace(net, polygon), exact.trace(net, polygon.repeat(3, axis=0))
    torch.testing.assert_close(repeated.length, image.length, rtol=1e-12, atol=1e-12)
    assert repeated.pieces == image.pieces


@given(cases(), st.integers(1, 3))
def test_a_closed_curve_may_start_at_any_vertex_and_run_either_way(case, shift):
    net, polygon = case
    corners = list(polygon)
    shift %= len(corners)
    turned = corners[shift:] + corners[:shift]
    length = exact.curve_length(net, [*corners, corners[0]]).item()
    for other in ([*turned, turned[0]], [*corners, corners[0]][::-1]):
        assert exact.curve_length(net, other).item() == pytest.approx(length, rel=1e-9, abs=1e-9)


@given(cases(), st.floats(-3, 3).filter(lambda c: abs(c) > 1e-3))
def test_length_scales_with_the_output_layer(case, c):
    net, polygon = case
    if not isinstance(net[-1], nn.Linear):
        c = abs(c)
    length = exact.curve_length(net, polygon).item()
    with torch.no_grad():
        layer_maps(net)[-1].weight.mul_(c)
        layer_maps(net)[-1].bias.mul_(c)
    assert exact.curve_length(net, polygon).item() == pytest.approx(abs(c) * length, rel=1e-9)


@given(st.lists(width, min_size=2, max_size=6), seeds, st.sampled_from([0.5, 2.0, 4.0]))
def test_scaled_weights_without_biases_multiply_the_length_by_c_to_the_depth(widths, seed, c):
    polygon = np.random.default_rng(seed).normal(size=(3, widths[0]))
    length = exact.curve_length(fcn(widths, seed, bias_var=0.0), polygon).item()
    scaled = exact.curve_length(fcn(widths, seed, bias_var=0.0, scale=c), polygon).item()
    # the laws are drawn in float32
    assert scaled == pytest.approx(c ** (len(widths) - 1) * length, rel=1e-4)


@given(cases(), seeds)
def test_rotating_the_output_leaves_the_length(case, seed):
    net, polygon = case
    length = exact.curve_length(net, polygon).item()
    n = layer_maps(net)[-1].out_features
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))
    rotated = nn.Sequential(
        net, assemble([torch.from_numpy(rotation)], [torch.ones(n)], dtype=torch.float64)
    )
    assert exact.curve_length(rotated, polygon).item() == pytest.approx(length, rel=1e-9, abs=1e-12)


@given(cases(slope=st.just(1.0)))
def test_a_network_of_slope_one_is_linear(case):
    net, polygon = case
    matrix = np.eye(polygon.shape[1])
    for layer in layer_maps(net):
        matrix = layer.weight.detach().numpy() @ matrix
    expected = pytest.approx(chords(polygon @ matrix.T), rel=1e-9, abs=1e-9)
    assert exact.curve_length(net, polygon).item() == expected
    assert exact.curve_length(nn.Sequential(*layer_maps(net)), polygon).item() == expected


@given(cases(least_hidden=1, slope=st.just(0.0)), st.data())
def test_a_dead_layer_leaves_a_point(case, data):
    net, polygon = case
    activated = [i for i, m in enumerate(net) if isinstance(m, nn.ReLU)]
    dead = net[data.draw(st.sampled_from(activated)) - 1]
    with torch.no_grad():
        dead.weight.zero_()
        dead.bias.fill_(-1.0)
    assert exact.curve_length(net, polygon).item() == 0.0


@given(cases(slope=st.sampled_from([0.0, 0.3])))
def test_pieces_never_exceed_the_product_over_layers(case):
    net, polygon = case
    activated = [net[i - 1].out_features for i, m in enumerate(net) if not isinstance(m, nn.Linear)]
    most = (len(polygon) - 1) * math.prod(n + 1 for n in activated)
    assert exact.trace(net, polygon).pieces <= most
