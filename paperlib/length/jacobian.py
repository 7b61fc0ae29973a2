"""Why length is preserved: Jacobians of random networks, layer by layer (§4, Lemmas C.2 and C.3).

J_ℓ = D_ℓ W_ℓ is layer ℓ's Jacobian at a point, with D_ℓ the 0/1 gates of its ReLU (the last layer
has none), and J_x = J_L ⋯ J_1. Points are Gaussian, directions u uniform on the sphere, unless
said otherwise. Results are float64 and on the CPU; the same seed gives the same result on one
device. Every function raises ValueError for arguments out of range.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from paperlib import devices
from paperlib.length import blocks
from paperlib.networks import laws


class Growth(NamedTuple):
    """Growth along the depth, `(nets, L)` each: entry [:, ℓ-1] is after layer ℓ."""

    worst: torch.Tensor
    """∏_{k≤ℓ} ‖J_k‖: the product of spectral norms."""
    jacobian: torch.Tensor
    """‖J_ℓ ⋯ J_1‖: the spectral norm of the product."""
    direction: torch.Tensor
    """‖J_ℓ ⋯ J_1 u‖: a typical direction."""


class AngleMap(NamedTuple):
    """Angles after one layer, float64 in radians, one entry an input angle."""

    mean: torch.Tensor
    standard_error: torch.Tensor


@blocks.one_thread()
def sample_layer_norms(
    widths: Sequence[int],
    nets: int,
    seed: int,
    *,
    bias_var: float = 0.01,
    weight_law: str = "gaussian",
    device: str = "cpu",
) -> torch.Tensor:
    """‖J_ℓ v_ℓ‖ with v_ℓ the unit vector along J_{ℓ-1} ⋯ J_1 u, `(nets, L)`.

    The product over ℓ is ‖J_x u‖. Behind a layer that is off for the whole network, where v_ℓ has
    no direction, v_ℓ = e_1 takes its place, which leaves the law of the factors (Lemma C.2).
    """
    widths, nets = laws.check_widths(widths), laws.check_int("nets", nets, 1)
    target = devices.resolve(device)
    norms = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, 2)):
        rng = laws.generator(seed, index, device=target)
        direction = blocks.random_frames(rng, size, widths[0], 1)[:, :, 0]  # (nets, n_0)
        point = _gaussian_points(rng, size, widths[0])  # (nets, n_0)
        factors = []
        for layer in blocks.random_layers(
            rng, widths, size, bias_var=bias_var, weight_law=weight_law
        ):
            columns = layer.weight @ torch.stack([direction, point], dim=2)  # (nets, n_l, 2)
            direction, point = columns[:, :, 0], columns[:, :, 1] + layer.bias
            if layer.gated:
                gates = point > 0
                direction, point = direction * gates, point * gates
            length = torch.linalg.vector_norm(direction, dim=1)  # (nets,)
            factors.append(length)
            dead = length == 0
            direction = direction / torch.where(dead, 1.0, length)[:, None]
            direction[dead, 0] = 1.0
        norms.append(torch.stack(factors, dim=1).cpu())
    return torch.cat(norms)


def sample_product_law(widths: Sequence[int], nets: int, seed: int) -> torch.Tensor:
    """Independent draws of the law of ‖J_x u‖ that Lemma C.2 states, `(nets,)`: no networks.

    The square is [∏_{ℓ<L} (2/n_{ℓ-1}) χ²_{B_ℓ}] (1/n_{L-1}) χ²_{n_L}, B_ℓ ~ Bin(n_ℓ, ½).
    """
    widths, nets = laws.check_widths(widths), laws.check_int("nets", nets, 1)
    rng = np.random.default_rng(laws.check_int("seed", seed, 0))
    square = np.full(nets, widths[-1] / widths[0])
    for n in widths[1:-1]:
        square *= 2 * rng.standard_gamma(rng.binomial(n, 0.5, nets) / 2) * (2 / n)
    square *= 2 * rng.standard_gamma(widths[-1] / 2, nets) / widths[-1]
    return torch.from_numpy(np.sqrt(square))


@blocks.one_thread()
def worst_case_growth(
    widths: Sequence[int], nets: int, seed: int, *, bias_var: float = 0.01, device: str = "cpu"
) -> Growth:
    """The worst case by singular values against what happens to a direction, by depth (§4)."""
    widths, nets = laws.check_widths(widths), laws.check_int("nets", nets, 1)
    target = devices.resolve(device)
    found: list[Growth] = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, widths[0] + 1)):
        rng = laws.generator(seed, index, device=target)
        direction = blocks.random_frames(rng, size, widths[0], 1)  # (nets, n_0, 1)
        point = _gaussian_points(rng, size, widths[0])  # (nets, n_0)
        jacobian = torch.eye(widths[0], dtype=torch.float64, device=target)
        layer_norms, jacobian_norms, direction_norms = [], [], []
        for layer in blocks.random_layers(rng, widths, size, bias_var=bias_var):
            layer_jacobian, point = _pass_layer(layer, point)
            jacobian = layer_jacobian @ jacobian  # (nets, n_l, n_0)
            layer_norms.append(_spectral_norm(layer_jacobian))
            jacobian_norms.append(_spectral_norm(jacobian))
            direction_norms.append(torch.linalg.vector_norm(jacobian @ direction, dim=(1, 2)))
        found.append(
            Growth(
                worst=torch.stack(layer_norms, dim=1).cumprod(dim=1).cpu(),
                jacobian=torch.stack(jacobian_norms, dim=1).cpu(),
                direction=torch.stack(direction_norms, dim=1).cpu(),
            )
        )
    return Growth(*(torch.cat(parts) for parts in zip(*found, strict=True)))


@blocks.one_thread()
def singular_overlaps(
    width: int, nets: int, seed: int, *, bias_var: float = 0.01, device: str = "cpu"
) -> torch.Tensor:
    """|⟨top left singular vector of J_1, top right one of J_2⟩| of two square layers, `(nets,)`.

    Both layers have a ReLU. Were the vectors incoherent, as §4 argues, the overlap would be a
    coordinate of a uniform vector on the sphere: its square has the law Beta(½, (width-1)/2).
    It has exactly that law, unless layer 2 is off altogether (probability 2^{-width}): a weight
    row's square w wᵀ does not depend on its gate (Lemma C.3), so J_2ᵀJ_2 is isotropic given J_1.
    """
    widths = (laws.check_int("width", width, 2),) * 3
    nets, target = laws.check_int("nets", nets, 1), devices.resolve(device)
    overlaps = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, 1)):
        rng = laws.generator(seed, index, device=target)
        point = _gaussian_points(rng, size, width)
        first, second = blocks.random_layers(rng, widths, size, output="relu", bias_var=bias_var)
        first_jacobian, point = _pass_layer(first, point)
        second_jacobian, _ = _pass_layer(second, point)
        # eigh sorts its values in ascending order, so the top vector is the last column.
        left = torch.linalg.eigh(first_jacobian @ first_jacobian.mT).eigenvectors[:, :, -1]
        right = torch.linalg.eigh(second_jacobian.mT @ second_jacobian).eigenvectors[:, :, -1]
        overlaps.append((left * right).sum(dim=1).abs().cpu())
    return torch.cat(overlaps)


@blocks.one_thread()
def angle_map(
    width: int, angles: Sequence[float], nets: int, seed: int, *, device: str = "cpu"
) -> AngleMap:
    """Mean angle between two inputs at the given angles after one Gaussian ReLU layer.

    There are no biases, and the inputs lie in a plane (the law of the layer is rotation
    invariant); the limit of large `width` is `theory.relu_angle`. Networks that send one of the
    inputs to zero, where no angle is defined, are left out: at most 2^{1-width} of them.
    """
    width, nets = laws.check_int("width", width, 1), laws.check_int("nets", nets, 2)
    target = devices.resolve(device)
    theta = torch.as_tensor(angles, dtype=torch.float64, device=target)  # (angles,)
    if theta.ndim != 1 or not ((theta >= 0) & (theta <= math.pi)).all():
        raise ValueError("angles must be a sequence of numbers in [0, π], in radians.")
    inputs = torch.stack([theta.cos(), theta.sin()])  # (2, angles); the other input is e_1
    widths = (2, width)
    found = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, len(theta))):
        rng = laws.generator(seed, index, device=target)
        (layer,) = blocks.random_layers(rng, widths, size, output="relu", bias_var=0.0)
        first = layer.weight[:, :, :1].relu()  # (nets, width, 1)
        second = (layer.weight @ inputs).relu()  # (nets, width, angles)
        first = first / torch.linalg.vector_norm(first, dim=1, keepdim=True)
        second = second / torch.linalg.vector_norm(second, dim=1, keepdim=True)
        # Both sides of a rhombus: accurate at small angles, where arccos is not.
        across = torch.linalg.vector_norm(first - second, dim=1)
        along = torch.linalg.vector_norm(first + second, dim=1)
        found.append(2 * torch.atan2(across, along).cpu())  # (nets, angles), NaN where undefined
    sample = torch.cat(found)
    counts = sample.isfinite().sum(dim=0)
    mean = sample.nanmean(dim=0)
    variance = (sample - mean).square().nansum(dim=0) / (counts - 1)
    return AngleMap(mean, (variance / counts).sqrt())


def _gaussian_points(rng: torch.Generator, nets: int, n: int) -> torch.Tensor:
    return torch.randn(nets, n, dtype=torch.float64, device=rng.device, generator=rng)


def _pass_layer(layer: blocks.Layer, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer's Jacobian at `point` `(nets, n_in)`, and the point's image."""
    image = (layer.weight @ point[:, :, None])[:, :, 0] + layer.bias  # (nets, n_out)
    if not layer.gated:
        return layer.weight, image
    gates = image > 0
    return layer.weight * gates[:, :, None], image * gates


def _spectral_norm(matrices: torch.Tensor) -> torch.Tensor:
    """Largest singular value of each of `(nets, n, m)`, from the smaller of the Gram matrices."""
    tall = matrices.shape[1] > matrices.shape[2]
    gram = matrices.mT @ matrices if tall else matrices @ matrices.mT
    return torch.linalg.eigvalsh(gram)[:, -1].clamp(min=0).sqrt()
