"""A network is taken apart only where running its parts in a row is what it does."""

import torch
from torch import nn

from paperlib.robustness.chain import Chain


class Negated(nn.Sequential):
    def __call__(self, inputs):
        return -super().__call__(inputs)


def output(model):
    chain = Chain(model)
    with torch.no_grad():
        return chain.rest(torch.eye(3), 0)


def test_a_sequential_is_taken_apart():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    assert len(Chain(model).elements) == 3
    assert torch.equal(output(model), model(torch.eye(3)).detach())


def test_a_sequential_with_a_call_of_its_own_stays_whole():
    model = Negated(nn.Linear(3, 2))
    assert torch.equal(output(model), model(torch.eye(3)).detach())


def test_a_sequential_with_a_patched_forward_stays_whole():
    model = nn.Sequential(nn.Linear(3, 2))
    model.forward = lambda inputs: torch.full((len(inputs), 2), 7.0)
    assert torch.equal(output(model), torch.full((3, 2), 7.0))
