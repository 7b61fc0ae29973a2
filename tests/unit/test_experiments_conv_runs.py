"""Which networks the convolutional figures train."""

import pytest

from paperlib import networks
from paperlib.experiments import conv_runs
from paperlib.networks import resnet

COMMON = {
    "base_width": 4,
    "lr": 0.1,
    "epochs": 12,
    "train_images": 1000,
    "seed": 0,
    "precision": "float32",
}


def spec(network, **options):
    return conv_runs.spec(network, **COMMON | options)


def test_the_recipe_is_the_paper_s():
    recipe = spec("resnet18").recipe
    assert (recipe.batch_size, recipe.momentum, recipe.milestones) == (128, 0.9, (0.3, 0.6, 0.9))
    assert recipe.augment
    assert recipe.weight_decay == 0
    assert not spec("resnet18").options["batch_norm"]


@pytest.mark.parametrize(
    ("configuration", "decay", "batch_norm"),
    [("plain", 0, False), ("wd", 5e-4, False), ("bn", 0, True), ("wd+bn", 5e-4, True)],
)
def test_configurations_switch_weight_decay_and_batch_norm(configuration, decay, batch_norm):
    made = spec("vgg16", configuration=configuration)
    assert made.recipe.weight_decay == decay
    norms = [n for n, _ in made.build().named_buffers() if n.endswith("running_mean")]
    assert len(norms) == (13 if batch_norm else 0)


def test_frozen_blocks_are_all_but_the_first_of_each_stage():
    made = spec("resnet50", treatment="frozen")
    kept = [layer for layer in networks.layers(made.build()) if layer not in made.recipe.frozen]
    first = [f"stage{s}.resblk1" for s in range(1, 5)]
    assert kept == ["stage0", *first, "final_linear"]
    assert len(made.recipe.frozen) == 12


def test_removed_blocks_leave_one_network_whatever_the_depth():
    shapes = {
        name: {n: t.shape for n, t in spec(name, treatment="removed").build().state_dict().items()}
        for name in ("resnet50", "resnet101", "resnet152")
    }
    assert shapes["resnet50"] == shapes["resnet101"] == shapes["resnet152"]


def test_deep_resnets_on_imagenet_have_half_the_batch():
    sizes = {
        name: spec(name, dataset="imagenet").recipe.batch_size
        for name in ("resnet18", "resnet50", "resnet101", "resnet152")
    }
    assert sizes == {"resnet18": 128, "resnet50": 128, "resnet101": 64, "resnet152": 64}
    assert spec("resnet152").recipe.batch_size == 128


def test_auto_is_the_photos_at_hand_or_the_stand_in(monkeypatch):
    for variable in ("IMAGENET", "IMAGENETTE"):
        monkeypatch.delenv(variable, raising=False)
    assert spec("resnet18", dataset="auto").data == "imagenet-standin"
    monkeypatch.setenv("IMAGENETTE", "photos/small")
    assert spec("resnet18", dataset="auto").data == "imagenette"
    monkeypatch.setenv("IMAGENET", "photos/large")
    assert spec("resnet18", dataset="auto").data == "imagenet"
    assert spec("resnet18").data == "cifar10"


def test_scaled_branches_are_another_run_and_unscaled_ones_the_same():
    scaled = spec("resnet18", branch_scale=0.0)
    assert scaled.folder_name != spec("resnet18").folder_name
    assert spec("resnet18", branch_scale=1.0).folder_name == spec("resnet18").folder_name
    last = [block.branch.conv2.weight for block in resnet.residual_blocks(scaled.build()).values()]
    assert not any(weight.any() for weight in last)


def test_titles_are_as_one_writes_them():
    assert [conv_runs.title(n) for n in ("vgg16", "resnet26b")] == ["VGG-16", "ResNet-26b"]


def test_the_states_of_the_figures_are_kept():
    assert spec("vgg11").kept == (0, 1, 10, 12)
    assert spec("vgg11", epochs=4).kept == (0, 1, 4)


def test_seeds_and_settings_multiply():
    common = {name: value for name, value in COMMON.items() if name != "seed"}
    made = conv_runs.specs(["vgg11", "vgg16"], configurations=["plain", "wd"], seeds=3, **common)
    assert len({one.folder_name for one in made}) == 12


@pytest.mark.parametrize(
    ("network", "options", "words"),
    [
        ("vgg16", {"treatment": "frozen"}, "no residual blocks"),
        ("resnet18", {"configuration": "wd-bn"}, "did you mean"),
        ("densenet121", {}, "family"),
        ("vgg16", {"treatment": "deleted"}, "treatment"),
        ("vgg16", {"branch_scale": 0.0}, "to be scaled"),
    ],
)
def test_what_is_not_there_is_refused(network, options, words):
    with pytest.raises(ValueError, match=words):
        spec(network, **options)
