"""Whether networks have learned enough for their resets to mean anything."""

import pandas as pd

LEAST = 1.5  # times the accuracy of guessing


def unlearned(final_errors: pd.Series, chance: float) -> str | None:
    """Why these networks' resets cannot be judged, in one sentence; None where they can.

    A network near chance has nothing to lose, so that every reset looks harmless.

    Args:
        final_errors: final test error by seed.
        chance: the error of guessing, e.g. 0.9 for ten classes.
    """
    accuracy = 1 - float(final_errors.mean())
    if accuracy >= LEAST * (1 - chance):
        return None
    return (
        f"The networks have hardly learned: mean accuracy {accuracy:.3f}, where guessing has "
        f"{1 - chance:.3f}. Train longer, or on more images."
    )
