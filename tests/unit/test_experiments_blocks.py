"""Fig. 10 of `layers`: the diagrams follow the modules."""

import pytest
from torch import nn

from paperlib.experiments import layers_blocks
from paperlib.experiments.layers_blocks import DOWNSAMPLE, IDENTITY, INPUT, SUM, Node


def steps(version, shape, kind, *, batch_norm=False, base_width=64):
    return layers_blocks.nodes(layers_blocks.blocks(base_width, batch_norm)[version, shape, kind])


def test_the_identity_skip_of_version_2_carries_the_input_itself():
    assert steps(2, "basic", IDENTITY) == [
        Node(INPUT, "input"),
        Node("before.relu", "ReLU", (INPUT,)),
        Node("branch.conv1", "3×3 conv\n128 → 128", ("before.relu",)),
        Node("branch.relu1", "ReLU", ("branch.conv1",)),
        Node("branch.conv2", "3×3 conv\n128 → 128", ("branch.relu1",)),
        Node(SUM, SUM, ("branch.conv2", INPUT)),
    ]


def test_the_downsample_skip_of_version_2_starts_behind_the_activation():
    found = {node.name: node for node in steps(2, "bottleneck", DOWNSAMPLE)}
    assert found["skip.conv"].sources == ("before.relu",)
    assert found["skip.conv"].label == "1×1 conv, /2\n256 → 512"
    assert found["branch.conv2"].label == "3×3 conv, /2\n128 → 128"


def test_version_1_activates_behind_the_sum():
    found = steps(1, "basic", DOWNSAMPLE)
    assert (found[-1].label, found[-1].sources) == ("ReLU", (SUM,))
    assert next(node for node in found if node.name == "skip.conv").sources == (INPUT,)


def test_batch_norms_are_drawn_where_they_run():
    labels = [node.label for node in steps(2, "basic", IDENTITY, batch_norm=True)]
    assert labels == [
        "input",
        *("batch norm\n128", "ReLU", "3×3 conv\n128 → 128"),
        *("batch norm\n128", "ReLU", "3×3 conv\n128 → 128"),
        SUM,
    ]


def test_widths_are_those_of_the_network():
    assert "3×3 conv\n16 → 16" in [n.label for n in steps(2, "basic", IDENTITY, base_width=8)]


def texts(drawn):
    return [text.get_text() for ax in layers_blocks.draw(drawn).axes for text in ax.texts]


def test_a_changed_block_changes_its_drawing():
    key = (2, "basic", IDENTITY)
    block = layers_blocks.blocks(64, False)[key]
    before = texts({key: block})
    block.branch.conv2 = nn.Conv2d(128, 128, 5, padding=2)
    block.branch.append(nn.Dropout())
    after = texts({key: block})
    assert "5×5 conv\n128 → 128" in after and "Dropout" in after
    assert "5×5 conv\n128 → 128" not in before and "Dropout" not in before
    assert before.count("3×3 conv\n128 → 128") == after.count("3×3 conv\n128 → 128") + 1


@pytest.mark.parametrize("batch_norm", [False, True])
def test_every_step_of_every_block_is_drawn(batch_norm):
    drawn = layers_blocks.blocks(64, batch_norm)
    found = texts(drawn)
    for block in drawn.values():
        for node in layers_blocks.nodes(block):
            assert node.label in found


def test_the_table_counts_the_parameters_of_a_block():
    rows = layers_blocks.table(layers_blocks.blocks(64, False))
    block = rows[(rows.version == 2) & (rows["shape"] == "basic") & (rows["skip"] == DOWNSAMPLE)]
    # Two 3×3 convolutions from 64 and 128 channels to 128, a 1×1 one from 64, and their biases.
    assert block.parameters.sum() == 9 * (64 + 128) * 128 + 64 * 128 + 3 * 128
