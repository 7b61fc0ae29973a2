"""The look: the reader's backend is left alone, colours are told apart, labels do not overlap."""

from itertools import pairwise

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from paperlib.report import style


def axes():
    """Axes of a figure that no global state knows."""
    with matplotlib.rc_context(style.RC):
        fig = Figure(figsize=(style.COLUMN, 3))
        FigureCanvasAgg(fig)
        return fig.add_subplot()


def luminance(colour):
    return float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))


def test_use_sets_the_look_and_not_the_backend():
    assert "backend" not in style.RC
    with matplotlib.rc_context():
        style.use()
        assert matplotlib.rcParams["svg.hashsalt"]
        assert matplotlib.rcParams["font.sans-serif"] == ["DejaVu Sans"]


def test_an_ordered_family_goes_from_dark_to_light():
    for n in (1, 2, 5, 9):
        shades = [luminance(colour) for colour in style.family(n)]
        assert len(shades) == n
        assert np.all(np.diff(shades) > 0)


def test_a_band_has_the_colour_of_its_line():
    ax = axes()
    style.band(ax, [1, 2], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5], color=style.GREEN)
    (fill,) = ax.collections
    np.testing.assert_allclose(fill.get_facecolor()[0, :3], to_rgb(style.GREEN))


def test_intervals_reach_from_low_to_high():
    ax = axes()
    style.intervals(ax, [1.0], [2.0], [1.5], [4.0])
    (bars,) = ax.collections
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [1.5, 4.0])


def test_labels_of_lines_that_end_together_do_not_overlap():
    ax = axes()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    style.end_labels(ax, 1.0, [0.5, 0.501, 0.1], ["a", "b", "c"], style.family(3))
    ax.figure.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))
