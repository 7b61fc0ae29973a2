"""§4 of `length`: why the worst case grows with depth while a typical direction does not."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from paperlib.length import jacobian, theory
from paperlib.report import claims, style
from paperlib.report.rules import Measured

ANGLE_WIDTHS = (50, 500)  # those that claim L20 is judged at
LAW_NETS = 20_000  # fewer would not show a departure from Lemma C.2
_LEVELS = np.arange(1, 100) / 100


class Study(NamedTuple):
    """The tables of `sample`, all tidy."""

    growth: pd.DataFrame
    """A row a width and layer: `worst` (product of spectral norms, median over `nets` networks,
    with `worst_low` and `worst_high`, 95 %), `jacobian` (spectral norm of the product, median)."""
    products: pd.DataFrame
    """A row a width and number of ReLU layers `hidden`: law of log‖J_x u‖ over `nets` networks;
    `reciprocal_sum` (Σ1/n), `median` with `low` and `high` (95 %), quantiles `q10` and `q90`, `sd`
    (of networks that are not off), `predicted_sd` √(5L/4n), and whether the cell is `judged`."""
    layers: pd.DataFrame
    """A row a width and constant c: `probability` that log‖J_ℓ e_1‖ ≤ c/n in all `hidden` layers,
    with `low` and `high` (Clopper-Pearson, 95 %), and its `exact` value."""
    quantiles: pd.DataFrame
    """A row a test ("overlap" or "law") and `level`: the `sampled` and the `expected` quantile."""
    tests: pd.DataFrame
    """A row a test: number of `nets`, Kolmogorov-Smirnov `statistic` and `p_value`."""
    angles: pd.DataFrame
    """A row a width and angle, in radians: `angle`, `mean` after one layer with `low` and `high`
    (95 %), and the `limit` of infinite width."""

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables for `figures.save`."""
        named = self._asdict()
        return {"": named.pop("growth"), **named}


def sample(
    widths: Sequence[int],
    depths: Sequence[int],
    nets: int,
    constants: Sequence[float],
    growth_widths: Sequence[int],
    growth_nets: int,
    overlap_width: int,
    overlap_nets: int,
    law_widths: Sequence[int],
    law_nets: int,
    angle_nets: int,
    seed: int,
    device: str,
) -> Study:
    """Sample everything that §4 speaks of; part i draws from seed 1000 seed + i.

    Args:
        widths, depths, nets: square networks with max(depths) ReLU layers; typical growth is
            judged at `depths`.
        constants: c of "log‖J_ℓ e_1‖ ≤ c/n".
        growth_widths, growth_nets: networks whose singular values are computed, as deep.
        overlap_width, overlap_nets: pairs of layers for the singular vectors.
        law_widths, law_nets: networks for the equality in law of Lemma C.2.
        angle_nets: layers of each of ANGLE_WIDTHS for the angle map.
        seed, device: as everywhere.
    """
    hidden, seeds = max(depths), itertools.count(1000 * seed)
    growth = [_growth(n, hidden, growth_nets, next(seeds), device) for n in growth_widths]
    logs = [_layer_logs(n, hidden, nets, next(seeds), device) for n in widths]
    overlap = _overlap(overlap_width, overlap_nets, next(seeds), device)
    law = _law(law_widths, law_nets, (next(seeds), next(seeds)), device)
    angles = [_angles(n, angle_nets, next(seeds), device) for n in ANGLE_WIDTHS]
    return Study(
        growth=_stack(growth),
        products=_stack(_products(n, rows, depths) for n, rows in zip(widths, logs, strict=True)),
        layers=_stack(_layers(n, rows, constants) for n, rows in zip(widths, logs, strict=True)),
        quantiles=_stack([overlap[0], law[0]]),
        tests=_stack([overlap[1], law[1]]),
        angles=_stack(angles),
    )


def within_probability(width: int, constant: float, hidden: int) -> float:
    """Exact P(log‖J_ℓ e_1‖ ≤ c/n in all `hidden` layers of width n), by Lemma C.2.

    One layer's ‖J_ℓ e_1‖² is (2/n) χ²_B with B ~ Bin(n, ½); derived here.
    """
    gates = np.arange(1, width + 1)
    below = stats.chi2.cdf(width / 2 * np.exp(2 * constant / width), gates)
    one_layer = stats.binom.pmf(0, width, 0.5) + stats.binom.pmf(gates, width, 0.5) @ below
    return float(min(one_layer, 1.0) ** hidden)


def within_table(constants: Sequence[float], widths: Sequence[int], hidden: int) -> pd.DataFrame:
    """`within_probability` for every c (rows) and width (columns)."""
    values = [[within_probability(n, c, hidden) for n in widths] for c in constants]
    index = pd.Index(constants, name="c")
    return pd.DataFrame(values, index=index, columns=pd.Index(widths, name="width"))


def judge(study: Study) -> list[claims.Verdict]:
    """Verdicts on L11, L11b, L18 and L20 from the tables of `sample`."""
    products, tests = study.products, study.tests.set_index("test")
    nets, hidden = products.nets.iloc[0], products.hidden.max()
    cells = f"{nets:,} networks of {hidden} ReLU layers a width"
    deepest = products[products.hidden == hidden]
    last = study.growth[study.growth.layer == hidden]
    with np.errstate(divide="ignore"):  # a layer may be off in most networks
        worst = np.log(last[["worst", "worst_low", "worst_high"]]) / hidden
    typical = deepest[["median", "low", "high"]].div(deepest.hidden, axis=0)
    theta = np.linspace(0, np.pi, 1001)
    return [
        claims.check("L11", _probability_change(study.layers), sample=cells),
        claims.check("L11b", _typical_rate(products[products.judged]), sample=cells),
        claims.not_run("L18", f"the equality in law needs {LAW_NETS:,} networks")
        if tests.nets["law"] < LAW_NETS
        else claims.check(
            "L18",
            {
                "worst_rate": Measured(*worst.min()),
                "typical_rate": Measured(*typical.max()),
                "overlap_tail": tests.p_value["overlap"],
                "law_tail": tests.p_value["law"],
            },
            sample=f"{cells}; {tests.nets['overlap']:,} pairs of layers",
        ),
        claims.check(
            "L20",
            {
                "limit_increase": float((theory.relu_angle(theta) - theta).max()),
                "gap_50": _largest_gap(study.angles, 50),
                "gap_500": _largest_gap(study.angles, 500),
            },
        ),
    ]


def draw(study: Study) -> Figure:
    """Growth, singular vectors, the product law; layers, their products, and angles."""
    fig = Figure(figsize=(style.PAGE, 5.6))
    (growth, overlap, law), (layers, products, angles) = fig.subplots(2, 3)
    _draw_growth(growth, study)
    _draw_law(overlap, study.quantiles[study.quantiles.test == "overlap"])
    overlap.axvline(1, color=style.RED, linestyle="--")
    overlap.annotate(
        "aligned", (1, 0.5), (-4, 0), textcoords="offset points", ha="right", va="center",
        color=style.RED, fontsize=style.SMALL,
    )  # fmt: skip
    overlap.set(xlabel="overlap of singular vectors", ylabel="share of networks", xlim=(0, 1.03))
    overlap.text(0.43, 0.2, "line: uniform\ndirection", color=style.GREY, fontsize=style.SMALL)
    _draw_law(law, study.quantiles[study.quantiles.test == "law"])
    law.set(xlabel="$\\Vert J_x u\\Vert$", ylabel="share of networks", xlim=(0, None))
    law.text(
        0.95, 0.2, "line: independent\nfactors", transform=law.transAxes, ha="right",
        color=style.GREY, fontsize=style.SMALL,
    )  # fmt: skip
    _draw_layers(layers, study.layers)
    _draw_products(products, study.products)
    _draw_angles(angles, study.angles)
    for ax, title in (
        (growth, "Worst case and typical"),
        (overlap, "Incoherent vectors"),
        (law, "Independent layers"),
        (layers, "All layers below $c/n$"),
        (products, "Products of layers"),
        (angles, "Angles contract"),
    ):
        ax.set_title(title)
    return fig


# ---- sampling -------------------------------------------------------------------------------


def _growth(width: int, hidden: int, nets: int, seed: int, device: str) -> pd.DataFrame:
    growth = jacobian.worst_case_growth([width] * (hidden + 1) + [1], nets, seed, device=device)
    worst, low, high = _median(growth.worst.numpy()[:, :-1])
    return pd.DataFrame(
        {
            "width": width,
            "layer": np.arange(1, hidden + 1),
            "nets": nets,
            "worst": worst,
            "worst_low": low,
            "worst_high": high,
            "jacobian": np.median(growth.jacobian.numpy()[:, :-1], axis=0),
        }
    )


def _layer_logs(width: int, hidden: int, nets: int, seed: int, device: str) -> np.ndarray:
    """log‖J_ℓ v_ℓ‖ of the ReLU layers, `(nets, hidden)`; -inf where a layer is off."""
    # an output layer of one neuron is needed to make a network, and left out again
    widths = [width] * (hidden + 1) + [1]
    norms = jacobian.sample_layer_norms(widths, nets, seed, device=device).numpy()[:, :-1]
    with np.errstate(divide="ignore"):
        return np.log(norms)


def _products(width: int, logs: np.ndarray, depths: Sequence[int]) -> pd.DataFrame:
    layers = np.arange(1, logs.shape[1] + 1)
    products = logs.cumsum(axis=1)  # (nets, hidden)
    median, low, high = _median(products)
    q10, q90 = np.quantile(products, [0.1, 0.9], axis=0, method="inverted_cdf")
    return pd.DataFrame(
        {
            "width": width,
            "hidden": layers,
            "nets": len(logs),
            "reciprocal_sum": layers / width,
            "median": median,
            "low": low,
            "high": high,
            "q10": q10,
            "q90": q90,
            "sd": pd.DataFrame(products).where(np.isfinite).std().to_numpy(),
            "predicted_sd": np.sqrt(5 * layers / (4 * width)),
            "judged": np.isin(layers, depths),
        }
    )


def _median(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Medians over the first axis, and their 95 % intervals by order statistics.

    Such an interval assumes nothing about the law, and bears networks that are off.
    """
    ordered, nets = np.sort(values, axis=0), len(values)
    rank = max(int(stats.binom.ppf(0.025, nets, 0.5)), 1)
    return np.median(ordered, axis=0), ordered[rank - 1], ordered[nets - rank]


def _layers(width: int, logs: np.ndarray, constants: Sequence[float]) -> pd.DataFrame:
    nets, hidden = logs.shape
    rows = []
    for constant in constants:
        within = int((logs.max(axis=1) <= constant / width).sum())
        low, high = stats.binomtest(within, nets).proportion_ci(method="exact")
        rows.append(
            {
                "width": width,
                "constant": constant,
                "hidden": hidden,
                "nets": nets,
                "probability": within / nets,
                "low": low,
                "high": high,
                "exact": within_probability(width, constant, hidden),
            }
        )
    return pd.DataFrame(rows)


def _overlap(width: int, nets: int, seed: int, device: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Overlaps against those with a uniform direction, whose square is Beta(½, (n-1)/2)."""
    overlaps = jacobian.singular_overlaps(width, nets, seed, device=device).numpy()
    uniform = stats.beta(0.5, (width - 1) / 2)
    test = stats.kstest(overlaps**2, uniform.cdf)
    expected = np.sqrt(uniform.ppf(_LEVELS))
    return _comparison("overlap", overlaps, expected, test.statistic, test.pvalue)


def _law(
    widths: Sequence[int], nets: int, seeds: tuple[int, int], device: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """‖J_x u‖ of networks against ten times as many products of independent factors."""
    norms = jacobian.sample_layer_norms(widths, nets, seeds[0], device=device).prod(dim=1).numpy()
    products = jacobian.sample_product_law(widths, 10 * nets, seeds[1]).numpy()
    test = stats.ks_2samp(norms, products, method="asymp")
    return _comparison("law", norms, np.quantile(products, _LEVELS), test.statistic, test.pvalue)


def _comparison(
    test: str, sampled: np.ndarray, expected: np.ndarray, statistic: float, p_value: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of `Study.quantiles` and of `Study.tests`."""
    quantiles = {"level": _LEVELS, "sampled": np.quantile(sampled, _LEVELS), "expected": expected}
    result = {"nets": [len(sampled)], "statistic": statistic, "p_value": p_value}
    return pd.DataFrame({"test": test, **quantiles}), pd.DataFrame({"test": test, **result})


def _angles(width: int, nets: int, seed: int, device: str) -> pd.DataFrame:
    angles = np.linspace(0, np.pi, 19)
    image = jacobian.angle_map(width, angles, nets, seed, device=device)
    mean, half = image.mean.numpy(), 1.96 * image.standard_error.numpy()
    return pd.DataFrame(
        {
            "width": width,
            "angle": angles,
            "mean": mean,
            "low": mean - half,
            "high": mean + half,
            "limit": theory.relu_angle(angles),
        }
    )


def _stack(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(list(frames), ignore_index=True)


# ---- judging --------------------------------------------------------------------------------


def _probability_change(layers: pd.DataFrame) -> Measured:
    """P at the largest width minus that at the smallest, for the c where it falls least."""
    first = layers[layers.width == layers.width.min()].set_index("constant")
    last = layers[layers.width == layers.width.max()].set_index("constant")
    change = last.probability - first.probability
    at = change.idxmax()
    return Measured(change[at], last.low[at] - first.high[at], last.high[at] - first.low[at])


def _typical_rate(products: pd.DataFrame) -> Measured:
    """Largest |median of log‖J_x u‖| over Σ1/n; the ends are the largest of each end."""
    rates = products[["median", "low", "high"]].div(products.reciprocal_sum, axis=0)
    straddles = (rates.low < 0) & (rates.high > 0)
    sizes = rates[["low", "high"]].abs()
    return Measured(
        rates["median"].abs().max(),
        sizes.min(axis=1).mask(straddles, 0.0).max(),
        sizes.max(axis=1).max(),
    )


def _largest_gap(angles: pd.DataFrame, width: int) -> Measured:
    """Largest distance of the mean angle from the limit, with that cell's interval."""
    rows = angles[angles.width == width]
    at = (rows["mean"] - rows.limit).abs().idxmax()
    gap, half = abs(rows["mean"][at] - rows.limit[at]), (rows.high[at] - rows.low[at]) / 2
    return Measured(gap, max(gap - half, 0.0), gap + half)


# ---- drawing --------------------------------------------------------------------------------


def _draw_growth(ax: Axes, study: Study) -> None:
    """Product of norms, norm of the product, and a direction, of the narrowest and the widest."""
    ends = sorted({study.growth.width.min(), study.growth.width.max()})
    for width, line in zip(ends, ("--", "-")[-len(ends) :], strict=True):
        rows = study.growth[study.growth.width == width]
        ax.plot(rows.layer, rows.worst, color=style.RED, linestyle=line)
        ax.plot(rows.layer, rows.jacobian, color=style.ORANGE, linestyle=line)
        typical = study.products[study.products.width == width]
        ax.plot(typical.hidden, np.exp(typical["median"]), color=style.BLUE, linestyle=line)
    last, top = study.growth.layer.max(), max(study.growth.worst.max(), 10.0)
    ax.set(yscale="log", xlim=(0, last), xlabel="ReLU layers $L$", ylabel="stretch")
    ax.set_ylim(top**-0.25, top**1.05)
    for text, colour, x, y, align in (
        ("product of\nspectral norms", style.RED, 0.06, 0.83, "left"),
        ("norm of the product", style.ORANGE, 0.97, 0.25, "right"),
        ("a direction, median", style.BLUE, 0.03, 0.05, "left"),
        (f"dashed: width {ends[0]}", style.GREY, 0.97, 0.35, "right"),
    ):
        ax.text(x, y, text, transform=ax.transAxes, ha=align, color=colour, fontsize=style.SMALL)


def _draw_law(ax: Axes, rows: pd.DataFrame) -> None:
    """Sampled distribution function, by points, on the expected one."""
    shown = rows.iloc[4::5]
    ax.plot(rows.expected, rows.level, color=style.BLACK, linewidth=1)
    ax.plot(shown.sampled, shown.level, "o", color=style.BLUE, markeredgecolor="white")
    ax.set(ylim=(0, 1), ylabel="share of networks")


def _draw_layers(ax: Axes, layers: pd.DataFrame) -> None:
    """Sampled probabilities on the exact curves, which go on to widths that are not sampled."""
    constants = sorted(layers.constant.unique())
    sampled = sorted(layers.width.unique())
    last = max(4 * sampled[-1], 200)
    widths = np.unique(np.geomspace(sampled[0], last, 60).astype(int))
    hidden = layers.hidden.iloc[0]
    for constant, colour in zip(constants, style.family(len(constants)), strict=True):
        rows = layers[layers.constant == constant]
        exact = np.array([within_probability(n, constant, hidden) for n in widths])
        ax.plot(widths, exact, color=colour)
        style.intervals(ax, rows.width, rows.probability, rows.low, rows.high, color=colour)
        low = int(np.abs(exact - 0.25).argmin())
        ax.annotate(
            f"c = {constant:g}", (widths[low], exact[low]), (6, 2),
            textcoords="offset points", color=colour, fontsize=style.SMALL,
        )  # fmt: skip
    ax.set(xscale="log", ylim=(-0.02, 1.04), xlabel="width $n$", ylabel="probability")
    ax.set_xticks(sampled, [str(n) for n in sampled])
    ax.minorticks_off()


def _draw_products(ax: Axes, products: pd.DataFrame) -> None:
    """Median and 10-90 % range of log‖J_x u‖ against L/n, with the log-normal prediction."""
    widths = sorted(products.width.unique())
    s = np.linspace(0, min(products.reciprocal_sum.max(), 2.5), 100)
    half = stats.norm.ppf(0.9) * np.sqrt(5 * s / 4)
    ax.fill_between(s, -5 * s / 4 - half, -5 * s / 4 + half, color="#E2E2E2", linewidth=0)
    ax.plot(s, -5 * s / 4, color=style.BLACK, linewidth=1)
    for width, colour in zip(widths, style.family(len(widths))[::-1], strict=True):
        rows = products[(products.width == width) & (products.reciprocal_sum <= s[-1])]
        ax.plot(rows.reciprocal_sum, rows["median"], color=colour, label=f"width {width}")
        for edge in (rows.q10, rows.q90):
            ax.plot(rows.reciprocal_sum, edge, color=colour, linewidth=0.9)
    ax.set(xlim=(0, s[-1]), xlabel="$L/n$", ylabel="$\\log\\Vert J_x u\\Vert$")
    ax.legend(loc="lower left", handlelength=1.2)


def _draw_angles(ax: Axes, angles: pd.DataFrame) -> None:
    """Mean angles after one layer on the map of infinite width, in degrees."""
    theta = np.linspace(0, np.pi, 200)
    ax.plot(*np.rad2deg([theta, theta]), color=style.GREY, linestyle="--", linewidth=1)
    limit = np.rad2deg(theory.relu_angle(theta))
    ax.plot(np.rad2deg(theta), limit, color=style.BLACK, linewidth=1, label="infinite width")
    colours = (style.ORANGE, style.BLUE)
    for width, colour, fill in zip(ANGLE_WIDTHS, colours, ("full", "none"), strict=True):
        rows = angles[angles.width == width]
        x, y = np.rad2deg(rows.angle), np.rad2deg(rows["mean"])
        ax.plot(x, y, "o", color=colour, fillstyle=fill, label=f"width {width}")
    ticks = [0, 45, 90, 135, 180]
    ax.set(xticks=ticks, yticks=ticks, xlim=(0, 180), ylim=(0, 180))
    ax.set(xlabel="angle of inputs (degrees)", ylabel="after one layer (degrees)")
    ax.legend(loc="upper left", handlelength=1.2)
