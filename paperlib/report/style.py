"""How figures look: fonts, colours, sizes, and the few marks that all notebooks share.

The qualitative colours are those of Okabe and Ito.
"""

import sys
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike

COLUMN = 5.2  # inches: a figure of one panel
PAGE = 7.6  # inches: a figure of several panels
SMALL = 8  # points: ticks, legends and labels inside the axes

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#1A1A1A", "#767676"
QUALITATIVE = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)

RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "figure.figsize": (COLUMN, 3.4),
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "savefig.facecolor": "white",
    "axes.prop_cycle": cycler(color=QUALITATIVE),
    "axes.edgecolor": "#4D4D4D",
    "axes.labelcolor": BLACK,
    "text.color": BLACK,
    "xtick.color": "#4D4D4D",
    "ytick.color": "#4D4D4D",
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "lines.solid_capstyle": "round",
    "errorbar.capsize": 0,
    # Letters as shapes: an svg looks the same where the font is missing.
    "svg.fonttype": "path",
    "svg.hashsalt": "paperlib",
}


def use() -> None:
    """Set matplotlib's parameters for all figures that follow; the backend stays as it is.

    In a Jupyter kernel, figures that were made without pyplot are shown as sharp pictures too.
    """
    matplotlib.rcParams.update(RC)
    # Looked up and not imported: outside a kernel IPython need not be loaded.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(shell, {"retina"}, bbox_inches=None)


def family(n: int) -> list[str]:
    """`n` colours of an ordered family such as widths, dark to light, as hex strings."""
    # The light end of the map is left out: it is too faint for a line on white.
    shades = matplotlib.colormaps["viridis"](np.linspace(0.03, 0.77, n))  # (n, 4)
    return [to_hex(shade) for shade in shades]


def band(
    ax: Axes, x: ArrayLike, y: ArrayLike, low: ArrayLike, high: ArrayLike, **style: Any
) -> None:
    """Draw the line `y` over `x` with its interval as a pale band; `style` goes to the line."""
    (line,) = ax.plot(x, y, **style)
    ax.fill_between(x, low, high, color=line.get_color(), alpha=0.18, linewidth=0)


def intervals(
    ax: Axes, x: ArrayLike, y: ArrayLike, low: ArrayLike, high: ArrayLike, **style: Any
) -> None:
    """Draw points with their intervals as bars; `style` goes to `Axes.errorbar`."""
    y, low, high = np.asarray(y), np.asarray(low), np.asarray(high)
    marks = {"fmt": "o", "markeredgecolor": "white", "markeredgewidth": 0.5, "elinewidth": 1.2}
    ax.errorbar(x, y, yerr=np.stack([y - low, high - y]), **(marks | style))


def end_labels(
    ax: Axes, x: float, ys: Sequence[float], texts: Sequence[str], colours: Sequence[str]
) -> None:
    """Write each line's name right of its end `(x, ys[i])`, moved apart where they would overlap.

    Call it after the limits and scales of `ax` are set.
    """
    pixels = ax.get_figure().dpi / 72
    gap = 1.25 * SMALL * pixels
    heights = ax.transData.transform([(x, y) for y in ys])[:, 1]  # (lines,) pixels
    lowest = -np.inf
    for i in np.argsort(heights, kind="stable"):
        lowest = max(heights[i], lowest + gap)
        ax.annotate(
            texts[i],
            (x, ys[i]),
            (7, (lowest - heights[i]) / pixels),
            textcoords="offset points",
            va="center",
            color=colours[i],
            fontsize=SMALL,
            annotation_clip=False,
        )
