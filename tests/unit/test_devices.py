"""Which precision is fastest where, told by what the device says of itself."""

import pytest
import torch

from paperlib import devices


@pytest.mark.parametrize(("says", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_cpu_that_only_emulates_bfloat16_takes_float32(monkeypatch, says, precision):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: says, raising=False)
    assert devices.fastest_precision(torch.device("cpu")) == precision


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bfloat16"), ((7, 5), "float32")])
def test_a_gpu_needs_the_hardware(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert devices.fastest_precision(torch.device("cuda")) == precision


def test_other_devices_take_float32():
    assert devices.fastest_precision(torch.device("mps")) == "float32"
