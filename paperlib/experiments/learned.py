"""Networks that have learned nothing are not judged: what resets do to them says nothing."""

import pandas as pd

FACTOR = 1.5  # times the accuracy of guessing, below which a network has learned nothing


def unlearned(final_errors: pd.Series, chance: float) -> str | None:
    """Why claims on networks with these final test errors cannot be judged; None where they can.

    One network that never learned is enough: fresh values ruin it no further and no reset harms
    it, so that its damages are near 0 for another reason than robustness.

    Args:
        final_errors: test error of each network, a value each.
        chance: test error of random guessing.
    """
    accuracy = 1 - final_errors
    failed = accuracy < FACTOR * (1 - chance)
    if not failed.any():
        return None
    return (
        f"{failed.sum()} of {len(failed)} networks never learned: accuracy {accuracy.min():.2f}, "
        f"less than {FACTOR:g} times the {1 - chance:.2f} of guessing. Train longer, or with "
        "another learning rate."
    )
