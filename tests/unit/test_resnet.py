import pytest
import torch
import torchvision
from torch import nn

from paperlib import networks
from paperlib.networks.layer import Stack
from paperlib.networks.resnet import REMOVED, RESNETS, residual_blocks, resnet
from paperlib.robustness.chain import Chain

SETTINGS = [(version, norm) for version in (1, 2) for norm in (False, True)]


def narrow(name="resnet18", **options):
    return networks.build(name, **{"base_width": 4} | options)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def test_resnet_50_has_the_papers_layers_in_order():
    assert list(networks.layers(narrow("resnet50"))) == [
        "stage0",
        *(f"stage1.resblk{i}" for i in (1, 2, 3)),
        *(f"stage2.resblk{i}" for i in (1, 2, 3, 4)),
        *(f"stage3.resblk{i}" for i in (1, 2, 3, 4, 5, 6)),
        *(f"stage4.resblk{i}" for i in (1, 2, 3)),
        "final_linear",
    ]


@pytest.mark.parametrize("name", RESNETS)
def test_the_number_in_the_name_counts_the_layers_with_weights(name):
    net = narrow(name)
    convs = sum(isinstance(m, nn.Conv2d) for m in net.modules())
    skips = sum(block.skip is not None for block in residual_blocks(net).values())
    assert name.removesuffix("b") == f"resnet{convs - skips + 1}"


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet101", "resnet152"])
def test_version_1_has_as_many_parameters_as_torchvisions(name):
    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)()
    ours = networks.build(name, version=1, batch_norm=True, stem="imagenet", classes=1000)
    assert parameters(ours) == parameters(theirs)


@pytest.mark.parametrize(
    ("bottleneck", "theirs"),
    [(False, torchvision.models.resnet.BasicBlock), (True, torchvision.models.resnet.Bottleneck)],
)
def test_version_1_computes_what_torchvisions_does(bottleneck, theirs):
    blocks, options = (2, 1, 1, 1), {"stem": "imagenet", "version": 1, "batch_norm": True}
    theirs = torchvision.models.ResNet(theirs, blocks, num_classes=7).eval()
    ours = resnet(blocks, bottleneck=bottleneck, classes=7, **options).eval()
    pairs = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    for mine, other in pairs:
        mine.copy_(other)
    x = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x))


def conv(channels_in, channels_out, size):
    """Weights of a convolution."""
    return channels_in * channels_out * size**2


def test_version_2_of_resnet_18_has_the_parameters_counted_by_hand():
    weights = (
        conv(3, 64, 3)
        + 4 * conv(64, 64, 3)
        + (conv(64, 128, 3) + 3 * conv(128, 128, 3) + conv(64, 128, 1))
        + (conv(128, 256, 3) + 3 * conv(256, 256, 3) + conv(128, 256, 1))
        + (conv(256, 512, 3) + 3 * conv(512, 512, 3) + conv(256, 512, 1))
    )
    head = 512 * 10 + 10
    biases = 5 * 64 + 5 * 128 + 5 * 256 + 5 * 512
    assert parameters(networks.build("resnet18")) == weights + biases + head
    # γ and β of a norm in front of each 3×3 convolution of a block, and of the last ReLU.
    norms = 2 * (4 * 64 + (64 + 3 * 128) + (128 + 3 * 256) + (256 + 3 * 512) + 512)
    assert parameters(networks.build("resnet18", batch_norm=True)) == weights + norms + head


def test_version_2_of_resnet_50_has_the_parameters_counted_by_hand():
    weights, norms, biases, channels = conv(3, 64, 3), 0, 64, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        skip = conv(channels, 4 * width, 1)
        first = conv(channels, width, 1) + conv(width, width, 3) + conv(width, 4 * width, 1)
        other = conv(4 * width, width, 1) + conv(width, width, 3) + conv(width, 4 * width, 1)
        weights += skip + first + (blocks - 1) * other
        biases += 4 * width + blocks * (width + width + 4 * width)
        norms += 2 * (channels + 2 * width + (blocks - 1) * (4 * width + 2 * width))
        channels = 4 * width
    head, last_norm = 2048 * 10 + 10, 2 * 2048
    assert parameters(networks.build("resnet50")) == weights + biases + head
    normed = networks.build("resnet50", batch_norm=True)
    assert parameters(normed) == weights + norms + last_norm + head


@pytest.mark.parametrize("name", ["resnet50", "resnet101", "resnet152"])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_without_all_but_first_blocks_the_deep_networks_are_one(name, batch_norm):
    whole = narrow(name, batch_norm=batch_norm)
    removed = narrow(name, blocks=REMOVED, batch_norm=batch_norm)
    tensors = whole.state_dict()
    kept = [
        tensor
        for layer, names in networks.layers(whole).items()
        if ".resblk" not in layer or layer.endswith(".resblk1")
        for tensor in names
    ]
    shapes = {name: tensor.shape for name, tensor in removed.state_dict().items()}
    assert shapes == {name: tensors[name].shape for name in kept}
    reference = narrow("resnet50", blocks=REMOVED, batch_norm=batch_norm)
    assert str(removed) == str(reference)


def sizes(net, pixels):
    """Channels and pixels after the stem and each stage."""
    x, found = torch.rand(1, 3, pixels, pixels), []
    for name, module in net.named_children():
        x = module(x)
        if name.startswith("stage"):
            found.append(tuple(x.shape[1:3]))
    return found, tuple(x.shape)


@pytest.mark.parametrize(
    ("options", "pixels", "expected"),
    [
        ({}, 32, [(4, 32), (4, 32), (8, 16), (16, 8), (32, 4)]),
        ({"stem": "imagenet"}, 224, [(4, 56), (4, 56), (8, 28), (16, 14), (32, 7)]),
        ({"name": "resnet50"}, 32, [(4, 32), (16, 32), (32, 16), (64, 8), (128, 4)]),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_each_stage_but_the_first_halves_the_image(options, pixels, expected, version):
    found, output = sizes(narrow(version=version, **options), pixels)
    assert found == expected
    assert output == (1, 10)


def test_a_preactivated_bottleneck_is_what_the_formula_says():
    block = narrow("resnet26b", batch_norm=True).stage2.resblk1.eval()
    x = torch.randn(2, 16, 6, 6)
    y = block.before.norm(x).relu()
    z = block.branch.norm1(block.branch.conv1(y)).relu()
    z = block.branch.conv3(block.branch.norm2(block.branch.conv2(z)).relu())
    torch.testing.assert_close(block(x), z + block.skip.conv(y))
    assert block.branch.conv2.stride == block.skip.conv.stride == (2, 2)

    branch, skip = block.parts(x)
    assert torch.equal(branch + skip, block(x))


def test_a_batch_norm_belongs_to_the_layer_it_stands_in():
    net = narrow(batch_norm=True)
    layers = networks.layers(net)
    first = layers["stage1.resblk1"]
    for norm in ("before.norm", "branch.norm1"):
        for tensor in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            assert f"stage1.resblk1.{norm}.{tensor}" in first
    assert "final_linear.norm.running_var" in layers["final_linear"]
    assert layers["stage0"] == ["stage0.conv.weight"]
    assert [n for n in net.state_dict() if n.endswith("conv1.bias")] == []

    plain = narrow()
    assert not any("norm" in name for name in plain.state_dict())
    assert networks.layers(plain)["stage2.resblk1"] == [
        f"stage2.resblk1.{module}.{tensor}"
        for module in ("branch.conv1", "branch.conv2", "skip.conv")
        for tensor in ("weight", "bias")
    ]


def test_in_version_1_the_last_activation_is_the_blocks_own():
    layers = networks.layers(narrow(version=1, batch_norm=True))
    assert "stage0.norm.weight" in layers["stage0"]
    assert "stage2.resblk1.skip.norm.running_mean" in layers["stage2.resblk1"]
    assert layers["final_linear"] == ["final_linear.linear.weight", "final_linear.linear.bias"]


@pytest.mark.parametrize(("version", "batch_norm"), SETTINGS)
@pytest.mark.parametrize("name", ["resnet18", "resnet26b"])
def test_at_branch_scale_0_a_block_starts_as_its_skip(name, version, batch_norm):
    net = narrow(name, version=version, batch_norm=batch_norm, branch_scale=0.0)
    blocks = residual_blocks(net)
    x = torch.rand(2, blocks["stage3.resblk2"].branch.conv1.in_channels, 5, 5)
    assert torch.equal(blocks["stage3.resblk2"](x), x)
    branch, _ = narrow(name).stage3.resblk2.parts(x)
    assert branch.abs().max() > 0


def test_branch_scale_multiplies_the_last_weights_of_each_branch_only():
    full, half = narrow().state_dict(), narrow(branch_scale=0.5).state_dict()
    for name, tensor in full.items():
        assert torch.equal(half[name], tensor / 2 if ".branch.conv2." in name else tensor)


@pytest.mark.parametrize(("version", "batch_norm"), SETTINGS)
def test_with_downsample_layers_all_skips_are_identities(version, batch_norm):
    net = narrow(downsample_layers=True, version=version, batch_norm=batch_norm)
    assert all(block.skip is None for block in residual_blocks(net).values())
    assert list(networks.layers(net)) == [
        *("stage0", "stage1.resblk1", "stage1.resblk2"),
        *("stage2.downsample", "stage2.resblk1", "stage2.resblk2"),
        *("stage3.downsample", "stage3.resblk1", "stage3.resblk2"),
        *("stage4.downsample", "stage4.resblk1", "stage4.resblk2"),
        "final_linear",
    ]
    assert sizes(net, 32)[0] == [(4, 32), (4, 32), (8, 16), (16, 8), (32, 4)]
    # A bottleneck's expansion changes the shape in stage 1 too.
    assert "stage1.downsample" in networks.layers(narrow("resnet26b", downsample_layers=True))


@pytest.mark.parametrize(("version", "batch_norm"), SETTINGS)
@pytest.mark.parametrize("name", ["resnet18", "resnet26b"])
def test_its_chain_is_the_network_bit_for_bit(name, version, batch_norm):
    net = narrow(name, version=version, batch_norm=batch_norm).eval()
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


def test_the_default_law_is_pytorchs_own_for_convolutions():
    conv = narrow(base_width=32).stage2.resblk2.branch.conv1
    bound = (64 * 9) ** -0.5
    assert 0.99 * bound < conv.weight.abs().max() <= bound
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = nn.Conv2d(64, 64, 3)
    assert conv.weight.std().item() == pytest.approx(theirs.weight.std().item(), rel=0.02)
    assert conv.bias.std().item() == pytest.approx(theirs.bias.std().item(), rel=0.3)


def test_the_input_is_normalised_by_the_network():
    net = narrow(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    plain = narrow()
    x = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    normalised = (x - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(net(x), plain(normalised))


def test_marked_layers_in_ones_own_network_are_found_and_a_grouping_overrides_them():
    net = nn.Sequential(Stack(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3)), Stack(nn.Linear(3, 2)))
    assert networks.layers(net) == {
        "0": ["0.0.weight", "0.0.bias", "0.2.weight", "0.2.bias"],
        "1": ["1.0.weight", "1.0.bias"],
    }
    assert list(networks.layers(net, {"all": [""]})) == ["all"]
    with pytest.raises(ValueError, match=r"no layer owns 1\.weight"):
        networks.layers(nn.Sequential(Stack(nn.Linear(2, 3)), nn.Linear(3, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initialiser": "hee"}, "did you mean 'he'"),
        ({"base_width": 0}, "base_width must be an integer of at least 1"),
        ({"classes": 1}, "classes"),
        ({"blocks": ()}, "blocks is empty"),
        ({"blocks": (2, 0, 2, 2)}, "every number of blocks"),
        ({"version": 3}, "version must be 1 or 2"),
        ({"stem": "imagent"}, "did you mean 'imagenet'"),
        ({"branch_scale": -1}, "branch_scale"),
        ({"image_shape": (32, 32)}, r"image_shape must be \(C, H, W\)"),
        ({"image_shape": (1, 32, 32)}, "with C values in mean"),
    ],
)
def test_what_is_not_allowed_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        narrow(**options)


def test_an_unknown_depth_is_named():
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        networks.build("resnet_18")
