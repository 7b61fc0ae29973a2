import pytest
import torch
from torch import nn

from paperlib import networks
from paperlib.networks import fcn


def test_modules_alternate_and_the_output_layer_is_linear():
    kinds = [type(m) for m in fcn([5, 20, 10, 3])]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert isinstance(fcn([5, 20, 3], output="relu")[-1], nn.ReLU)
    assert fcn([5, 20, 3], slope=0.2)[1].negative_slope == 0.2


def test_a_seed_fixes_the_network_in_every_precision():
    x = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    double = fcn([5, 20, 3], 4, dtype=torch.float64)
    assert torch.equal(double(x), fcn([5, 20, 3], 4, dtype=torch.float64)(x))
    assert not torch.equal(double(x), fcn([5, 20, 3], 5, dtype=torch.float64)(x))
    torch.testing.assert_close(fcn([5, 20, 3], 4)(x.float()), double(x).float())


def test_drawing_leaves_the_global_generators_alone():
    before = torch.get_rng_state()
    fcn([5, 20, 3])
    assert torch.equal(before, torch.get_rng_state())


def test_weights_and_biases_have_the_variances_of_the_law():
    net = fcn([400, 500, 300], bias_var=0.25)
    assert net[0].weight.var().item() == pytest.approx(2 / 400, rel=0.02)
    assert net[2].weight.var().item() == pytest.approx(1 / 500, rel=0.02)
    assert net[0].bias.var().item() == pytest.approx(0.25, rel=0.2)


def test_pytorch_default_law_matches_pytorch():
    ours = fcn([300, 400, 500], weight_law="torch-default")
    for linear in (ours[0], ours[2]):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            theirs = nn.Linear(linear.in_features, linear.out_features)
        for name in ("weight", "bias"):
            ratio = getattr(linear, name).std() / getattr(theirs, name).std()
            assert ratio.item() == pytest.approx(1, abs=0.15)
            assert getattr(linear, name).abs().max() <= linear.in_features**-0.5 * 1.000001


def test_scale_multiplies_every_tensor():
    plain, scaled = fcn([5, 8, 2]).state_dict(), fcn([5, 8, 2], scale=1.5).state_dict()
    for name, tensor in plain.items():
        torch.testing.assert_close(scaled[name], 1.5 * tensor)


def test_build_knows_its_names():
    assert isinstance(networks.build("fcn", widths=[2, 3, 1]), nn.Sequential)
    with pytest.raises(ValueError, match="did you mean 'fcn'"):
        networks.build("fnc", widths=[2, 3, 1])


def test_layers_of_a_fully_connected_network():
    assert networks.layers(fcn([5, 20, 3])) == {
        "layer1": ["0.weight", "0.bias"],
        "layer2": ["2.weight", "2.bias"],
    }


def test_layers_hold_the_buffers_of_batch_norm():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    assert networks.layers(net, {"stem": ["0", "1"]})["stem"] == list(net.state_dict())
    assert networks.layers(net)["layer2"][-1] == "1.num_batches_tracked"
    assert networks.layers(nn.Linear(2, 2)) == {"layer1": ["weight", "bias"]}


@pytest.mark.parametrize(
    ("grouping", "message"),
    [
        ({"a": ["0"], "b": ["22"]}, "no tensor's name starts with '22'"),
        ({"a": ["0", "2"], "b": ["2.bias"]}, "'2.bias' belongs to both 'a' and 'b'"),
        ({"a": ["0"]}, "no layer owns 2.weight, 2.bias"),
        ({"a": "0"}, "list of prefixes"),
    ],
)
def test_a_wrong_grouping_is_refused(grouping, message):
    with pytest.raises(ValueError, match=message):
        networks.layers(fcn([5, 20, 3]), grouping)


def test_a_weight_tied_across_layers_is_refused():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    with pytest.raises(ValueError, match="belongs to both"):
        networks.layers(nn.Sequential(first, second))


def test_tensors_outside_leaf_modules_need_a_grouping():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(3))
            self.head = nn.Linear(3, 2)

    with pytest.raises(ValueError, match="no layer owns token"):
        networks.layers(Token())
    assert networks.layers(Token(), {"first": ["token"], "last": ["head"]})["first"] == ["token"]
