import pytest
from matplotlib.figure import Figure

from paperlib.experiments import length_volume

SMALL = {
    "width": 40,
    "depths": [1, 4],
    "dims": [1, 2, 7],
    "n_0": 8,
    "n_L": 8,
    "rel_error": 0.1,
    "max_nets": 1000,
    "narrow_widths": [1, 2],
    "narrow_nets": 20,
    "seed": 2,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def tables():
    return length_volume.sample(**SMALL)


def verdicts(tables):
    return {result.id: result.verdict for result in length_volume.judge(tables)}


def test_every_cell_has_a_row_and_the_known_mean(tables):
    volumes = tables.volumes
    assert list(zip(volumes.hidden, volumes.d, strict=True)) == [
        (depth, d) for depth in (1, 4) for d in (1, 2, 7)
    ]
    row = volumes.iloc[-1]
    assert row.architecture == "8-[40]×4-8"
    assert row.exact == pytest.approx(0.01029, abs=5e-6)
    assert row.leading == pytest.approx(0.0122, abs=1e-4)
    assert row.nets == 1000 and volumes.nets.min() == 100
    assert (volumes.exact <= volumes.rms).all()
    assert (volumes.rms <= volumes.cauchy_schwarz * (1 + 1e-12)).all()
    assert volumes.z.abs().max() < 4


def test_rates_approach_their_limit():
    rates = length_volume.rates([1, 2, 3, 4])
    assert rates.limit.tolist() == [5 / 8, 2, 33 / 8, 7]
    assert rates["n = 1000"].tolist() == pytest.approx([0.6254, 2.002, 4.131, 7.013], rel=5e-4)
    assert length_volume.rates([21])["n = 20"].tolist() == [float("inf")]


def test_closed_forms_are_those_of_the_deepest_network(tables):
    forms = length_volume.closed_forms(tables)
    assert forms.index.tolist() == [1, 2, 7]
    assert forms.exact[7] == pytest.approx(0.01029, abs=5e-6)


def test_volumes_vanish_behind_layers_narrower_than_d(tables):
    narrow = tables.narrow
    vanishing = narrow.width < narrow.d
    assert (narrow.exact[vanishing] == 0).all() and narrow.largest[vanishing].max() < 1e-12
    assert narrow.largest[~vanishing].min() > 1e-3


def test_a_dimension_above_the_widths_is_refused():
    with pytest.raises(ValueError, match=r"smallest of width, n_0 and n_L, 6; got 7"):
        length_volume.sample(**SMALL | {"n_L": 6})


def test_a_seed_fixes_the_tables_and_another_changes_them(tables):
    again, other = (length_volume.sample(**SMALL | {"seed": seed}) for seed in (2, 3))
    assert again.volumes.equals(tables.volumes) and again.narrow.equals(tables.narrow)
    assert not other.volumes.equals(tables.volumes) and not other.narrow.equals(tables.narrow)


def test_judge_holds_and_fails_on_doctored_tables(tables):
    assert verdicts(tables) == {"L14": "holds", "L19": "holds"}
    wrong = tables.volumes.assign(z=tables.volumes.z + 4)
    assert verdicts(tables._replace(volumes=wrong))["L14"] == "fails"
    wrong = tables.narrow.assign(largest=tables.narrow.largest + 1e-9)
    assert verdicts(tables._replace(narrow=wrong))["L19"] == "fails"


def test_judge_needs_a_layer_narrower_than_d_for_l19(tables):
    rest = tables.narrow[tables.narrow.width >= tables.narrow.d]
    assert verdicts(tables._replace(narrow=rest))["L19"] == "not run"


def test_draw_gives_three_panels_and_a_scale(tables):
    fig = length_volume.draw(tables)
    assert isinstance(fig, Figure) and len(fig.axes) == 4
