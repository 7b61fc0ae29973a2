"""Fig. 2: slopes of the damage on hand-made tables, and the verdict on C4."""

import re

import numpy as np
import pandas as pd
import pytest

from paperlib.experiments import layers_fcn, layers_widths
from paperlib.paths import data_dir

TRAINING = {"lr": 0.01, "epochs": 8, "train_images": 60000}
T2 = 4.302653  # 97.5 % point of Student's t with two degrees of freedom


def table(widths=(32, 64), depths=(3, 7), seeds=3, width=-2.0, depth=3.0) -> pd.DataFrame:
    """Mean damage above layer1: 20 + (width − seed) log₂(width/32) + (depth + seed) (depth − 3).

    Layer1's damage is 100 less those terms, and the layers above lie about their mean.
    """
    rows = []
    for hidden in depths:
        for n in widths:
            for seed in range(seeds):
                term = (width - seed) * np.log2(n / 32) + (depth + seed) * (hidden - 3)
                above = 20 + term + np.arange(hidden) - (hidden - 1) / 2
                damages = [100 - term, *above]
                rows += [
                    (hidden, n, seed, f"layer{k}", damage, 0.02, 0.1 * k)
                    for k, damage in enumerate(damages, 1)
                ]
    names = ["hidden", "width", "seed", "layer", "damage", "final", "moved"]
    return pd.DataFrame(rows, columns=names)


def swapped(rows: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    return rows.assign(layer=rows.layer.replace({one: other, other: one}))


def verdict(rows: pd.DataFrame):
    (found,) = layers_widths.judge(rows)
    return found


def test_the_slopes_of_a_plane_by_seed():
    found = layers_widths.slopes(table(widths=[32, 64, 128], depths=[3, 5, 7]))
    assert found.width.to_numpy() == pytest.approx([-2, -3, -4])
    assert found.depth.to_numpy() == pytest.approx([3, 4, 5])


def test_the_largest_damage_has_slopes_of_its_own():
    # The largest lies (depth − 1)/2 above the mean.
    found = layers_widths.slopes(table(), "max")
    assert found.width.to_numpy() == pytest.approx([-2, -3, -4])
    assert found.depth.to_numpy() == pytest.approx([3.5, 4.5, 5.5])
    shown = layers_widths.slope_table(table())
    # Slopes −2, −3, −4 and 3, 4, 5: a half width of 4.30/√3.
    texts = ["-3.00 [-5.48, -0.52]", "4.00 [1.52, 6.48]"]
    assert shown.points.to_list() == [*texts, texts[0], "4.50 [2.02, 6.98]"]
    assert layers_widths.slope_table(table(depths=[3])).empty


def test_the_interval_is_over_seeds():
    width = verdict(table()).measured["width_slope"]
    # Slopes −2, −3, −4 have standard error 1/√3.
    assert (width.value, width.low) == pytest.approx((-3, -3 - T2 / np.sqrt(3)), abs=1e-5)


def test_the_verdict_follows_both_slopes():
    assert verdict(table()).verdict == "holds"
    assert verdict(table(width=6)).verdict == "fails"
    assert verdict(table(depth=-6)).verdict == "fails"
    assert verdict(table(width=-1)).verdict == "inconclusive"  # −1, −2, −3: up to +0.48
    assert verdict(table(seeds=1)).verdict == "inconclusive"


def test_the_first_layer_does_not_count():
    rows = table()
    rows.loc[rows.layer == "layer1", "damage"] = 1e6
    assert verdict(rows).measured == verdict(table()).measured
    # Its slopes are the opposite of the others'; where it stands in for one of four, they tip.
    tipped = table(depths=[1, 3], width=-3)
    assert verdict(tipped).verdict == "holds"
    assert verdict(swapped(tipped, "layer1", "layer2")).verdict != "holds"


def test_a_width_with_fewer_seeds_is_shown_and_not_judged():
    more = table(widths=[512], seeds=2).assign(damage=500.0)
    both = pd.concat([table(), more])
    assert verdict(both).measured == verdict(table()).measured
    shown = layers_widths.networks(both)
    assert shown.seeds.tolist() == [3, 3, 2] * 2
    assert shown.above.tolist()[2] == "500.0 [500.0, 500.0]"


@pytest.mark.parametrize("part", [{"widths": [32]}, {"depths": [3]}])
def test_one_width_or_one_depth_judges_nothing(part):
    assert verdict(table(**part)).verdict == "not run"


def test_the_summary_of_a_network():
    row = layers_widths.networks(table()).iloc[0]
    assert (row.hidden, row.width, row.final) == (3, 32, 0.02)
    assert (row.layer1, row.largest) == (100, 21)
    row = layers_widths.networks(table()).iloc[1]  # 64 wide: 18, 17, 16
    assert row.above == "17.0 [14.5, 19.5]"
    assert layers_widths.networks(table(seeds=1)).above[0] == "20.0 (one seed)"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (table(), "4.00 [1.52, 6.48], which leans for the claim, and its interval excludes 0."),
        (table(depth=-1), "0.00 [-2.48, 2.48], which leans against the claim, but its interval"),
        (table(seeds=1), "3.00 (one seed), which leans for the claim; one seed cannot settle it."),
        (table(depths=[3]), "There is no slope in depth"),
    ],
)
def test_the_slope_in_depth_is_put_into_words(rows, text):
    assert text in layers_widths.depth_in_words(rows)


def test_networks_that_guess_are_not_judged():
    assert verdict(table().assign(final=0.9)).verdict == "not run"


@pytest.mark.parametrize(
    ("widths", "depths", "more", "text"),
    [
        ([32, 32], [3], [], "widths must not repeat a number; got [32, 32]"),
        ([32], [1, 1], [], "depths must not repeat a number; got [1, 1]"),
        ([32], [3], [64, 64], "more_widths must not repeat a number; got [64, 64]"),
        ([32], [10**6], [], "FCN 1000000×32 is too large: at most 1,000 hidden layers"),
        ([10**7], [1], [], "FCN 1×10000000 is too large"),
    ],
)
def test_grids_that_make_no_sense_are_refused(widths, depths, more, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        layers_widths.specs("mnist", widths, depths, more, seeds=1, more_seeds=1, **TRAINING)


def test_a_training_without_steps_is_refused():
    with pytest.raises(ValueError, match="lr must be above 0"):
        layers_widths.specs("mnist", [8], [1], [], seeds=1, more_seeds=0, **TRAINING | {"lr": 0})


def test_runs_of_every_width_at_every_depth():
    runs = layers_widths.specs("mnist", [64, 256], [3, 7], [512], seeds=3, more_seeds=2, **TRAINING)
    assert len(runs) == 2 * (3 + 3 + 2)
    found = [(spec.options["hidden"], spec.options["width"], spec.seed) for spec in runs]
    assert found[:8] == [(3, 64, 0), (3, 64, 1), (3, 64, 2), (3, 256, 0), (3, 256, 1),
                         (3, 256, 2), (3, 512, 0), (3, 512, 1)]  # fmt: skip
    first = layers_fcn.specs(3, 256, "lecun-truncated", seeds=3, **TRAINING)
    assert runs[3:6] == first


def test_cifar_is_augmented():
    (run,) = layers_widths.specs("cifar10", [8], [1], [], seeds=1, more_seeds=0, **TRAINING)
    assert run.data == "cifar10" and run.recipe.augment


def test_refusals_say_what_to_do():
    with pytest.raises(ValueError, match="more_seeds must be at most seeds = 3; got 4"):
        layers_widths.specs("mnist", [64], [3], [512], seeds=3, more_seeds=4, **TRAINING)
    with pytest.raises(ValueError, match=r"take out \[64\]"):
        layers_widths.specs("mnist", [64], [3], [64], seeds=3, more_seeds=2, **TRAINING)


def test_bars_are_means_over_seeds():
    fig = layers_widths.draw(table())
    left, right, below, _ = fig.axes
    assert (left.get_title(), right.get_title()) == ("3 hidden layers", "7 hidden layers")
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["2", "3", "4"]
    heights = [[bar.get_height() for bar in bars] for bars in left.containers]
    assert heights == [pytest.approx([19, 20, 21]), pytest.approx([16, 17, 18])]


def test_cifar10_goes_the_whole_way(tmp_path, monkeypatch):
    if not (data_dir() / "decoded-v1" / "cifar10.json").exists():
        pytest.skip("cifar10 has not been fetched")
    monkeypatch.setenv("STORE", str(tmp_path))
    short = {"lr": 0.01, "epochs": 1, "train_images": 256}
    runs = layers_widths.specs("cifar10", [8], [2], [], seeds=1, more_seeds=0, **short)
    assert runs[0].recipe.augment
    rows = layers_widths.measure(runs, test_images=100, device="cpu")
    assert rows.layer.tolist() == ["layer1", "layer2", "layer3"]
    assert len(layers_widths.draw(rows).axes) == 2
    assert verdict(rows).verdict == "not run"
