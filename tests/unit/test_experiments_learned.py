"""Networks that guess are not judged."""

import pandas as pd
import pytest

from paperlib.experiments.learned import unlearned


def test_networks_that_learned_can_be_judged():
    assert unlearned(pd.Series([0.02, 0.849]), chance=0.9) is None
    assert unlearned(pd.Series([0.998]), chance=0.999) is None


@pytest.mark.parametrize(
    ("errors", "chance", "begins"),
    [
        (
            [0.02, 0.9, 0.03],
            0.9,
            "1 of 3 networks never learned: accuracy 0.10, less than 1.5 times",
        ),
        ([0.86, 0.9], 0.9, "2 of 2 networks never learned: accuracy 0.10"),
        ([0.6], 0.5, "1 of 1 networks never learned: accuracy 0.40, less than 1.5 times the 0.50"),
    ],
)
def test_one_network_that_guesses_is_enough(errors, chance, begins):
    assert unlearned(pd.Series(errors), chance).startswith(begins)
