import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from paperlib import networks
from paperlib.networks import vgg
from paperlib.robustness.chain import Chain


def narrow(name="vgg11", **options):
    return networks.build(name, **{"base_width": 4} | options)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def test_vgg_16_has_the_papers_layers_in_order():
    # One row a convolution, then fc1, fc2 and final_linear.
    assert list(networks.layers(narrow("vgg16"))) == [
        *("stage1.block1", "stage1.block2", "stage2.block1", "stage2.block2"),
        *("stage3.block1", "stage3.block2", "stage3.block3"),
        *("stage4.block1", "stage4.block2", "stage4.block3"),
        *("stage5.block1", "stage5.block2", "stage5.block3"),
        *("fc1", "fc2", "final_linear"),
    ]


@pytest.mark.parametrize("name", vgg.VGGS)
def test_the_number_in_the_name_counts_the_layers(name):
    assert name == f"vgg{len(networks.layers(narrow(name)))}"


def test_a_layer_owns_the_batch_norm_on_its_output():
    plain, normed = narrow(), narrow(batch_norm=True)
    block = "stage3.block2"
    assert networks.layers(plain)[block] == [f"{block}.conv.weight", f"{block}.conv.bias"]
    assert networks.layers(normed)[block] == [
        f"{block}.conv.weight",
        f"{block}.norm.weight",
        f"{block}.norm.bias",
        f"{block}.norm.running_mean",
        f"{block}.norm.running_var",
        f"{block}.norm.num_batches_tracked",
    ]
    assert networks.layers(normed)["fc1"] == ["fc1.linear.weight", "fc1.linear.bias"]


@pytest.mark.parametrize("name", vgg.VGGS)
def test_parameters_are_as_many_as_in_torchvision(name):
    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)().features
        theirs_normed = getattr(torchvision.models, f"{name}_bn")().features
    # By hand: 512 features after five halvings of 32×32 pixels, fc1, fc2 and ten classes.
    head = 2 * (512 * 512 + 512) + 512 * 10 + 10
    assert parameters(networks.build(name)) == parameters(theirs) + head

    # Theirs keep the biases that a BatchNorm takes out again.
    biases = sum(m.out_channels for m in theirs_normed if isinstance(m, nn.Conv2d))
    normed = networks.build(name, batch_norm=True)
    assert parameters(normed) == parameters(theirs_normed) - biases + head


def test_the_convolutions_compute_what_torchvisions_do():
    theirs = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["B"])
    ours = networks.build("vgg13")
    own = [p for name, p in ours.named_parameters() if name.startswith("stage")]
    with torch.no_grad():
        for mine, other in zip(own, theirs.parameters(), strict=True):
            other.copy_(mine)
    x = torch.rand(2, 3, 32, 32)
    flatten = list(dict(ours.named_children())).index("flatten")
    torch.testing.assert_close(ours[:flatten](x), theirs(x))


def test_a_block_is_convolution_norm_and_relu():
    net = narrow(batch_norm=True, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)).eval()
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        net.stage1.block1.norm.running_mean.fill_(0.3)
        net.stage1.block1.norm.weight.fill_(2.0)
    z = (x - torch.tensor([0.1, 0.2, 0.3])[:, None, None]) / torch.tensor([0.5, 0.6, 0.7])[
        :, None, None
    ]
    y = F.conv2d(z, net.stage1.block1.conv.weight, padding=1)
    expected = F.max_pool2d((2 * (y - 0.3) / (1 + 1e-5) ** 0.5).relu(), 2)
    torch.testing.assert_close(net[:2](x), expected)


def test_widths_follow_the_base_width():
    net = narrow("vgg19", image_shape=(1, 64, 96), classes=7, mean=(0.5,), std=(0.2,))
    assert net(torch.rand(2, 1, 64, 96)).shape == (2, 7)
    widths = [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert widths == [4] * 2 + [8] * 2 + [16] * 4 + [32] * 8
    assert net.fc1.linear.weight.shape == (32, 32 * 2 * 3)
    assert narrow(fc_width=5).fc2.linear.weight.shape == (5, 5)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_its_chain_is_the_network_bit_for_bit(batch_norm):
    net = narrow(batch_norm=batch_norm).eval()
    chain = Chain(net)
    x = torch.rand(3, 3, 32, 32)
    assert torch.equal(chain.rest(x, 0), net(x))
    starts = [min(chain.position[n] for n in names) for names in networks.layers(net).values()]
    assert starts == sorted(set(starts))


def test_a_seed_fixes_the_network_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    first, again, other = (narrow(seed=s).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(before, torch.get_rng_state())


def test_weights_and_biases_have_the_law_of_the_initialiser():
    # PyTorch's default: uniform within 1/√fan-in, here of 32 channels and a 3×3 window.
    conv = narrow(base_width=32).stage2.block1.conv
    bound = (32 * 9) ** -0.5
    assert 0.99 * bound < conv.weight.abs().max() <= bound
    assert 0.5 * bound < conv.bias.abs().max() <= bound
    he = narrow(base_width=32, initialiser="he").stage2.block1.conv
    assert he.weight.std().item() == pytest.approx((2 / (32 * 9)) ** 0.5, rel=0.03)
    assert not he.bias.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initialiser": "hee"}, "did you mean 'he'"),
        ({"base_width": 0}, "base_width must be an integer of at least 1"),
        ({"fc_width": 2.5}, "fc_width"),
        ({"classes": 1}, "classes"),
        ({"convolutions": (1, 1, 2)}, r"the convolutions of 5 stages; got \[1, 1, 2\]"),
        ({"convolutions": (1, 1, 0, 2, 2)}, "every number of convolutions"),
        ({"image_shape": (3, 16, 32)}, "sides of at least 32 pixels"),
        ({"image_shape": (1, 32, 32)}, "with C values in mean"),
    ],
)
def test_what_is_not_allowed_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        narrow(**options)
