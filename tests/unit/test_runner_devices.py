import pytest
import torch

from paperlib.devices import resolve


def test_the_cpu_is_always_there():
    assert resolve("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cpu:0", "mps:0", ""])
def test_an_unknown_device_is_refused_with_the_allowed_names(name):
    with pytest.raises(ValueError, match="allowed: cpu, cuda, cuda:N, mps"):
        resolve(name)


@pytest.mark.parametrize(("count", "name"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2")])
def test_a_missing_gpu_is_one_clear_error(monkeypatch, count, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(ValueError, match=f"sees {count} CUDA devices here; use cpu"):
        resolve(name)


def test_a_present_gpu_is_resolved(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve("cuda:1") == torch.device("cuda", 1)
