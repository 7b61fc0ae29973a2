"""Weights that are not Gaussian: what they change, and where (§5, the remark on other laws).

For every symmetric law with the paper's variances a layer keeps the mean square of a tangent
vector. If f_ℓ is the factor by which layer ℓ stretches it, then E[f_ℓ² | before] = 1, so

    E[f_ℓ | before] = 1 - ½ E[(f_ℓ - 1)² | before]:

what a layer takes from the mean is half its mean squared deviation from 1. Averages of the right
side have far smaller errors than those of f_ℓ, and estimate the same mean. Derived here.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes

from paperlib.length import blocks, curves, ensemble, statistics, theory
from paperlib.networks import laws
from paperlib.report import claims, style
from paperlib.report.rules import Measured

EXCESS_KURTOSIS = {
    "gaussian": 0.0,
    "uniform": -1.2,
    "rademacher": -2.0,
    "laplace": 3.0,
    "sparse": 3 / laws.SPARSE_DENSITY - 3,
}
COLOURS = dict(
    zip(
        EXCESS_KURTOSIS,
        (style.BLACK, style.BLUE, style.GREEN, style.RED, style.PURPLE),
        strict=True,
    )
)
CURVES = {"diagonal": curves.segment, "e_1": curves.axis_segment}


def sample_rates(
    law_inputs: int,
    law_widths: Sequence[int],
    law_hidden: int,
    law_nets: int,
    seed: int,
    device: str,
) -> pd.DataFrame:
    """Decay rate of the mean by law and width: the slope of -log mean in Σ1/n, over depth.

    The slope runs from the first hidden layer to the last: what the first layer adds, and the
    linear output layer, shift the logarithm by a constant and drop out. Each network carries
    n_0 = `law_inputs` orthogonal directions at a Gaussian point. There are `law_nets` networks of
    the largest width, and more of the others, in inverse proportion to their width.

    Columns: `law`, `kurtosis` (excess), `width`, `nets`, `rate`, `low`, `high` (95 %), `gaussian`
    (exact, -n log h(n)), `change` (rate over the Gaussian one, less 1), `change_low`,
    `change_high`, `first_order` (12/5 · kurtosis/n: the change to first order in 1/n, ours).
    """
    cells = [(law, width) for law in EXCESS_KURTOSIS for width in law_widths]
    rows = []
    for index, (law, width) in enumerate(cells):
        nets = law_nets * max(law_widths) // width
        losses = _losses(law_inputs, width, law_hidden, nets, 1000 * seed + index, law, device)
        rate = _rate(losses, width)
        gaussian = -width * math.log(theory.layer_factor(width))
        rows.append(
            {
                "law": law,
                "kurtosis": EXCESS_KURTOSIS[law],
                "width": width,
                "nets": nets,
                "rate": rate.value,
                "low": rate.low,
                "high": rate.high,
                "gaussian": gaussian,
                "change": rate.value / gaussian - 1,
                "change_low": rate.low / gaussian - 1,
                "change_high": rate.high / gaussian - 1,
                "first_order": 2.4 * EXCESS_KURTOSIS[law] / width,
            }
        )
    return pd.DataFrame(rows)


def sample_directions(
    n_0: int, width: int, n_L: int, depths: Sequence[int], nets: int, seed: int, device: str
) -> pd.DataFrame:
    """Mean distortion of a unit segment along (1, …, 1) and along e_1, by law and depth.

    The mean of ‖J_x u‖² along the segment, known exactly, is the control variate.

    Columns: `law`, `direction`, `hidden`, `nets`, `mean`, `low`, `high` (95 %), `gaussian` (exact).
    """
    cells = [(law, at, hidden) for law in EXCESS_KURTOSIS for at in CURVES for hidden in depths]
    rows = []
    for index, (law, direction, hidden) in enumerate(cells):
        widths = [n_0, *[width] * hidden, n_L]
        sample = ensemble.sample_images(
            widths,
            nets,
            1000 * seed + index,
            curve=CURVES[direction](n_0),
            weight_law=law,
            precision="single",
            device=device,
        )
        mean = _mean(sample, widths, law)
        rows.append(
            {
                "law": law,
                "direction": direction,
                "hidden": hidden,
                "nets": nets,
                "mean": mean.value,
                "low": mean.low,
                "high": mean.high,
                "gaussian": theory.mean_length(widths),
            }
        )
    return pd.DataFrame(rows)


def direction_grid(directions: pd.DataFrame) -> pd.DataFrame:
    """Mean along e_1 over mean along the diagonal: a row a law, a column a number of layers."""
    means = directions.pivot(index="law", columns=["direction", "hidden"], values="mean")
    grid = (means["e_1"] / means["diagonal"]).loc[list(EXCESS_KURTOSIS)]
    return grid.rename_axis(columns="hidden layers")


def judge(rates: pd.DataFrame) -> list[claims.Verdict]:
    """Verdicts on L13, a law each, at the narrowest and the widest networks of `sample_rates`.

    (5.1) gives the rate to first order and leaves O(Σ1/n²) open; the text names no width.
    """
    narrow, wide = rates.width.min(), rates.width.max()
    changes = rates.set_index(["law", "width"])[["change", "change_low", "change_high"]]
    return [
        claims.check(
            f"L13-{law}",
            {
                "narrow": Measured(*changes.loc[law, narrow]),
                "wide": Measured(*changes.loc[law, wide]),
            },
            sample=f"widths {narrow} and {wide}",
        )
        for law in list(EXCESS_KURTOSIS)[1:]
    ]


def draw_rates(ax: Axes, rates: pd.DataFrame) -> None:
    """Decay rate against width, and the band of ten per cent about the Gaussian rate."""
    widths = sorted(rates.width.unique())
    exact = rates[rates.law == "gaussian"].set_index("width").gaussian[widths]
    ax.fill_between(widths, 0.9 * exact, 1.1 * exact, color="#EDEDED", linewidth=0)
    ax.axhline(5 / 8, color=style.GREY, linestyle=":", linewidth=1)
    ax.set(xscale="log", xlabel="width $n$", ylabel="decay rate of the mean in Σ1/$n$")
    ax.set(xlim=(widths[0] * 0.93, widths[-1] * 1.04), ylim=(0.4, 1.05))
    ax.set_xticks(widths, [str(n) for n in widths])
    ax.minorticks_off()
    shown = [law for law in EXCESS_KURTOSIS if law != "sparse"]
    for law in shown:
        rows = rates[rates.law == law].sort_values("width")
        y = rows.gaussian if law == "gaussian" else rows.rate
        ax.plot(rows.width, y, color=COLOURS[law])
        style.intervals(ax, rows.width, rows.rate, rows.low, rows.high, color=COLOURS[law])
    last = rates[rates.width == widths[-1]].set_index("law").rate
    style.end_labels(
        ax, widths[-1] * 1.04, list(last[shown]), shown, [COLOURS[law] for law in shown]
    )
    beyond = rates[rates.law == "sparse"].set_index("width").rate[widths]
    ax.annotate(
        f"sparse, off the scale: {', '.join(f'{rate:.1f}' for rate in beyond)}",
        (0.97, 0.97),
        xycoords="axes fraction",
        ha="right",
        va="top",
        color=COLOURS["sparse"],
        fontsize=style.SMALL,
    )


def draw_directions(ax: Axes, directions: pd.DataFrame) -> None:
    """Means by law at the largest depth: along e_1 filled, along the diagonal open."""
    deepest = directions[directions.hidden == directions.hidden.max()]
    names = list(EXCESS_KURTOSIS)[::-1]
    for direction, shift, fill in (("e_1", -0.12, True), ("diagonal", 0.12, False)):
        rows = deepest[deepest.direction == direction].set_index("law").loc[names]
        for y, (law, row) in enumerate(rows.iterrows()):
            colour = COLOURS[law]
            ax.plot([row.low, row.high], [y + shift] * 2, color=colour, linewidth=1.2)
            face = colour if fill else "white"
            ax.plot(row["mean"], y + shift, "o", color=colour, markerfacecolor=face, markersize=5)
    exact = deepest.gaussian.iloc[0]
    ax.axvline(exact, color=style.GREY, linestyle=":", linewidth=1)
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="y", visible=False)
    ax.set(xlim=(0, None), ylim=(-0.6, len(names) - 0.4))
    ax.set(xlabel=f"mean length distortion, {deepest.hidden.iloc[0]} hidden layers")
    ax.annotate(
        "filled: along $e_1$\nopen: along the diagonal",
        (0.03, 0.96),
        xycoords="axes fraction",
        va="top",
        fontsize=style.SMALL,
    )


def _mean(sample: ensemble.Sample, widths: Sequence[int], law: str) -> statistics.Interval:
    """Mean length with its interval, by the control variate of `sample_directions`."""
    energy = statistics.mean_energy(widths, weight_law=law)
    if law == "sparse":
        # its energies are so heavy-tailed that they would add noise
        return statistics.mean_interval(sample, energy)
    # the best weight at a point under Gaussian weights: fixed beforehand, it adds no bias
    first, second, third, fourth = (theory.moment_bound(widths, m) for m in (1, 2, 3, 4))
    weight = (third - first * second) / (fourth - second**2)
    values = sample.lengths - weight * (sample.energies - energy)  # (nets,)
    half = 1.96 * float(values.std()) / math.sqrt(len(values))
    value = float(values.mean())
    return statistics.Interval(value, value - half, value + half)


def _losses(
    n_0: int, width: int, hidden: int, nets: int, seed: int, law: str, device: str
) -> np.ndarray:
    """What each hidden layer takes from the mean, P_{ℓ-1} (f_ℓ - 1)²/2, `(nets, hidden)`.

    P_ℓ is the stretch of a tangent vector up to layer ℓ, with E P_ℓ² = 1. A network's entry is the
    average over n_0 orthogonal directions.
    """
    widths = [n_0, *[width] * hidden]
    found = []
    for index, size in enumerate(blocks.block_sizes(widths, nets, n_0 + 1)):
        rng = laws.generator(seed, index, device=device)
        point = torch.randn(size, n_0, 1, dtype=torch.float64, device=device, generator=rng)
        columns = torch.cat([blocks.random_frames(rng, size, n_0, n_0), point], dim=2)
        before = torch.ones(size, n_0, dtype=torch.float64, device=device)
        taken = []
        # "relu" makes the last of these layers a hidden one too
        for layer in blocks.random_layers(rng, widths, size, output="relu", weight_law=law):
            columns = layer.weight @ columns  # (nets, n_l, n_0 + 1)
            columns[:, :, -1] += layer.bias
            columns *= columns[:, :, -1:] > 0
            after = torch.linalg.vector_norm(columns[:, :, :-1], dim=1) * math.sqrt(n_0 / width)
            loss = (after - before).square() / (2 * torch.where(before > 0, before, 1.0))
            taken.append(loss.mean(dim=1))
            before = after
        found.append(torch.stack(taken, dim=1).cpu())
    return torch.cat(found).numpy()


def _rate(losses: np.ndarray, width: int) -> statistics.Interval:
    """-n × slope of the log mean from the first hidden layer to the last, by the delta method."""
    nets, hidden = losses.shape
    first = 1 - losses[:, 0]  # averages to the mean after layer 1
    last = 1 - losses.sum(axis=1)
    scale = width / (hidden - 1)
    influence = first / first.mean() - last / last.mean()
    half = 1.96 * scale * float(influence.std()) / math.sqrt(nets)
    value = scale * math.log(first.mean() / last.mean())
    return statistics.Interval(value, value - half, value + half)
