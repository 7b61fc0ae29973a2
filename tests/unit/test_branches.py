import pytest
import torch

from paperlib import networks
from paperlib.networks.resnet import residual_blocks
from paperlib.robustness.branches import norms


@pytest.fixture
def images():
    return torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def narrow(**options):
    return networks.build("resnet18", **{"base_width": 2} | options).eval()


def test_norms_are_those_of_the_first_block_by_hand(images):
    net = narrow()
    block = net.stage1.resblk1
    with torch.no_grad():
        stem = net.stage0(net.normalise(images))
        branch = block.branch(stem.relu())
    found = norms(net, images, batch=2).loc["stage1.resblk1"]
    assert found.branch == pytest.approx((branch.square().sum() / 5).sqrt().item(), rel=1e-5)
    assert found.skip == pytest.approx((stem.square().sum() / 5).sqrt().item(), rel=1e-5)
    assert found.ratio == pytest.approx(found.branch / found.skip)


def test_every_block_has_a_row_in_order(images):
    net = narrow()
    assert list(norms(net, images).index) == list(residual_blocks(net))


@pytest.mark.parametrize("version", [1, 2])
def test_branches_scaled_by_zero_add_nothing(images, version):
    found = norms(narrow(branch_scale=0.0, version=version), images)
    assert (found.branch == 0).all()
    assert (found.skip > 0).all()


def test_the_skip_of_a_block_without_projection_carries_its_input(images):
    net = narrow(branch_scale=0.0)
    found = norms(net, images)
    assert found.skip["stage2.resblk2"] == pytest.approx(found.skip["stage2.resblk1"])


def test_a_skip_of_zero_has_no_ratio(images):
    net = narrow()
    with torch.no_grad():
        for parameter in net.stage0.parameters():
            parameter.zero_()
    assert norms(net, images).ratio.isna()["stage1.resblk1"]


def test_the_model_stays_as_it_was(images):
    net = narrow(batch_norm=True).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    norms(net, images)
    assert net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not any(block._forward_hooks for block in residual_blocks(net).values())


def test_networks_without_blocks_are_refused(images):
    with pytest.raises(ValueError, match="residual blocks"):
        norms(networks.build("vgg11", base_width=2), images)
