"""Initialisers of trained networks: which law a weight is drawn from, and what biases start as.

The paper says only "default initialization schemes used in open source deep learning libraries".
"lecun-truncated" is our inference: the ℓ∞ distances of its Fig. 1(c) agree within 0.002 with a
normal law of σ = 1/√fan-in cut at 2σ, without a correction of the variance.
"""

import math

import torch
from torch import Tensor, nn

from paperlib.choices import check_choice

INITIALISERS = ("lecun-truncated", "torch", "glorot", "he")


def initialise_(
    weight: Tensor, bias: Tensor | None, initialiser: str, rng: torch.Generator
) -> None:
    """Fill a float32 CPU weight `(fan_out, fan_in, …)` and its bias `(fan_out,)` in place.

    "lecun-truncated": normal, σ = 1/√fan-in, cut at 2σ. "torch": U(±1/√fan-in), which PyTorch's
    linear and convolutional layers take for weights and biases. "glorot": U(±√(6/(fan-in +
    fan-out))). "he": normal, variance 2/fan-in. Biases are zero but for "torch".
    """
    check_choice("initialiser", initialiser, INITIALISERS)
    fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(weight)
    sd = 1 / math.sqrt(fan_in)
    with torch.no_grad():
        if initialiser == "lecun-truncated":
            nn.init.trunc_normal_(weight, 0.0, sd, -2 * sd, 2 * sd, generator=rng)
        elif initialiser == "torch":
            weight.uniform_(-sd, sd, generator=rng)
        elif initialiser == "glorot":
            bound = math.sqrt(6 / (fan_in + fan_out))
            weight.uniform_(-bound, bound, generator=rng)
        else:
            weight.normal_(0.0, math.sqrt(2) * sd, generator=rng)
        if bias is not None:
            if initialiser == "torch":
                bias.uniform_(-sd, sd, generator=rng)
            else:
                bias.zero_()
