import math

import pytest
import torch

from paperlib.length import curves, exact


@pytest.mark.parametrize("make", [curves.segment, curves.axis_segment])
@pytest.mark.parametrize("n_0", [1, 5])
def test_segments_are_centred_and_have_their_length(make, n_0):
    points = make(n_0, length=3.0)
    assert points.shape == (2, n_0) and points.dtype == torch.float64
    assert exact.arc_length(points)[-1].item() == pytest.approx(3.0, rel=1e-15)
    assert torch.equal(points[0], -points[1])


def test_directions_are_the_diagonal_and_the_first_axis():
    assert (curves.segment(4)[1] == 0.25).all()
    assert curves.axis_segment(4)[1].tolist() == [0.5, 0.0, 0.0, 0.0]


def test_circle_is_closed_regular_and_lies_in_the_first_two_coordinates():
    points = curves.circle(3, sides=5, radius=2.0)
    assert points.shape == (6, 3)
    assert torch.equal(points[0], points[-1])
    assert (points[:, 2] == 0).all()
    torch.testing.assert_close(points.norm(dim=1), torch.full((6,), 2.0).double())
    sides = points.diff(dim=0).norm(dim=1)
    torch.testing.assert_close(sides, torch.full((5,), 4 * math.sin(math.pi / 5)).double())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curves.segment(0), "n_0 must be an integer of at least 1"),
        (lambda: curves.segment(2, length=0), "length must be positive"),
        (lambda: curves.axis_segment(2, length=math.nan), "length must be a finite number"),
        (lambda: curves.circle(1), "n_0 must be an integer of at least 2"),
        (lambda: curves.circle(2, sides=2), "sides must be an integer of at least 3"),
        (lambda: curves.circle(2, radius=-1.0), "radius must be positive"),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
