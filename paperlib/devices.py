"""The device that a name stands for, or one clear error; which precision is fastest on it."""

import re

import torch


def resolve(name: str) -> torch.device:
    """The torch device called `name`.

    Args:
        name: `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.
    """
    kind, _, index = name.partition(":")
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise ValueError(f"unknown device {name!r}; allowed: cpu, cuda, cuda:N, mps")
    if kind == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= found:
            raise ValueError(
                f"device {name!r} is not available: torch {torch.__version__} sees {found} "
                "CUDA devices here; use cpu"
            )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device {name!r} is not available on this machine; use cpu")
    return torch.device(name)


def fastest_precision(device: torch.device) -> str:
    """ "bfloat16" where the device computes with it natively, else "float32".

    A CPU that only emulates bfloat16 is several times slower with it.
    """
    if device.type == "cuda":
        native = torch.cuda.get_device_capability(device) >= (8, 0)
    elif device.type == "cpu":
        # Each alone also says yes under emulation.
        native = torch.cpu._is_avx512_bf16_supported() and (
            torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )
    else:
        native = False
    return "bfloat16" if native else "float32"
