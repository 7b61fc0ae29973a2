"""The plain way to a length distortion: a fresh PyTorch network and many points on the curve."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def sampled_lengths(
    widths: Sequence[int], nets: int, points: int = 1000, device: str = "cpu"
) -> Tensor:
    """Length distortions of fresh networks, by sampling: float32 `(nets,)`, on the CPU.

    Each network (§3.1, bias variance 0.01) sees a random segment of its own, at `points`
    equidistant points. As a user would write it: one network after the other.
    """
    steps = torch.linspace(0, 1, points, device=device)[:, None]
    lengths = []
    for _ in range(nets):
        net = _network(widths, device)
        start, end = torch.randn(2, widths[0], device=device)
        with torch.no_grad():
            image = net(start + steps * (end - start))  # (points, n_L)
        lengths.append((image[1:] - image[:-1]).norm(dim=1).sum() / (end - start).norm())
    return torch.stack(lengths).cpu()


def _network(widths: Sequence[int], device: str) -> nn.Sequential:
    modules: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        modules += [nn.Linear(fan_in, fan_out, device=device), nn.ReLU()]
    net = nn.Sequential(*modules[:-1])
    for module in net:
        if isinstance(module, nn.Linear):
            gain = 1 if module is net[-1] else 2
            nn.init.normal_(module.weight, std=math.sqrt(gain / module.in_features))
            nn.init.normal_(module.bias, std=0.1)
    return net
