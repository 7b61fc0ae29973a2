"""The data that the notebook tests have just made, against the reference data."""

from pathlib import Path

import pytest

from paperlib.paths import Project
from paperlib.running.reference import deviations, read_tolerances

HERE = Path(__file__).parent
MADE = Project.here().build("nbval") / "figures"
REFERENCES = sorted(HERE.glob("*.csv"))

pytestmark = pytest.mark.skipif(not MADE.is_dir(), reason="nothing made yet: run make test")


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda path: path.stem)
def test_data_stay_within_their_tolerances(reference: Path) -> None:
    tolerances = read_tolerances(HERE / "tolerances.toml", [path.stem for path in REFERENCES])
    assert deviations(MADE / reference.name, reference, tolerances) == []


def test_all_data_have_a_reference() -> None:
    made = {path.name for path in MADE.glob("*.csv")}
    assert made - {path.name for path in REFERENCES} == set(), "add it: make reference"
