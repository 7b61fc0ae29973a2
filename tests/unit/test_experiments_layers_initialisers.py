"""Initialisers and learning rates: gaps and slopes on hand-made tables, C25 and C26."""

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments import layers_fcn
from paperlib.experiments import layers_initialisers as initialisers
from paperlib.networks.initialisers import INITIALISERS

LRS = [0.001, 0.01, 0.1]
T2 = 4.302653  # 97.5 % point of Student's t with two degrees of freedom


def rows(initialiser: str, lr: float, damages, final=0.02, seeds=3) -> list[tuple]:
    """Damages of layers 1, 2, … at seed 1; a point less of layer1 at seed 0, one more at 2."""
    return [
        (
            initialiser,
            lr,
            seed,
            f"layer{k}",
            damage + (seed - 1) * (k == 1),
            0.9 - 0.1 * k,
            final,
            k,
        )
        for seed in range(seeds)
        for k, damage in enumerate(damages, 1)
    ]


def table(*parts: list[tuple]) -> pd.DataFrame:
    names = ["initialiser", "lr", "seed", "layer", "damage", "rerandomised", "final", "moved"]
    return pd.DataFrame([row for part in parts for row in part], columns=names)


def whole(other=5.0, slope=10.0, final=0.02) -> pd.DataFrame:
    """Gaps 25 but for "he", 30 − other; layer1's damage 30 + slope · log₁₀(lr/0.01)."""
    damages = dict.fromkeys(INITIALISERS, (30, 5, 2)) | {"he": (30, 2, other)}
    scan = [("lecun-truncated", lr, (30 + slope * np.log10(lr / 0.01), 5, 2)) for lr in LRS]
    parts = [rows(name, 0.01, d) for name, d in damages.items() if name != "lecun-truncated"]
    return table(*[rows(*part, final=final if part[1] == 0.1 else 0.02) for part in scan], *parts)


def verdicts(rows: pd.DataFrame) -> dict:
    return {found.id: found for found in initialisers.judge(rows, 0.01)}


def test_the_smallest_gap_is_judged_with_its_own_interval():
    found = verdicts(whole(other=12))["C25"]
    assert found.verdict == "holds" and "that of he" in found.note
    gap = found.measured["gap"]
    # Gaps 17, 18, 19 have standard error 1/√3.
    assert (gap.value, gap.low) == pytest.approx((18, 18 - T2 / np.sqrt(3)), abs=1e-5)


def test_one_initialiser_without_a_gap_is_enough():
    assert verdicts(whole(other=29))["C25"].verdict == "fails"
    assert verdicts(whole(other=19))["C25"].verdict == "inconclusive"  # 11 ± 2.5


def test_a_wide_interval_decides_though_its_mean_is_not_the_smallest():
    wide = whole(other=12)  # gaps 18 of he, 25 of the others
    rows = (wide.initialiser == "glorot") & (wide.layer == "layer1")
    wide.loc[rows, "damage"] += 12 * (wide.seed[rows] - 1)
    found = verdicts(wide)["C25"]
    assert found.verdict == "inconclusive"
    assert found.measured["gap"].value == pytest.approx(18)


def test_swapping_two_layers_flips_the_verdict():
    right = whole(other=12)
    wrong = right.assign(layer=right.layer.replace({"layer1": "layer3", "layer3": "layer1"}))
    assert verdicts(right)["C25"].verdict == "holds"
    assert verdicts(wrong)["C25"].verdict == "fails"


def test_fewer_than_four_initialisers_judge_nothing():
    three = whole()[lambda frame: frame.initialiser != "he"]
    assert verdicts(three)["C25"].verdict == "not run"


def test_the_slope_is_per_decade_of_the_learning_rate():
    assert initialisers.slopes(whole(slope=10)).tolist() == pytest.approx([10, 10, 10])


def test_the_verdict_follows_the_slope():
    assert verdicts(whole(slope=10))["C26"].verdict == "holds"
    assert verdicts(whole(slope=-10))["C26"].verdict == "fails"
    spread = whole(slope=0)
    top = (spread.lr == 0.1) & (spread.layer == "layer1")
    spread.loc[top, "damage"] += 6 * (spread.seed[top] - 1)
    assert verdicts(spread)["C26"].verdict == "inconclusive"


def test_one_learning_rate_judges_nothing():
    one = whole()[lambda frame: frame.lr == 0.01]
    assert verdicts(one)["C26"].verdict == "not run"


def test_only_equally_good_networks_are_judged():
    assert verdicts(whole(final=0.024))["C26"].verdict == "holds"
    assert "2.00 % and 2.40 %." in verdicts(whole(final=0.024))["C26"].note
    differ = verdicts(whole(final=0.026))["C26"]
    assert differ.verdict == "not run"
    assert "between 2.00 % and 2.60 %" in differ.reason
    assert "Only those of 0.001, 0.01 are" in differ.reason


def test_networks_that_guess_are_not_judged():
    found = verdicts(whole().assign(final=0.9))
    assert (found["C25"].verdict, found["C26"].verdict) == ("not run", "not run")
    # A learning rate at which nothing is learned is none of the initialisers' business.
    found = verdicts(whole(final=0.9))
    assert (found["C25"].verdict, found["C26"].verdict) == ("holds", "not run")
    assert "3 of 9 networks never learned" in found["C26"].reason


def test_the_summary_by_initialiser():
    found = initialisers.summary(initialisers.by_initialiser(whole(other=12), 0.01), "initialiser")
    assert sorted(found.initialiser) == sorted(INITIALISERS)
    he = found.set_index("initialiser").loc["he"]
    assert (he.final, he.layer1, he.other) == (0.02, 30, 12)
    assert (he.rerandomised, he.moved) == pytest.approx((0.6, 1))
    assert he.gap == "18.0 [15.5, 20.5]"


def test_the_summary_by_learning_rate_is_of_the_default_initialiser():
    found = initialisers.summary(initialisers.by_lr(whole(slope=10)), "lr")
    assert found.lr.tolist() == LRS
    assert found.layer1.tolist() == pytest.approx([20, 30, 40])


def test_each_run_is_asked_for_once():
    runs = initialisers.specs(
        3, 256, list(INITIALISERS), 0.01, [0.003, 0.01], epochs=8, train_images=60000, seeds=2
    )
    assert len({run.folder_name for run in runs}) == len(runs) == 2 * (4 + 1)
    shared = layers_fcn.specs(3, 256, "lecun-truncated", 0.01, 8, 60000, 2)
    assert [run for run in runs if run in shared] == shared


def test_points_are_means_over_seeds():
    fig = initialisers.draw(whole(other=12, slope=10), 0.01)
    by_lr = fig.axes[1]
    assert by_lr.get_xscale() == "log"
    layer1 = next(line for line in by_lr.lines if len(line.get_ydata()) == len(LRS))
    assert list(layer1.get_ydata()) == pytest.approx([20, 30, 40])
