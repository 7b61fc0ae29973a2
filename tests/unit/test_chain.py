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


def kept(model):
    """What a network makes of images, and whether each ReLU of its chain writes in place."""
    chain = Chain(model)
    relus = [m.inplace for m in chain.root.modules() if isinstance(m, nn.ReLU)]
    with torch.no_grad():
        images = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
        assert torch.equal(chain.rest(images.clone(), 0), model(images))
    return relus


def test_a_relu_behind_a_layer_writes_in_place_in_the_copy_only():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()))
    assert kept(model.eval()) == [True, True]
    assert not any(module.inplace for module in model.modules() if isinstance(module, nn.ReLU))


def test_a_relu_of_what_others_may_see_does_not_write_in_place():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.before = nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Identity())

        def forward(self, x):
            return x + self.linear(self.before(x))

    assert kept(nn.Sequential(nn.Linear(3, 3), Skip(), nn.Identity(), nn.ReLU())) == [False, False]


def test_a_relu_that_stands_at_two_places_is_judged_at_each():
    relu = nn.ReLU()
    assert kept(nn.Sequential(relu, nn.Linear(3, 3), relu)) == [False, True]


def test_a_hook_may_keep_what_it_sees():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    seen = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert kept(model) == [False]
    assert torch.equal(seen[0], seen[1])
