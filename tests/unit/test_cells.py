import pytest

from paperlib.experiments import cells, length_depth
from paperlib.length import theory


def test_labels_are_short_for_constant_widths():
    assert cells.label([5, 20, 20, 5]) == "5-[20]×2-5"
    assert cells.label([5, 20, 10, 5]) == "5-20-10-5"
    assert cells.label([5, 3]) == "5-3"


def test_cells_are_independent_and_repeat():
    grid = [[5, 10, 5], [5, 10, 5]]
    first = cells.sample_cells(grid, seed=1, rel_error=0.1, max_nets=200)
    again = cells.sample_cells(grid, seed=1, rel_error=0.1, max_nets=200)
    other = cells.sample_cells(grid, seed=2, rel_error=0.1, max_nets=200)
    assert first.equals(again)
    assert first["mean"].nunique() == 2
    assert not (first["mean"] == other["mean"]).any()


def test_sample_size_follows_the_wanted_interval():
    (row,) = cells.sample_cells(
        [[5, 20, 20, 20, 5]], seed=0, rel_error=0.02, max_nets=10**6
    ).itertuples()
    assert (row.high - row.low) / 2 < 0.02 * row.exact
    assert row.exact == theory.mean_length([5, 20, 20, 20, 5])


def test_sample_resolves_the_mean_from_its_bound():
    (row,) = cells.sample_cells([[5, 50, 5]], seed=0, rel_error=0.5, max_nets=10**6).itertuples()
    assert (row.high - row.low) / 2 < (row.bound - row.exact) / 2


WIDTHS, DEPTHS = [5, 10, 20, 30, 40], [1, 2, 3, 4, 5, 6, 8, 10]  # 40 cells, which L1 counts in


@pytest.fixture(scope="module")
def depth_table():
    return length_depth.sample(WIDTHS, DEPTHS, 5, 5, 0.03, 4000, 1, "cpu")


def verdicts_of(table):
    return {v.id: v.verdict for v in length_depth.judge(table)}


def test_fig1_holds_as_sampled(depth_table):
    holds = dict.fromkeys(("L1", "L2", "L3", "L17"), "holds")
    assert verdicts_of(depth_table) == holds


@pytest.mark.parametrize("factor", [2**0.5, 0.8, 1.05, 0.95])
def test_fig1_turns_red_for_a_biased_sampler(depth_table, factor):
    doctored = depth_table.copy()
    doctored[["mean", "low", "high"]] *= factor
    doctored["z"] += (factor - 1) * doctored.exact / (doctored.ceiling / doctored.nets) ** 0.5
    assert verdicts_of(doctored)["L1"] == "fails"


def test_fig1_judges_nothing_that_a_tweak_left_out():
    small = length_depth.sample([1, 2], [1, 2], 5, 5, 0.5, 100, 1, "cpu")
    assert [verdicts_of(small)[id] for id in ("L1", "L17")] == ["not run", "not run"]
    assert verdicts_of(small)["L2"] != "not run"
    assert verdicts_of(small[small.width == 1])["L2"] == "not run"


def test_fig1_slopes_of_exact_means_do_not_depend_on_the_sample(depth_table):
    other = length_depth.sample(WIDTHS, DEPTHS, 5, 5, 0.2, 200, 2, "cpu")
    gaps = [
        next(v for v in length_depth.judge(table) if v.id == "L2").measured["exact_gap"].value
        for table in (depth_table, other)
    ]
    assert gaps[0] == gaps[1]


def test_fig1_exact_grid_has_the_known_values():
    table = length_depth.sample([20, 100], [1, 4, 19], 5, 5, 0.5, 100, 1, "cpu")
    grid = length_depth.exact_grid(table)
    assert grid.loc[20].tolist() == pytest.approx([0.9214, 0.8365, 0.5158], abs=5e-5)
    assert grid.loc[100].tolist() == pytest.approx([0.9456, 0.9279, 0.8444], abs=5e-5)
