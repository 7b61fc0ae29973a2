"""Heatmaps of layers by checkpoints, as the paper's: ReRnd and `fullmodel` set apart."""

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from paperlib.report import style

# Sequential, darker for more, hence safe for the colour-blind; the paper's own.
ERROR, DISTANCE = "Reds", "Blues"
APART = ("ReRnd", "fullmodel")
GAP = 5  # points of white between what is set apart and the rest


def heatmap(
    ax: Axes,
    table: pd.DataFrame,
    *,
    colours: str,
    high: float,
    low: float = 0.0,
    digits: int | None = 2,
    bar: str = "",
) -> None:
    """Draw `table`, rows layers and columns checkpoints, in the order that it has.

    Args:
        table: numbers; what is missing stays white.
        colours: ERROR or DISTANCE.
        low, high: ends of the scale, so that several panels can share one.
        digits: decimals of the values in the cells; None prints no values.
        bar: label of a colour bar; without one there is none.
    """
    sns.heatmap(
        table.astype(float),
        ax=ax,
        vmin=low,
        vmax=high,
        cmap=colours,
        annot=digits is not None,
        fmt=f".{digits}f" if digits is not None else "",
        annot_kws={"fontsize": style.SMALL - 1.5},
        linewidths=0.6,
        linecolor="white",
        cbar=bool(bar),
        cbar_kws={"label": bar} if bar else None,
    )
    ax.set(xlabel="checkpoint (epoch)", ylabel="")
    ax.tick_params(length=0, rotation=0)
    ax.tick_params("x", labelsize=style.SMALL - 1)
    ax.grid(False)
    for names, line in ((table.columns, ax.axvline), (table.index, ax.axhline)):
        apart = [name in APART for name in names]
        for i in range(1, len(apart)):
            if apart[i] != apart[i - 1]:
                line(i, color="white", linewidth=GAP)
