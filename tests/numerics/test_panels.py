"""A panel knows what it misses: polynomials of the rule's degree close, others say by how much."""

import pytest
import torch

from exhibit_a.numerics.panels import (
    ORDER,
    ROUGH,
    Stretch,
    panel_over,
    side_by_side,
    total_error,
    worst_of,
)


def over(function, gradient, start=0.0, stop=1.0):
    """A panel over a stretch, of a function whose gradient is known."""
    ends = torch.tensor([start, stop], dtype=torch.float64)
    stretch = Stretch(start, stop, 1.0, 1.0, *function(ends).tolist())
    points = stretch.points
    integral = (stretch.weights * gradient(points)).sum()
    return panel_over(stretch, function(points), gradient(points), integral)


def test_weights_integrate_polynomials_up_to_twice_the_points():
    stretch = Stretch(0.2, 0.7, 1.0, 1.0, 0.0, 0.0)
    for degree in range(2 * ORDER):
        whole = (0.7 ** (degree + 1) - 0.2 ** (degree + 1)) / (degree + 1)
        assert float(stretch.weights @ stretch.points**degree) == pytest.approx(whole, rel=1e-12)


def test_weights_follow_the_speed_of_a_bent_stretch():
    bent = Stretch(0.0, 1.0, 0.5, 3.0, 0.0, 0.0)  # α = t³ / 2
    assert bent.ends == (0.0, 0.5)
    assert float(bent.weights.sum()) == pytest.approx(0.5)
    assert float(bent.weights @ bent.points) == pytest.approx(0.125)


def test_a_panel_that_closes_has_no_error_and_one_that_does_not_has_its_gap():
    smooth = over(lambda a: a**3, lambda a: 3 * a**2)
    assert smooth.error < 1e-12
    assert float(smooth.integral) == pytest.approx(1)
    flat = over(lambda a: (a > 0.3).double(), torch.zeros_like)
    assert flat.gap == flat.error == 1.0


def test_two_jumps_that_cancel_are_seen_by_the_points_between_them():
    panel = over(lambda a: ((a > 0.3) & (a < 0.7)).double(), torch.zeros_like)
    assert panel.gap == 0
    assert panel.error == 1 / ROUGH


def test_halves_meet_at_the_middle_point_where_the_height_is_known():
    panel = over(lambda a: a**2, lambda a: 2 * a, 0.5, 1.0)
    before, after = panel.split()
    assert before.ends == (0.5, 0.75)
    assert after.ends == (0.75, 1.0)
    assert before.high == after.low == pytest.approx(0.75**2)
    assert (before.low, after.high) == (panel.stretch.low, panel.stretch.high)


def test_a_spike_at_the_start_is_cut_at_the_first_point():
    first = float(Stretch(0.0, 1.0, 1.0, 1.0, 0.0, 0.0).points[0])
    panel = over(lambda a: 1 - (-a / 1e-4).exp(), lambda a: 1e4 * (-a / 1e-4).exp())
    before, after = panel.split()
    assert before.ends[1] == after.ends[0] == pytest.approx(first)
    assert after.ends[1] == 1


def test_without_the_worst_panels_the_others_are_good_enough():
    jumps = [over(lambda a, h=h: h * (a > 0.3), torch.zeros_like) for h in (0.1, 0.4, 0.2)]
    assert total_error(jumps) == pytest.approx(0.7)
    assert [panel.error for panel in worst_of(jumps, 0.15)] == pytest.approx([0.4, 0.2])
    assert worst_of(jumps, 1.0) == []
    assert len(worst_of(jumps, 0.0)) == 3


def test_weights_stand_side_by_side_and_see_only_their_own_points():
    spread = side_by_side([torch.ones(1, 2), 2 * torch.ones(2, 3)])
    assert spread.tolist() == [[1, 1, 0, 0, 0], [0, 0, 2, 2, 2], [0, 0, 2, 2, 2]]
