import math

import pytest
from matplotlib.figure import Figure

from paperlib.experiments import length_moments
from paperlib.length import theory

SMALL = {
    "width": 20,
    "depths": [2, 5],
    "n_0": 5,
    "n_L": 5,
    "orders": [1, 2, 4],
    "nets": 2000,
    "law_width": 100,
    "law_depth": 10,
    "law_nets": 20,
    "seed": 3,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def tables():
    return length_moments.sample(**SMALL)


def verdicts(tables):
    return {result.id: result.verdict for result in length_moments.judge(tables)}


def test_moments_in_reach_agree_with_exact_mean_and_keep_their_bounds(tables):
    moments = tables.moments
    assert list(moments.m) == [1, 2, 4] * 2
    first = moments[moments.m == 1]
    assert first.bound.tolist() == pytest.approx([theory.mean_length([5, 20, 20, 5]), 0.8099], 1e-4)
    assert ((first.low < first.bound) & (first.bound < first.high)).all()
    reached = moments[moments.in_reach]
    assert (reached.low <= reached.bound).all()
    assert moments[moments.m == 2].bound.to_numpy() == pytest.approx(1.0)


def test_moments_out_of_reach_have_no_interval(tables):
    far = tables.moments[~tables.moments.in_reach]
    assert len(far) and far.m.eq(4).all()
    assert (far.needed > far.nets).all() and far[["low", "high"]].isna().all(axis=None)


def test_first_order_grows_as_five_eighths_m_m_minus_two():
    wide = length_moments.sample(**SMALL | {"width": 300, "nets": 20, "depths": [5]}).moments
    row = wide[wide.m == 4].iloc[0]
    assert row.first_order == pytest.approx(1.4 * math.exp(5 * 5 / 300))  # C_4(5) = 1.4
    assert row.first_order == pytest.approx(row.bound, rel=1e-3)


def test_networks_needed_grow_as_the_moments_of_twice_the_order_say(tables):
    needed = length_moments.needed(tables)
    # E‖J_x u‖⁴ and (E‖J_x u‖²)² = 1 of 5-[20]×5-5, by h_4 = 1 + 5/n and C_4 = 1 + 2/n.
    assert needed.loc[5, 2] == pytest.approx(100 * (1.25**5 * 1.4 - 1))


def test_averages_of_high_moments_collapse_beyond_their_reach():
    deep = length_moments.sample(**SMALL | {"depths": [40], "nets": 500, "orders": [6]})
    reach = deep.reach.set_index("m")
    assert reach["last"].iloc[0] == pytest.approx(math.sqrt(8 * math.log(500) / 10.4))
    assert reach.ratio[1] == pytest.approx(1, abs=0.1)
    assert reach.high[6] < 0.1


def test_tails_have_markov_bounds_of_the_exact_moments(tables):
    row = tables.tails[(tables.tails.t == 4) & (tables.tails.hidden == 5)].iloc[0]
    assert row.markov <= theory.moment_bound([5, *[20] * 5, 5], 4) / 4**4
    assert row.low <= row.probability <= row.high < row.markov
    assert (row.low > 0) == (row["count"] > 0)
    assert tables.tails.markov.max() <= 1


def test_log_normal_tail_is_that_of_its_parameters(tables):
    row = tables.tails[(tables.tails.t == 2) & (tables.tails.hidden == 5)].iloc[0]
    beta = 5 * 5 / 20 + 2 / 5
    z = (math.log(2) + beta / 4) / (math.sqrt(beta) / 2)
    assert row.lognormal == pytest.approx(math.erfc(z / math.sqrt(2)) / 2)


def test_law_does_not_depend_on_the_ratio_of_output_to_input_dimension(tables):
    other = length_moments.sample(**SMALL | {"n_0": 20})
    assert other.law.value.tolist() == pytest.approx(tables.law.value.tolist())
    assert other.law.predicted.tolist() == pytest.approx(tables.law.predicted.tolist())


def test_a_seed_fixes_the_tables_and_another_changes_them(tables):
    again, other = (length_moments.sample(**SMALL | {"seed": seed}) for seed in (3, 4))
    for name in ("moments", "reach", "tails", "law", "quantiles"):
        assert getattr(again, name).equals(getattr(tables, name))
        assert not getattr(other, name).equals(getattr(tables, name))


def test_judge_holds_and_fails_on_doctored_tables(tables):
    wide = length_moments.sample(**SMALL | {"depths": [10], "law_depth": 50, "nets": 4000})
    assert verdicts(wide) == {"L12": "holds", "L15": "holds"}
    law = tables.law.assign(predicted=tables.law.predicted * 2)
    assert verdicts(tables._replace(law=law))["L12"] == "fails"
    tails = tables.tails.assign(lognormal=tables.tails.low / 2 + 1e-12)
    assert verdicts(tables._replace(tails=tails))["L15"] == "fails"


def test_draw_gives_four_panels(tables):
    fig = length_moments.draw(tables)
    assert isinstance(fig, Figure) and len(fig.axes) == 4
