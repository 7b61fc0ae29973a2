"""Exact length of the image of a polygon under a fully connected ReLU network.

Along a straight segment every pre-activation is affine until a neuron of an earlier layer changes
sign. So each layer is handled in two steps: an affine map of the points found so far, then the
zeros of every pre-activation between neighbouring points, where new points are put by linear
interpolation. After the last layer the image is the polygon through the images of these points:
nothing is sampled, and nothing is lost between two points.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

KINDS = (nn.Sequential, nn.Linear, nn.ReLU, nn.LeakyReLU, nn.Identity)
# between these, squares of lengths neither overflow nor lose digits
_SHORTEST, _LONGEST = 1e-150, 1e150


@dataclass(frozen=True)
class Image:
    """The image of a polygon: a polygon again, with a vertex at every breakpoint.

    `positions`: arc length along the input polygon, float64 `(vertices,)`, non-decreasing.
    `outputs`: the network there, float64 `(vertices, n_L)`.
    """

    positions: Tensor
    outputs: Tensor

    @property
    def length(self) -> Tensor:
        """Length of the image, counted with multiplicity; float64 scalar."""
        return polygon_steps(self.outputs).sum()

    @property
    def distortion(self) -> Tensor:
        """Length of the image divided by that of the curve (§3.2); float64 scalar."""
        return self.length / (self.positions[-1] - self.positions[0])

    @property
    def pieces(self) -> int:
        """Number of linear pieces: stretches of positive length between neighbouring vertices.

        A breakpoint counts although later layers may not hear of it, and so does a vertex of the
        input polygon. Breakpoints that would coincide but for rounding are counted apart.
        """
        return int((self.positions.diff() > 0).sum())


def trace(net: nn.Module, points: Tensor | np.ndarray | Sequence[Sequence[float]]) -> Image:
    """Image of the polygon through `points` `(K, n_0)`, K ≥ 2, in order; repeat the first to close.

    `net` is an `nn.Sequential` (nested as you like) of `Linear`, `ReLU` and `LeakyReLU`; it is not
    changed. All is computed in float64 on the network's device. Cost: about
    pieces × Σ n_ℓ n_{ℓ-1} products. The relative error of a length is about 2e-16 ‖output‖ /
    length: digits are lost where the image is much shorter than its distance from the origin.

    Raises TypeError for a module that is not piecewise linear layer by layer, ValueError for
    points of another shape, or not finite, or all equal, for layers that do not fit together, and
    for numbers beyond the range of float64.
    """
    modules = list(_chain(net))
    linears = [m for m in modules if isinstance(m, nn.Linear)]
    if not linears:
        raise TypeError("the network has no nn.Linear layer.")
    for before, after in pairwise(linears):
        if before.out_features != after.in_features:
            raise ValueError(
                f"a layer with {before.out_features} outputs is followed by one with "
                f"{after.in_features} inputs."
            )
    z = as_points(points, linears[0].in_features).to(linears[0].weight.device)

    with torch.no_grad():
        t = arc_length(z)[None]  # (1, vertices)
        z = z[None]  # (1, vertices, width)
        dead = False
        for module in modules:
            if isinstance(module, nn.Linear):
                z = z @ module.weight.double().T
                if module.bias is not None:
                    z += module.bias.double()
            else:
                slope = module.negative_slope if isinstance(module, nn.LeakyReLU) else 0.0
                t, z = rectify(t, z, slope)
                dead = dead or not z.any()
    # after a layer that is off all along only rounding tells one output from another
    image = Image(t[0], z[0, :1].expand_as(z[0]) if dead else z[0])
    moves = bool((image.outputs != image.outputs[0]).any())
    if not bool(image.length.isfinite()) or (moves and image.length == 0):
        raise ValueError(
            "the network's weights or outputs are not finite numbers, or too large or too small "
            "for float64: rescale them."
        )
    return image


def curve_length(net: nn.Module, points: Tensor | np.ndarray | Sequence[Sequence[float]]) -> Tensor:
    """Exact length of the image of the polygon through `points` `(K, n_0)`; float64 scalar.

    Divide by the polygon's own length for the distortion of §3.2. Errors as in `trace`.
    """
    return trace(net, points).length


def rectify(t: Tensor, z: Tensor, slope: float = 0.0) -> tuple[Tensor, Tensor]:
    """Put a point at every zero of every pre-activation, then apply the (leaky) ReLU.

    `t` `(nets, points)`: positions along the curve; `z` `(nets, points, width)`: pre-activations,
    affine between neighbouring points. Returns both with the new points inserted in order; networks
    with fewer points than the fullest one repeat their last point.
    """
    nets, points, width = z.shape
    left, right = z[:, :-1], z[:, 1:]
    crossing = _crossings(z)
    net, gap, neuron = crossing.nonzero(as_tuple=True)  # (zeros,) each, by net, then by gap
    a, b = left[net, gap, neuron], right[net, gap, neuron]
    fraction = a / (a - b)  # in (0, 1)
    within = torch.argsort(fraction, stable=True)
    order = within[torch.argsort((net * (points - 1) + gap)[within], stable=True)]
    net, gap, neuron, fraction = net[order], gap[order], neuron[order], fraction[order]

    zeros_in_gap = crossing.sum(dim=2)  # (nets, gaps)
    zeros = zeros_in_gap.sum(dim=1)  # (nets,)
    total = points + int(zeros.max())
    first = zeros.cumsum(0) - zeros  # (nets,): index of a net's first zero
    rank = torch.arange(net.numel(), device=z.device) - first[net]  # among the zeros of its net
    shift = torch.nn.functional.pad(zeros_in_gap.cumsum(1), (1, 0))  # (nets, points)
    old = torch.arange(points, device=z.device) + shift  # (nets, points): new place of old points
    rows = torch.arange(nets, device=z.device)[:, None]

    new_t = t[:, -1:].expand(nets, total).clone()
    new_z = z[:, -1:].expand(nets, total, width).clone()
    new_t[rows, old] = t
    new_z[rows, old] = z
    slot = gap + 1 + rank
    new_t[net, slot] = torch.lerp(t[net, gap], t[net, gap + 1], fraction.to(t.dtype))
    new_z[net, slot] = torch.lerp(left[net, gap], right[net, gap], fraction[:, None])
    new_z[net, slot, neuron] = 0.0
    return new_t, torch.where(new_z > 0, new_z, slope * new_z)


def points_after(z: Tensor) -> int:
    """Points that the fullest network has after `rectify` of `z` `(nets, points, width)`."""
    return z.shape[1] + int(_crossings(z).sum(dim=(1, 2)).max())


def _crossings(z: Tensor) -> Tensor:
    """Whether a pre-activation changes sign between neighbours: bool `(nets, gaps, width)`."""
    left, right = z[:, :-1], z[:, 1:]
    # no product of the two: it would underflow for tiny pre-activations
    return ((left < 0) & (right > 0)) | ((left > 0) & (right < 0))


def polygon_steps(points: Tensor) -> Tensor:
    """Lengths of the sides of the polygon through `(…, vertices, n)`: float64 `(…, vertices-1)`."""
    return torch.linalg.vector_norm(points.diff(dim=-2), dim=-1, dtype=torch.float64)


def arc_length(points: Tensor) -> Tensor:
    """Arc length from the first vertex to each vertex of `(…, vertices, n)`; float64."""
    return torch.nn.functional.pad(polygon_steps(points).cumsum(-1), (1, 0))


def as_points(points: Tensor | np.ndarray | Sequence[Sequence[float]], n_0: int) -> Tensor:
    """The polygon's vertices as float64 `(K, n_0)`, K ≥ 2; a tensor stays on its device.

    ValueError unless they are real, finite and of that shape, and the polygon has a length whose
    square float64 can hold.
    """
    if isinstance(points, Tensor):
        is_complex, z = points.is_complex(), points.detach()
    else:
        try:
            is_complex = np.iscomplexobj(np.asarray(points))
            z = torch.from_numpy(np.array(points, np.complex128 if is_complex else np.float64))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"the curve's points must be numbers in an array of shape (K, {n_0}): {error}."
            ) from None
    if is_complex:
        raise ValueError("the curve's points must be real numbers; got complex ones.")
    z = z.to(torch.float64)
    if z.ndim != 2 or z.shape[0] < 2 or z.shape[1] != n_0:
        raise ValueError(
            f"the curve must be given by points of shape (K, {n_0}) with K of at least 2; "
            f"got {tuple(z.shape)}."
        )
    if not bool(torch.isfinite(z).all()):
        raise ValueError("the curve's points must be finite numbers.")
    if bool((z == z[0]).all()):
        raise ValueError("the curve has length 0: its points must not all be equal.")
    if not _SHORTEST < float(polygon_steps(z).sum()) < _LONGEST:
        raise ValueError("the curve is too long or too short for float64: rescale it.")
    return z


def _chain(net: nn.Module) -> Iterator[nn.Module]:
    """The network's modules in the order in which they act; TypeError for any other kind."""
    kind = next((kind for kind in KINDS if isinstance(net, kind)), None)
    # what is bound to the module: neither a subclass nor the module itself may have its own
    if kind is None or getattr(net.forward, "__func__", None) is not kind.forward:
        raise TypeError(
            f"cannot trace a {type(net).__name__}: exact lengths need an nn.Sequential of "
            "Linear, ReLU and LeakyReLU layers, with PyTorch's own forward."
        )
    if net._forward_hooks or net._forward_pre_hooks:
        raise TypeError(
            f"cannot trace a {type(net).__name__} with forward hooks, which may change what it "
            "computes: remove them first."
        )
    if kind is nn.Sequential:
        for child in net:
            yield from _chain(child)
    elif kind is not nn.Identity:
        yield net
