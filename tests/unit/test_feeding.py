"""Batches of images on the device."""

import threading
import time

import pytest
import torch

from paperlib.training import feeding
from paperlib.training.feeding import Feed

CPU = torch.device("cpu")


@pytest.fixture(params=[feeding.RESIDENT, 0], ids=["resident", "read ahead"])
def feed(request, synthetic, monkeypatch):
    monkeypatch.setattr(feeding, "RESIDENT", request.param)
    return Feed(synthetic, CPU)


@pytest.mark.parametrize("size", [7, 64, 100, 300, 400])
def test_batches_follow_the_order(feed, synthetic, size):
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    batches = list(feed.batches(order, size))
    assert [len(labels) for _, labels in batches] == [len(part) for part in order.split(size)]
    assert torch.equal(torch.cat([images for images, _ in batches]), synthetic.images[order])
    assert torch.equal(torch.cat([labels for _, labels in batches]), synthetic.labels[order])


def test_views_are_read_in_their_own_shape(feed, synthetic, monkeypatch):
    order = torch.arange(10)
    monkeypatch.setattr(feed, "_pixels", synthetic.images[:, :, 1:5, 2:8])
    [(images, _)] = feed.batches(order, 10)
    assert torch.equal(images, synthetic.images[:10, :, 1:5, 2:8])


def test_reading_ahead_holds_a_bounded_number_of_batches(synthetic, monkeypatch):
    monkeypatch.setattr(feeding, "RESIDENT", 0)
    feed, read = Feed(synthetic, CPU), []
    monkeypatch.setattr(feed, "_read", lambda numbers: read.append(numbers) or numbers)
    batches = feed.batches(torch.arange(300), 10)
    for taken in range(1, 4):
        next(batches)
        time.sleep(0.05)
        assert len(read) == feeding.READERS + taken


def test_readers_end_with_the_training(synthetic, monkeypatch):
    monkeypatch.setattr(feeding, "RESIDENT", 0)
    before = threading.active_count()
    batches = Feed(synthetic, CPU).batches(torch.arange(300), 10)
    next(batches)
    del batches  # as a training that diverges leaves them
    assert threading.active_count() == before
