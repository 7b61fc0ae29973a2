"""The training loop, on synthetic images."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from paperlib.networks import mlp
from paperlib.training import data, feeding, loop
from paperlib.training.loop import Diverged, train
from paperlib.training.recipe import Recipe, lr_at


def net(seed=0, **options):
    return mlp(2, 16, seed, image_shape=(1, 8, 8), classes=4, mean=(0.5,), std=(0.25,), **options)


def trained(images, recipe, seed=0, **options):
    model = net()
    checkpoints = []
    train(model, images, recipe, seed, on_epoch=checkpoints.append, **options)
    return model, checkpoints


def assert_equal(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_it_is_the_usual_loop(synthetic):
    recipe = Recipe(3, 0.05, batch_size=64, weight_decay=1e-3, clip_norm=0.5)
    ours, checkpoints = trained(synthetic, recipe)

    theirs = net()
    optimiser = torch.optim.SGD(theirs.parameters(), lr=1, momentum=0.9, weight_decay=1e-3)
    for epoch in range(3):
        order = data.epoch_order(300, 0, epoch)
        optimiser.param_groups[0]["lr"] = lr_at(recipe, epoch)
        losses = 0.0
        for chosen in order.split(64):
            x = synthetic.images[chosen].float() / 255
            loss = F.cross_entropy(theirs(x), synthetic.labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            optimiser.step()
            losses += loss.item() * len(chosen)
        assert checkpoints[epoch + 1].row["loss"] == pytest.approx(losses / 300, rel=1e-5)
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)


def test_the_learning_rate_of_warm_up_changes_from_step_to_step(synthetic):
    recipe = Recipe(1, 0.05, batch_size=100, warmup=3)
    ours, _ = trained(synthetic, recipe)
    theirs = net()
    optimiser = torch.optim.SGD(theirs.parameters(), lr=1, momentum=0.9)
    for step, chosen in enumerate(data.epoch_order(300, 0, 0).split(100), start=1):
        optimiser.param_groups[0]["lr"] = 0.05 * step / 9
        loss = F.cross_entropy(
            theirs(synthetic.images[chosen].float() / 255), synthetic.labels[chosen]
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)


def test_photos_that_are_larger_than_the_network_takes_are_cropped(synthetic):
    larger = replace(synthetic, images=F.pad(synthetic.images, (1, 1, 1, 1), value=7), trim=2)
    _, plain = trained(synthetic, Recipe(1, 0.05))
    _, centred = trained(larger, Recipe(1, 0.05))
    assert_equal(centred[-1].model, plain[-1].model)
    _, cropped = trained(larger, Recipe(1, 0.05, augment=True))
    assert not torch.equal(cropped[-1].model["layer1.weight"], plain[-1].model["layer1.weight"])


def test_images_that_are_read_ahead_give_the_same_bits(synthetic, monkeypatch):
    recipe = Recipe(2, 0.05, batch_size=64, augment=True)
    _, resident = trained(synthetic, recipe)
    monkeypatch.setattr(feeding, "RESIDENT", 0)
    _, ahead = trained(synthetic, recipe)
    assert_equal(ahead[-1].model, resident[-1].model)


def test_it_learns(synthetic):
    model, checkpoints = trained(synthetic, Recipe(8, 0.05))
    hits = model(data.as_input(synthetic.images)).argmax(1) == synthetic.labels
    assert hits.float().mean() > 0.95
    assert checkpoints[-1].row["accuracy"] > 0.9
    assert not model.training


def test_the_version_stands_for_these_numbers(synthetic):
    # Stored runs are found by loop.VERSION: where these numbers change, raise it.
    assert loop.VERSION == 1
    _, checkpoints = trained(synthetic, Recipe(2, 0.02, augment=True, clip_norm=1.0))
    state = checkpoints[-1].model
    numbers = [checkpoints[1].row["loss"], checkpoints[2].row["loss"]]
    numbers += [state["layer1.weight"].sum().item(), state["layer3.bias"][0].item()]
    assert numbers == pytest.approx([1.39138, 1.39718, 5.38710, 0.0031988], rel=2e-3)


def test_the_checkpoint_at_initialisation_does_not_follow_the_training(synthetic):
    _, checkpoints = trained(synthetic, Recipe(1, 0.05))
    assert [c.epoch for c in checkpoints] == [0, 1]
    assert_equal(checkpoints[0].model, net().state_dict())
    assert not torch.equal(
        checkpoints[0].model["layer1.weight"], checkpoints[1].model["layer1.weight"]
    )


class Noisy(nn.Module):
    """A network with dropout and running statistics."""

    def __init__(self):
        super().__init__()
        self.body = net()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(F.dropout(self.body(x), 0.2, self.training))


@pytest.mark.parametrize("options", [{}, {"augment": True}, {"momentum": 0.0}])
def test_going_on_from_any_checkpoint_gives_the_same_bits(synthetic, options):
    recipe = Recipe(4, 0.05, **options)
    whole = []
    train(Noisy(), synthetic, recipe, 7, on_epoch=whole.append)
    for start in whole:
        before = copy.deepcopy(start)
        rest = []
        model = Noisy()
        train(model, synthetic, recipe, 7, start_state=start, on_epoch=rest.append)
        assert [c.epoch for c in rest] == list(range(start.epoch + 1, 5))
        assert_equal(model.state_dict(), whole[-1].model)
        assert_equal(start.momentum, before.momentum)
        if rest:
            assert_equal(rest[-1].momentum, whole[-1].momentum)


def test_a_seed_fixes_the_training_and_another_changes_it(synthetic):
    recipe = Recipe(1, 0.05, augment=True)
    first, again, other = (trained(synthetic, recipe, seed)[0].state_dict() for seed in (0, 0, 1))
    assert_equal(first, again)
    assert not torch.equal(first["layer1.weight"], other["layer1.weight"])


def test_global_generators_and_threads_are_left_as_they_were(synthetic):
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train(Noisy(), synthetic, Recipe(1, 0.05, threads=threads + 1), 0)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_frozen_layers_stay_and_the_others_learn(synthetic):
    model, checkpoints = trained(synthetic, Recipe(2, 0.05, weight_decay=0.1, frozen=("layer2",)))
    moved = {
        name: not torch.equal(tensor, checkpoints[0].model[name])
        for name, tensor in model.state_dict().items()
    }
    assert moved == {f"layer{i}.{kind}": i != 2 for i in (1, 2, 3) for kind in ("weight", "bias")}
    with pytest.raises(ValueError, match="did you mean 'layer2'"):
        train(net(), synthetic, Recipe(1, 0.05, frozen=("layer22",)), 0)
    with pytest.raises(ValueError, match="leave at least one"):
        train(net(), synthetic, Recipe(1, 0.05, frozen=("layer1", "layer2", "layer3")), 0)


def test_bfloat16_trains_close_to_float32(synthetic):
    exact, half = (
        trained(synthetic, Recipe(3, 0.05, precision=p))[1] for p in ("float32", "bfloat16")
    )
    assert half[-1].row["loss"] == pytest.approx(exact[-1].row["loss"], abs=0.05)
    assert half[-1].row["loss"] != exact[-1].row["loss"]
    assert all(t.dtype == torch.float32 for t in half[-1].model.values())


def test_a_training_that_diverges_stops_and_says_what_to_do(synthetic):
    checkpoints = []
    with pytest.raises(Diverged, match=r"in epoch 1 of 5: .*lr 1e\+30.*Lower lr, or set clip_norm"):
        train(net(), synthetic, Recipe(5, 1e30), 0, on_epoch=checkpoints.append)
    assert [c.epoch for c in checkpoints] == [0]


def test_progress_shows_loss_and_accuracy(synthetic, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "log")
    monkeypatch.setattr("paperlib.progress.EVERY", 0.0)
    trained(synthetic, Recipe(2, 0.05), label="mlp on synthetic")
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("mlp on synthetic: epochs: 1 of 2, 0 s left, loss ")
    assert ", accuracy 0." in first
