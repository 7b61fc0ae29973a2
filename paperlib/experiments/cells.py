"""Many architectures at once: sampled length distortion beside the closed forms, a row each."""

import math
from collections.abc import Iterable, Sequence
from typing import Unpack

import pandas as pd

from paperlib.length import ensemble, statistics, theory
from paperlib.networks.laws import check_widths


def label(widths: Sequence[int]) -> str:
    """Short name of an architecture, `5-[20]×10-5` where the hidden widths are all equal."""
    n_0, *hidden, n_last = check_widths(widths)
    if len(set(hidden)) == 1:
        return f"{n_0}-[{hidden[0]}]×{len(hidden)}-{n_last}"
    return "-".join(map(str, widths))


def sample_cells(
    architectures: Iterable[Sequence[int]],
    *,
    seed: int,
    rel_error: float,
    max_nets: int,
    **given: Unpack[ensemble.Options],
) -> pd.DataFrame:
    """Sample every architecture, with as many networks as its interval needs; one row each.

    Args:
        architectures: widths [n_0, …, n_L] of each.
        seed: cell i draws from 1000 seed + i, so that cells are independent.
        rel_error: wanted half-width of the 95 % interval, relative to the mean; smaller where
            the mean is so near to its upper bound that only a third of the gap tells them apart.
        max_nets: networks a cell at most; where it binds, the interval is wider.
        given: as in `ensemble.sample_images`; output layer, slope and scale must be the default,
            which the closed forms beside the sample assume. `precision` is "single" by default
            where images are long enough for it.

    Columns: `architecture`, `widths`, `n_0`, `n_L`, `hidden` (number of hidden layers),
    `reciprocal_sum` (Σ1/n_ℓ over hidden layers), `truncated` (5.1 without its O-term), `bound`
    (C √(n_L/n_0)), `variance_bound` (n_L/n_0), and those of `summary`.
    """
    rows = []
    for index, widths in enumerate(architectures):
        exact = theory.mean_length(widths)
        gap = theory.mean_length_bound(widths) / exact - 1
        wanted = min(rel_error, gap / 3) if gap > 0 else rel_error
        sd = theory.variance_bound(widths).sharp ** 0.5
        nets = statistics.nets_needed(exact, sd, wanted, max_nets)
        # a typical image is exp(-5/4 Σ1/n) long, and float32 knows its points to 1e-7
        single = theory.reciprocal_width_sum(widths) <= 2
        options = {"precision": "single" if single else "double"} | given
        sample = ensemble.sample_images(widths, nets, 1000 * seed + index, **options)
        rows.append(
            {
                "architecture": label(widths),
                "widths": tuple(widths),
                "n_0": widths[0],
                "n_L": widths[-1],
                "hidden": len(widths) - 2,
                "reciprocal_sum": theory.reciprocal_width_sum(widths),
                "truncated": theory.truncated_mean_length(widths),
                "bound": theory.mean_length_bound(widths),
                "variance_bound": theory.variance_bound(widths).paper,
                **summary(widths, sample),
            }
        )
    return pd.DataFrame(rows)


def summary(widths: Sequence[int], sample: ensemble.Sample) -> dict[str, float]:
    """What a sample of networks of the default initialisation says, beside the closed forms.

    Keys: `nets`, `mean`, `low`, `high` (95 %), `exact`, `z` (of the mean, by the exact ceiling of
    the standard deviation), `variance`, `variance_low`, `variance_high` (by control variate),
    `plain_variance`, `plain_low`, `plain_high` (of the sample alone), `ceiling` (the sharper upper
    bound of the variance), `energy` (mean of ‖J_x u‖²), `energy_z` (its z, by an exact ceiling of
    its standard deviation), `pieces` (mean number of linear pieces).
    """
    expected, ceiling = theory.mean_length(widths), theory.variance_bound(widths).sharp
    energy = statistics.mean_energy(widths)
    mean = statistics.mean_interval(sample, energy)
    variance = statistics.variance_interval(sample, energy)
    plain = statistics.variance_interval(sample)
    energy_sd = math.sqrt(theory.moment_bound(widths, 4) - energy**2)
    return {
        "nets": len(sample.lengths),
        "mean": mean.value,
        "low": mean.low,
        "high": mean.high,
        "exact": expected,
        "z": statistics.z_score(sample.lengths, expected, ceiling**0.5),
        "variance": variance.value,
        "variance_low": variance.low,
        "variance_high": variance.high,
        "plain_variance": plain.value,
        "plain_low": plain.low,
        "plain_high": plain.high,
        "ceiling": ceiling,
        "energy": float(sample.energies.mean()),
        "energy_z": statistics.z_score(sample.energies, energy, energy_sd),
        "pieces": float(sample.pieces.mean()),
    }
