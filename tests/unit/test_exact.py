import math

import numpy as np
import pytest
import torch
from torch import nn

from paperlib.length import curves, exact
from paperlib.networks.fcn import assemble, fcn


def network(*layers, **options):
    """A network from pairs of weights `(n_ℓ, n_{ℓ-1})` and biases `(n_ℓ,)`, float64."""
    weights, biases = (
        [torch.tensor(v, dtype=torch.float64) for v in side] for side in zip(*layers, strict=True)
    )
    return assemble(weights, biases, dtype=torch.float64, **options)


IDENTITY = network(([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]))
RELU = network(([[1.0]], [0.0]), rectify_output=True)
ABSOLUTE = network(([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
TENT = [([[1.0], [1.0]], [0.0, -0.5]), ([[2.0, -4.0]], [0.0])]  # [0, 1] up to 1 and back to 0


def test_relu_keeps_the_positive_half():
    image = exact.trace(RELU, [[-1.0], [3.0]])
    assert image.length == 3.0
    assert image.distortion == 0.75
    assert image.pieces == 2
    assert image.positions.tolist() == [0.0, 1.0, 4.0]
    assert image.outputs.tolist() == [[0.0], [0.0], [3.0]]


def test_length_counts_with_multiplicity():
    assert exact.curve_length(ABSOLUTE, [[-1.0], [1.0]]) == 2.0


def test_a_breakpoint_on_a_vertex_is_not_put_twice():
    image = exact.trace(RELU, [[-1.0], [0.0], [3.0]])
    assert image.positions.tolist() == [0.0, 1.0, 4.0]
    assert image.length == 3.0


@pytest.mark.parametrize("depth", [1, 2, 5, 9])
def test_composed_tents_double_the_pieces_with_each_layer(depth):
    # the output of one tent goes straight into the two neurons of the next
    step = ([[2.0, -4.0], [2.0, -4.0]], [0.0, -0.5])
    net = network(TENT[0], *[step] * (depth - 1), TENT[1])
    image = exact.trace(net, [[0.0], [1.0]])
    assert image.length == 2.0**depth
    assert image.pieces == 2**depth


@pytest.mark.parametrize(("slope", "length"), [(0.5, 3.5), (-0.5, 3.5), (1.0, 4.0)])
def test_leaky_slope_shortens_the_negative_half(slope, length):
    net = network(([[1.0]], [0.0]), rectify_output=True, slope=slope)
    assert exact.curve_length(net, [[-1.0], [3.0]]) == length


def test_circle_through_the_identity_has_the_perimeter_of_its_polygon():
    image = exact.trace(IDENTITY, curves.circle(2, sides=64))
    assert image.length.item() == pytest.approx(128 * math.sin(math.pi / 64), rel=1e-14)
    assert image.distortion.item() == pytest.approx(1.0, rel=1e-14)
    assert image.pieces == 64


def test_relu_of_a_circle_is_a_quarter_arc_and_two_radii():
    net = network(([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), rectify_output=True)
    image = exact.trace(net, curves.circle(2, sides=4000))
    # the second and the fourth quadrant fall on the axes, the third on the origin
    assert image.length.item() == pytest.approx(math.pi / 2 + 2, rel=1e-6)


def test_tiny_pre_activations_still_break():
    # their product underflows to zero
    net = network(([[1e-200]], [0.0]), ([[1e200]], [0.0]))
    assert exact.curve_length(net, [[-1.0], [3.0]]).item() == pytest.approx(3.0)


def test_lists_arrays_and_tensors_are_the_same_curve():
    net, points = fcn([2, 5, 3], 1), [[0.0, -2.0], [1.0, 1.0]]
    lengths = {
        exact.curve_length(net, form(points)).item()
        for form in (list, np.array, torch.tensor, lambda p: np.array(p, np.float32))
    }
    assert len(lengths) == 1


def test_the_network_is_neither_changed_nor_asked_for_gradients():
    net = fcn([2, 5, 3], 1)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    image = exact.trace(net, torch.randn(3, 2, requires_grad=True))
    assert image.outputs.dtype == image.positions.dtype == torch.float64
    assert not image.outputs.requires_grad
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert next(net.parameters()).dtype == torch.float32


def test_nested_containers_identities_and_missing_biases_are_read():
    flat = fcn([2, 5, 3], 1, bias_var=0.0)
    nested = nn.Sequential(nn.Sequential(flat[0], nn.Identity(), flat[1]), nn.Linear(5, 3, False))
    nested[1].weight = flat[2].weight
    points = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    assert exact.curve_length(nested, points) == exact.curve_length(flat, points)


@pytest.mark.parametrize("module", [nn.Conv1d(1, 1, 1), nn.Tanh(), nn.BatchNorm1d(2)])
def test_other_modules_are_refused_by_name(module):
    with pytest.raises(TypeError, match=f"{type(module).__name__}.*Linear, ReLU and LeakyReLU"):
        exact.trace(nn.Sequential(nn.Linear(2, 2), module), [[0.0, 0.0], [1.0, 0.0]])


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(TypeError, match=r"no nn\.Linear"):
        exact.trace(nn.Sequential(nn.ReLU()), [[0.0], [1.0]])


class Shifted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x.sum()


def test_a_forward_of_one_s_own_is_refused():
    patched = nn.Linear(2, 2)
    patched.forward = torch.sin
    for module in (Shifted(2, 2), patched):
        with pytest.raises(TypeError, match="PyTorch's own forward"):
            exact.trace(nn.Sequential(module), [[0.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_are_refused(register):
    net = nn.Sequential(nn.Linear(2, 2))
    getattr(net[0], register)(lambda module, *values: None)
    with pytest.raises(TypeError, match="forward hooks"):
        exact.trace(net, [[0.0, 0.0], [1.0, 0.0]])


def test_parametrised_weights_are_those_that_act():
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2))).double().eval()
    a, b = net(torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)).detach()
    length = exact.curve_length(net, [[0.0, 0.0], [1.0, 0.0]])
    assert length.item() == pytest.approx(float((a - b).norm()))


def test_layers_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="3 outputs is followed by one with 4 inputs"):
        exact.trace(nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 1)), [[0.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("weight", "bias"), [(math.nan, 0), (math.inf, 0), (1e300, 0), (1, -1e309)]
)
def test_networks_that_are_not_finite_are_refused(weight, bias):
    step = ([[float(weight)]], [float(bias)])
    with pytest.raises(ValueError, match="not finite numbers"):
        exact.trace(network(step, step, ([[1.0]], [0.0])), [[-1.0], [3.0]])


def test_an_image_too_short_for_float64_is_no_point():
    with pytest.raises(ValueError, match="too small for float64"):
        exact.trace(network(([[1e-200], [1e-200]], [0.0, 0.0])), [[-1.0], [3.0]])


@pytest.mark.parametrize("size", [1e-160, 1e-320, 1e160, 1e308])
def test_curves_beyond_the_range_of_float64_are_refused(size):
    with pytest.raises(ValueError, match="too long or too short for float64"):
        exact.trace(IDENTITY, [[-size, 0.0], [size, 0.0]])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([["a", "b"], ["c", "d"]], "must be numbers"),
        ([[0.0, 1.0], [0.0]], "must be numbers"),
        (np.array([[0, 1j], [1, 0]]), "real numbers"),
        (torch.tensor([[0, 1j], [1, 0]]), "real numbers"),
        ([[0, 1j], [1, 0]], "real numbers"),
    ],
    ids=["words", "ragged", "complex array", "complex tensor", "complex list"],
)
def test_points_that_are_no_real_numbers_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        exact.trace(IDENTITY, points)


def test_read_only_and_reversed_arrays_are_curves():
    points = np.array([[0.0, 1.0], [3.0, 5.0]])
    points.flags.writeable = False
    assert exact.curve_length(IDENTITY, points) == exact.curve_length(IDENTITY, points[::-1]) == 5.0


@pytest.mark.parametrize(
    "points",
    [[[0.0, 1.0]], [0.0, 1.0], [[0.0], [1.0]], [[[0.0, 1.0]]], np.zeros((0, 2))],
    ids=["one point", "a vector", "wrong n_0", "three axes", "empty"],
)
def test_points_of_another_shape_are_refused(points):
    with pytest.raises(ValueError, match=r"shape \(K, 2\) with K of at least 2; got \("):
        exact.trace(IDENTITY, points)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_points_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        exact.trace(IDENTITY, [[0.0, bad], [1.0, 0.0]])


def test_a_curve_of_length_zero_is_refused():
    with pytest.raises(ValueError, match="length 0"):
        exact.trace(IDENTITY, [[1.0, 2.0]] * 3)
