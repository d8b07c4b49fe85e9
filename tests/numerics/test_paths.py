"""Path integrals close, or say where F jumps; analytic functions are the oracle."""

import weakref

import pytest
import torch

from exhibit_a.numerics.paths import PathIntegral, PathLimits, integrate, integrate_sums


def walk(function, *, parts=(0.75, 0.25), **options) -> PathIntegral:
    """Integrate a function of α whose gradient is shared by parts, in double precision."""

    def evaluate(alphas):
        places = torch.tensor(alphas, dtype=torch.float64, requires_grad=True)
        heights = function(places)
        (gradients,) = torch.autograd.grad(heights.sum(), places, materialize_grads=True)
        return heights.detach(), gradients[:, None] * torch.tensor(parts, dtype=torch.float64)

    ends = function(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    return integrate(evaluate, tuple(ends), **options)


def spike(width):
    """What a norm after attention does: everything happens at α ≈ width."""
    return lambda alpha: 3 * alpha / (alpha**2 + width**2).sqrt()


def rise(place, width):
    return lambda alpha: torch.sigmoid((alpha - place) / width)


def test_a_polynomial_takes_one_panel_and_is_exact():
    path = walk(lambda alpha: 2 * alpha**9 - alpha + 4)
    assert path.points == 5
    assert path.complete
    torch.testing.assert_close(path.integral, torch.tensor([0.75, 0.25], dtype=torch.float64))
    assert abs(path.gap) < 1e-12


@pytest.mark.parametrize("width", [0.1, 0.03, 0.01, 0.003])
@pytest.mark.parametrize("place", [0.2, 0.5, 0.77])
def test_a_steep_rise_is_found_and_integrated(place, width):
    path = walk(rise(place, width), limits=PathLimits(budget=200))
    assert path.complete
    assert abs(float(path.integral.sum()) - path.change) <= 0.01 * path.change
    assert path.integral[0] / path.integral[1] == pytest.approx(3)
    assert not path.jumps


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
def test_a_spike_at_the_start_closes_within_the_budget(width):
    path = walk(spike(width))
    assert path.complete, path.reason
    assert abs(float(path.integral.sum()) - path.change) <= 0.01 * path.change


def test_a_jump_is_located_and_not_hidden():
    path = walk(lambda alpha: alpha + 7 * (alpha > 0.3141))
    assert not path.complete
    assert abs(path.gap) == pytest.approx(7, abs=0.1)
    (jump,) = path.jumps
    assert jump.start <= 0.3141 <= jump.stop
    assert jump.stop - jump.start < 1e-3
    assert jump.change == pytest.approx(7, abs=0.01)
    assert "jumps by 7 between α = 0.314" in path.reason
    assert path.points <= 96


def test_two_jumps_that_cancel_are_both_told():
    path = walk(lambda alpha: alpha + 2.0 * ((alpha > 0.3) & (alpha < 0.6)))
    assert not path.complete
    assert [round(jump.change) for jump in path.jumps] == [2, -2]
    assert path.error > 3.9  # although the gap itself is small


def test_a_jump_at_the_very_start_is_told():
    path = walk(lambda alpha: alpha + (alpha > 0), limits=PathLimits(budget=200))
    assert not path.complete
    assert path.jumps[0].start == 0
    assert path.jumps[0].stop < 1e-6


def test_no_more_sums_are_held_than_allowed_and_the_integral_is_the_same():
    """Sums that are still alive are seen by weak references whenever more are asked for."""
    seen: list[weakref.ref] = []
    most = 0
    bumps = rise(0.31, 0.004), rise(0.72, 0.003), rise(0.11, 0.02)

    def summed(alphas, weights):
        nonlocal most
        places = torch.tensor(alphas, dtype=torch.float64, requires_grad=True)
        heights = sum(bump(places) for bump in bumps)
        (gradients,) = torch.autograd.grad(heights.sum(), places)
        sums = [(row * gradients).sum()[None] for row in weights]
        seen.extend(weakref.ref(one) for one in sums)
        most = max(most, sum(one() is not None for one in seen))
        return heights.detach(), gradients, sums

    ends = tuple(float(sum(bump(torch.tensor(end)) for bump in bumps)) for end in (0.0, 1.0))
    paths = {}
    for held in (2, 1024):
        seen, most = [], 0
        limits = PathLimits(budget=400, held=held)
        paths[held] = integrate_sums(summed, ends, limits, jumps_apart=True)
        assert paths[held].complete
        # with the one that is laid, the one before it, and the integral, which was the first
        assert held > 2 or most <= held + 3
    torch.testing.assert_close(paths[2].integral, paths[1024].integral, rtol=0.01, atol=0)
    assert paths[2].points <= paths[1024].points + 20


def test_points_never_exceed_the_budget():
    for budget in (5, 14, 15, 40, 96):
        assert walk(rise(0.4, 1e-3), limits=PathLimits(budget=budget)).points <= budget


def test_panels_cover_the_path_once():
    path = walk(rise(0.4, 1e-2))
    assert path.panels[0].start == 0
    assert path.panels[-1].stop == 1
    for before, after in zip(path.panels, path.panels[1:], strict=False):
        assert before.stop == pytest.approx(after.start)
    assert sum(panel.change for panel in path.panels) == pytest.approx(path.change)
