"""What trainings cost, against counts by hand."""

from dataclasses import replace

import pytest
import torch

from paperlib.training import cost
from paperlib.training.recipe import Recipe
from paperlib.training.runs import Spec

FCN = Spec("mlp", {"hidden": 3, "width": 256}, Recipe(8, 0.01), "mnist")
WEIGHTS = 784 * 256 + 2 * 256 * 256 + 256 * 10
BIASES = 3 * 256 + 10


def test_a_fully_connected_network_costs_six_operations_a_weight_an_image_and_an_epoch():
    assert cost.estimate([FCN]).flop == 6 * WEIGHTS * 60_000 * 8
    assert cost.estimate([replace(FCN, train_images=100)]).flop == 6 * WEIGHTS * 100 * 8


def test_a_convolution_costs_two_operations_a_weight_and_a_pixel():
    options = {"blocks": [1, 1, 1, 1], "base_width": 4, "image_shape": [3, 8, 8]}
    spec = Spec("resnet18", options, Recipe(1, 0.1), "mine", train_images=10)
    stem = 3 * 4 * 9 * 64
    first = 2 * 4 * 4 * 9 * 64
    others = sum(
        (c * 2 * c * 9 + 4 * c * c * 9 + 2 * c * c) * pixels
        for c, pixels in ((4, 16), (8, 4), (16, 1))
    )
    assert cost.shape(spec).flop == 2 * (stem + first + others + 32 * 10)


def test_resnet18_on_imagenet_has_the_published_count():
    options = {"version": 1, "batch_norm": True, "stem": "imagenet", "image_shape": [3, 224, 224]}
    spec = Spec("resnet18", options | {"classes": 1000}, Recipe(1, 0.1), "mine", train_images=10)
    assert cost.shape(spec).flop / 2 == pytest.approx(1.81e9, rel=0.01)  # multiply-adds


def test_the_store_holds_the_kept_states():
    every = cost.estimate([FCN, replace(FCN, seed=1)])
    assert every.stored == 2 * 9 * 4 * (WEIGHTS + BIASES)
    few = cost.estimate([replace(FCN, keep_epochs=(1,))])
    assert few.stored == 3 * 4 * (WEIGHTS + BIASES)


def test_jobs_share_the_time_but_no_run_is_divided(monkeypatch):
    monkeypatch.setattr(cost, "OVERHEAD", 0)
    one = cost.estimate([FCN]).seconds
    assert one == pytest.approx(6 * WEIGHTS * 480_000 / cost.CORE["float32"])
    runs = [replace(FCN, seed=seed) for seed in range(4)]
    assert cost.estimate(runs).seconds == pytest.approx(4 * one)
    assert cost.estimate(runs, jobs=2).seconds == pytest.approx(2 * one)
    assert cost.estimate(runs, jobs=8).seconds == pytest.approx(one)
    assert cost.estimate([]).seconds == 0


def test_small_steps_have_an_overhead(monkeypatch):
    monkeypatch.setitem(cost.CORE, "float32", float("inf"))
    spec = replace(FCN, train_images=129)  # 2 steps an epoch, 4 layers
    assert cost.estimate([spec]).seconds == pytest.approx(2 * 8 * 4 * cost.OVERHEAD)


def test_another_device_is_measured(monkeypatch):
    monkeypatch.setattr(cost, "PRODUCT", 64)
    monkeypatch.setattr(cost, "TIMED", 0.01)
    speed = cost._product_rate(torch.device("cpu"), torch.float32)
    assert 1e6 < speed < 1e13
    monkeypatch.setattr(cost, "_product_rate", lambda device, dtype: 100.0)
    assert cost.rate(torch.device("cuda"), "bfloat16") == pytest.approx(10.0)


def test_the_estimate_is_a_sentence_with_its_assumption():
    made = cost.Estimate(30, 4.5e18, 7.6e4, 3 << 30, "cuda, 1 at a time", "70,000 GFLOP/s in x")
    assert str(made) == (
        "30 runs, about 4,500 PFLOP, about 21 hours on cuda, 1 at a time, 3 GiB of store "
        "(assumed: 70,000 GFLOP/s in x)"
    )
    assert "about 2 minutes" in str(replace(made, seconds=120))


def test_what_a_spec_does_not_tell_is_asked_for():
    own = Spec("mlp", {"hidden": 1, "width": 4, "image_shape": [1, 8, 8]}, Recipe(1, 0.1), "mine")
    with pytest.raises(ValueError, match="give train_images"):
        cost.estimate([own])
    with pytest.raises(ValueError, match="give image_shape"):
        cost.estimate([replace(own, options={"hidden": 1, "width": 4}, train_images=10)])
