import math

import pytest

from paperlib.training.recipe import Recipe, lr_at


def test_the_paper_lowers_the_learning_rate_at_30_60_and_90_of_100_epochs():
    recipe = Recipe(epochs=100, lr=0.01)
    rates = [lr_at(recipe, epoch) for epoch in range(100)]
    changes = [epoch for epoch in range(1, 100) if rates[epoch] != rates[epoch - 1]]
    assert changes == [30, 60, 90]
    assert rates[0] == 0.01
    assert rates[-1] == pytest.approx(0.01 * 0.2**3)


def test_milestones_of_a_short_training_stand_at_the_nearest_epoch():
    recipe = Recipe(epochs=12, lr=1.0, gamma=0.5)  # 3.6, 7.2, 10.8
    rates = [lr_at(recipe, epoch) for epoch in range(12)]
    assert rates == [1.0] * 4 + [0.5] * 3 + [0.25] * 4 + [0.125]


def test_a_single_epoch_has_the_initial_learning_rate():
    assert lr_at(Recipe(epochs=1, lr=0.5), 0) == 0.5


def test_the_learning_rate_rises_by_equal_steps_in_warm_up():
    recipe = Recipe(epochs=20, lr=1.0, warmup=2)
    steps = [lr_at(recipe, epoch, part / 4) for epoch in range(3) for part in range(1, 5)]
    assert steps == [n / 8 for n in range(1, 9)] + [1.0] * 4


def test_the_defaults_are_those_of_the_paper():
    recipe = Recipe(epochs=100, lr=0.01)
    assert (recipe.batch_size, recipe.momentum, recipe.weight_decay) == (128, 0.9, 0.0)
    assert recipe.clip_norm is None
    assert recipe.frozen == ()


def test_equal_recipes_are_equal_however_they_are_written():
    assert Recipe(3, 1, frozen=["layer1"]) == Recipe(3, 1.0, frozen=("layer1",))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1"),
        ({"epochs": 2.5}, "epochs must be an integer"),
        ({"lr": -0.1}, "lr must be a finite number of at least 0"),
        ({"lr": math.nan}, "lr must be a finite number"),
        ({"clip_norm": -1}, "clip_norm"),
        ({"precision": "bf16"}, "did you mean 'bfloat16'"),
        ({"frozen": "layer1"}, "tuple of layers"),
        ({"milestones": (0.6, 0.3)}, "rising fractions"),
        ({"warmup": -1}, "warmup"),
        ({"milestones": (30, 60, 90)}, "rising fractions"),
        ({"threads": 0}, "threads"),
    ],
)
def test_what_is_not_allowed_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**{"epochs": 3, "lr": 0.1} | wrong)
