"""Distortion of d-volume at random points of random networks, by sampling (Thm 5.2)."""

from collections.abc import Sequence

import torch

from paperlib import devices
from paperlib.length import blocks
from paperlib.networks import laws
from paperlib.progress import track


@blocks.one_thread()
def sample_volumes(
    widths: Sequence[int],
    d: int,
    nets: int,
    seed: int,
    *,
    output: str = "linear",
    bias_var: float = 0.01,
    weight_law: str = "gaussian",
    device: str = "cpu",
    max_bytes: int = 2**30,
    progress: bool = False,
) -> torch.Tensor:
    """Distortion of d-volume at a point, `(nets,)` float64 on the CPU, one fresh network each.

    The point is Gaussian, the d-frame V at it uniformly random; the distortion is
    √det(VᵀJ_xᵀJ_x V), and its mean is `theory.mean_volume(widths, d)`. Above the smallest width it
    vanishes, to rounding. Options as in `networks.laws`.

    Raises ValueError for d < 1 or d > n_0, for other arguments out of range, and if a block of
    networks would not fit into `max_bytes`; that limit never changes the result.
    """
    widths = laws.check_widths(widths)
    d, nets = laws.check_int("the dimension d", d, 1), laws.check_int("nets", nets, 1)
    if d > widths[0]:
        raise ValueError(f"the dimension d must be at most n_0 = {widths[0]}; got {d}.")
    target = devices.resolve(device)
    sizes = blocks.block_sizes(widths, nets, d + 1)
    laws.check_int("max_bytes", max_bytes, blocks.block_bytes(widths, sizes[0], d + 1))

    volumes = []
    for index in track(range(len(sizes)), f"{d}-volumes") if progress else range(len(sizes)):
        rng = laws.generator(seed, index, device=target)
        columns = torch.cat(
            [
                blocks.random_frames(rng, sizes[index], widths[0], d),
                torch.randn(
                    sizes[index], widths[0], 1, dtype=torch.float64, device=target, generator=rng
                ),
            ],
            dim=2,
        )  # (nets, n_0, d + 1): the frame, and the point as the last column
        for layer in blocks.random_layers(
            rng, widths, sizes[index], output=output, bias_var=bias_var, weight_law=weight_law
        ):
            columns = layer.weight @ columns  # (nets, n_l, d + 1)
            columns[:, :, -1] += layer.bias
            if layer.gated:
                columns *= columns[:, :, -1:] > 0
        volumes.append(_frame_volumes(columns[:, :, :-1]).cpu())
    return torch.cat(volumes)


def _frame_volumes(frames: torch.Tensor) -> torch.Tensor:
    """√det(AᵀA) for each A of `(nets, rows, d)`: from A = QR, with no Gram matrix to round."""
    nets, rows, d = frames.shape
    if rows < d:
        return frames.new_zeros(nets)
    upper = torch.linalg.qr(frames, mode="r").R
    return upper.diagonal(dim1=1, dim2=2).prod(dim=1).abs()
