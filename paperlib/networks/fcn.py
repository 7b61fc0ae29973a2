"""Fully connected ReLU networks, drawn as the paper draws them (§3.1)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from paperlib.networks import laws


def fcn(
    widths: Sequence[int],
    seed: int = 0,
    *,
    output: str = "linear",
    slope: float = 0.0,
    scale: float = 1.0,
    bias_var: float = 0.01,
    weight_law: str = "gaussian",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """A network x ↦ N(x), `(points, n_0)` to `(points, n_L)`, with fresh weights from `seed`.

    The options are those of `laws.layer_variances` and `laws.bias_variances`; the activation is
    ReLU, or leaky ReLU with `slope` ≠ 0, and follows the last layer only if `output` is "relu".
    Weights are drawn in float32, so one seed gives the same network in every `dtype`.
    Raises ValueError for widths, names or numbers that are not allowed.
    """
    widths = laws.check_widths(widths)
    weight_vars = laws.layer_variances(
        widths, output=output, slope=slope, scale=scale, law=weight_law
    )
    bias_vars = laws.bias_variances(widths, bias_var=bias_var, scale=scale, law=weight_law)
    rng = laws.generator(seed)
    weights, biases = [], []
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        weights.append(laws.draw(rng, weight_law, (fan_out, fan_in), weight_vars[layer]))
        biases.append(laws.draw(rng, laws.bias_law(weight_law), (fan_out,), bias_vars[layer]))
    return assemble(weights, biases, rectify_output=output == "relu", slope=slope, dtype=dtype)


def assemble(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    *,
    rectify_output: bool = False,
    slope: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """The network with the given weights `(n_ℓ, n_{ℓ-1})` and biases `(n_ℓ,)`, which are copied."""
    modules: list[nn.Module] = []
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
        fan_out, fan_in = weight.shape
        linear = nn.utils.skip_init(nn.Linear, fan_in, fan_out, dtype=dtype)
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        modules.append(linear)
        if layer < len(weights) or rectify_output:
            modules.append(nn.LeakyReLU(slope) if slope else nn.ReLU())
    return nn.Sequential(*modules)
