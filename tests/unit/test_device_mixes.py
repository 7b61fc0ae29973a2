"""Training and evaluation on "cuda" without one: fake tensors know devices and no numbers.

An operation on tensors of two devices raises, as it would on a GPU.
"""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from paperlib import networks
from paperlib.robustness import chain, evaluate
from paperlib.training import data, feeding, loop
from paperlib.training.data import Images
from paperlib.training.recipe import Recipe

CUDA = torch.device("cuda")
MIX = "two different devices|on the same device"  # as versions of PyTorch say it
PICTURES = {"image_shape": (3, 32, 32), "mean": (0.5, 0.5, 0.5), "std": (1, 1, 1)}
NETWORKS = {
    "resnet18": {"base_width": 2, "batch_norm": True},
    "vgg11": {"base_width": 2},
    "mlp": {"hidden": 1, "width": 4},
}


def build(name):
    return networks.build(name, seed=0, **NETWORKS[name], **PICTURES)


def moved(model, mode):
    """The network on the fake GPU; neither `to` nor `load_state_dict` takes fake tensors."""
    for module in model.modules():
        for key, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, key, nn.Parameter(mode.from_tensor(parameter).detach().to(CUDA)))
        for key, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, key, mode.from_tensor(buffer).to(CUDA))
    return model


def fill_gradients(model):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)


def train(name, monkeypatch):
    """The steps of an epoch, which the first look at a number ends, as there are none."""
    # Both ask for a real GPU. Gradients are where their parameters are.
    monkeypatch.setattr(loop, "_global_seed", lambda *_: nullcontext())
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: fill_gradients(model))
    recipe = Recipe(1, 0.1, batch_size=2, clip_norm=1.0, weight_decay=0.1, augment=True)
    model = build(name)
    with FakeTensorMode() as mode:
        model = moved(model, mode)
        pixels = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
        feed = feeding.Feed(Images(pixels, torch.arange(5), "fake", ""), CUDA)
        optimiser = loop._Optimiser(loop._trained(model, recipe), recipe)
        steps = []
        step = optimiser.step
        monkeypatch.setattr(optimiser, "step", lambda lr: steps.append(step(lr)))
        with pytest.raises(DataDependentOutputException):
            loop._epoch(model, optimiser, feed, recipe, seed=0, epoch=0)
        assert len(steps) == 3
        assert {buffer.device.type for buffer in optimiser.momentum.values()} == {"cuda"}
        kept = loop._checkpoint(1, model, optimiser, {})
        assert {tensor.device.type for tensor in kept.model.values()} == {"cpu"}


def walk(name, monkeypatch):
    """Every layer reset, of a network on the GPU, with states and images on the CPU."""
    # A deep copy of fake tensors has a mode of its own, which does not mix with this one.
    monkeypatch.setattr(chain.copy, "deepcopy", lambda model: model)
    model, state = build(name), build(name).state_dict()
    layers = networks.layers(model)
    with FakeTensorMode() as mode:
        network = chain.Chain(moved(model, mode))
        images, labels = torch.rand(5, 3, 32, 32), torch.arange(5)
        network.lay_out(images[:1])
        state = {key: mode.from_tensor(tensor) for key, tensor in state.items()}
        base = network.fitted(state, "the state")
        # The walk would not show it: fake tensors keep their device when their data are exchanged.
        assert {tensor.device.type for tensor in base.values()} == {"cuda"}
        cells = [evaluate._Cell("fullmodel", 1, None, {})]
        for layer, names in layers.items():
            start = min(network.position[n] for n in names)
            cells.append(evaluate._Cell(layer, 0, start, {n: base[n] for n in names}))
        found = evaluate._Walk(network, base, cells, 9, "float32").wrong(images, labels, batch=2)
        assert found.shape == (len(cells), 5)
        assert found.device.type == "cuda"
        assert (network.layout == torch.channels_last) == (name != "mlp")


@pytest.mark.parametrize("name", NETWORKS)
def test_training_stays_on_the_device(name, monkeypatch):
    train(name, monkeypatch)


@pytest.mark.parametrize("name", NETWORKS)
def test_resets_stay_on_the_device(name, monkeypatch):
    walk(name, monkeypatch)


@pytest.mark.parametrize("left", ["batch", "targets", "crops"])
def test_a_part_of_training_that_is_left_on_the_cpu_is_caught(left, monkeypatch):
    batches, augment = feeding.Feed.batches, data.augment

    def mixed(self, order, size):
        for batch, targets in batches(self, order, size):
            yield (batch.cpu(), targets) if left == "batch" else (batch, targets.cpu())

    if left == "crops":
        monkeypatch.setattr(data, "augment", lambda images, *rest: augment(images.cpu(), *rest))
    else:
        monkeypatch.setattr(feeding.Feed, "batches", mixed)
    with pytest.raises(RuntimeError, match=MIX):
        train("resnet18", monkeypatch)


@pytest.mark.parametrize("left", ["inputs", "answers", "state"])
def test_a_part_of_the_walk_that_is_left_on_the_cpu_is_caught(left, monkeypatch):
    wrong, fitted = evaluate._wrong, chain.Chain.fitted

    def late(outputs, labels, highest):
        return wrong(outputs, labels.cpu(), highest)

    def unmoved(self, state, what):
        return {name: tensor.cpu() for name, tensor in fitted(self, state, what).items()}

    if left == "inputs":
        monkeypatch.setattr(chain.Chain, "placed", lambda self, inputs: inputs.clone())
    elif left == "answers":
        monkeypatch.setattr(evaluate, "_wrong", late)
    else:
        monkeypatch.setattr(chain.Chain, "fitted", unmoved)
    with pytest.raises((RuntimeError, AssertionError), match=f"{MIX}|'cpu'"):
        walk("resnet18", monkeypatch)
