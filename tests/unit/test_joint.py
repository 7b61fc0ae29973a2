import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paperlib import networks
from paperlib.robustness import joint
from paperlib.robustness.evaluate import matrix

FCN = [f"layer{i}" for i in range(1, 7)]


def test_patterns_of_figure_11():
    assert joint.all_but_first(FCN) == ["layer2", "layer3", "layer4", "layer5", "layer6"]
    assert joint.every_other(FCN) == ["layer2", "layer4", "layer6"]
    assert joint.two_in_three(FCN) == ["layer2", "layer3", "layer5", "layer6"]


def resnet(*numbers: int) -> list[str]:
    blocks = [f"stage{s}.resblk{b}" for s, n in enumerate(numbers, 1) for b in range(1, n + 1)]
    return ["stage0", *blocks, "final_linear"]


def test_groups_of_residual_blocks_of_a_resnet_50():
    layers = resnet(3, 4, 6, 3)
    assert joint.residual_blocks(layers) == layers[1:-1]
    later = joint.later_blocks(layers)
    assert len(later) == 12
    assert not [name for name in later if name.endswith("resblk1")]
    assert joint.outer_blocks(layers) == [f"stage{s}.resblk{b}" for s in (1, 4) for b in (2, 3)]
    assert joint.alternate_blocks(layers) == [
        *("stage1.resblk2", "stage2.resblk2", "stage2.resblk4", "stage3.resblk2"),
        *("stage3.resblk4", "stage3.resblk6", "stage4.resblk2"),
    ]


def test_a_number_of_two_digits_is_a_block_s_too():
    assert joint.alternate_blocks(resnet(1, 12, 1, 1))[-1] == "stage2.resblk12"
    assert len(joint.later_blocks(resnet(1, 12, 1, 1))) == 11


def test_a_network_without_residual_blocks_has_no_such_group():
    assert joint.residual_blocks(["stage1.block1", "stage1.block2", "fc1"]) == []


def test_groups_of_a_size_are_all_or_so_many_different_ones():
    rng = np.random.default_rng(0)
    assert joint.of_size("abc", 2, 3, rng) == [("a", "b"), ("a", "c"), ("b", "c")]
    drawn = joint.of_size("abcdef", 3, 12, rng)  # out of 20
    assert len(set(drawn)) == 12
    assert all(list(group) == sorted(group) and len(set(group)) == 3 for group in drawn)
    assert joint.of_size("abc", 2, 0, rng) == []


def test_a_group_owns_the_tensors_of_its_layers():
    layers = {"layer1": ["0.weight", "0.bias"], "layer2": ["2.weight"], "layer3": ["4.weight"]}
    groups = {"odd": ["layer1", "layer3"], "second": ["layer2"]}
    assert joint.union(layers, groups) == {
        "odd": ["0.weight", "0.bias", "4.weight"],
        "second": ["2.weight"],
    }


@pytest.mark.parametrize("members", [[], ["layer9"], "layer1", ["layer1", "layer1"]])
def test_groups_that_mean_nothing_are_refused(members):
    with pytest.raises(ValueError, match="group 'a'"):
        joint.union({"layer1": ["0.weight"]}, {"a": members})


def trained() -> tuple[nn.Module, dict[int, dict[str, Tensor]], Tensor, Tensor]:
    """A network of four layers, its states before and after (a stand-in for) training, and data.

    Labels are those of the final network, so its error is 0.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layers: list[nn.Module] = []
        for fan_in, fan_out in [(6, 8), (8, 8), (8, 8), (8, 4)]:
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        model = nn.Sequential(*layers[:-1]).double()
        start = {name: t.clone() for name, t in model.state_dict().items()}
        shift = {"0": 0.3, "2": 0.05, "4": 0.6, "6": 0.1}
        final = {n: t + shift[n[0]] * torch.randn_like(t) for n, t in start.items()}
        model.load_state_dict(final)
        images = torch.rand(200, 6, dtype=torch.float64)
        labels = model(images).argmax(1)
    return model, {0: start, 9: final}, images, labels


def test_a_joint_reset_of_all_layers_is_the_whole_checkpoint():
    model, states, images, labels = trained()
    layers = networks.layers(model)
    groups = joint.union(layers, {"all": list(layers), "first": ["layer1"]})
    table = matrix(model, states, images, labels, layers=groups, rerandomise=0)
    assert table.loc["all", 0] == table.loc["fullmodel", 0]
    single = matrix(model, states, images, labels, rerandomise=0)
    assert table.loc["first", 0] == single.loc["layer1", 0]


def test_greedy_adds_the_least_harmful_layer_each_time():
    model, states, images, labels = trained()
    found = joint.greedy(model, states, images, labels)
    layers = networks.layers(model)
    chosen: set[str] = set()
    for row in found.itertuples():
        candidates = {n: [*sorted(chosen), n] for n in layers if n not in chosen}
        groups = joint.union(layers, candidates)
        wanted = matrix(model, states, images, labels, layers=groups, rerandomise=0)[0]
        wanted = wanted.drop("fullmodel")
        assert (row.added, row.error) == (wanted.idxmin(), wanted.min())
        chosen.add(row.added)
        assert row.size == len(chosen)
        assert list(row.group) == [name for name in layers if name in chosen]
    whole = matrix(model, states, images, labels, rerandomise=0).loc["fullmodel", 0]
    assert found.error.iloc[-1] == whole
    assert found.error.iloc[0] < found.error.iloc[-1]


def test_greedy_needs_the_epoch():
    model, states, images, labels = trained()
    with pytest.raises(ValueError, match=r"no state of epoch 1; there are \[0, 9\]"):
        joint.greedy(model, states, images, labels, epoch=1)
