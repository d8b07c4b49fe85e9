"""Rules integrate what they say they integrate, and nested ones keep their points."""

import pytest
import torch

from exhibit_a.numerics.quadrature import gauss, nested

DEGREES = {5: 7, 9: 13, 17: 25}


@pytest.mark.parametrize("rule", [*nested(), gauss(4)], ids=len)
def test_polynomials_are_integrated_up_to_the_degree_of_the_rule(rule):
    top = DEGREES.get(len(rule), 2 * len(rule) - 1)
    for degree in range(top + 1):
        found = float(rule.weights @ rule.points**degree)
        assert found == pytest.approx(1 / (degree + 1), abs=1e-14)
    if len(rule) < 17:  # beyond it, the error of the longest is below rounding
        missed = float(rule.weights @ rule.points ** (top + 1)) - 1 / (top + 2)
        assert abs(missed) > 1e-12


def test_every_rule_has_the_points_of_the_one_before_it_and_both_ends():
    known: set[float] = set()
    for rule in nested():
        assert known < set(rule.points.tolist())
        known = set(rule.points.tolist())
        assert {0.0, 1.0} < known
        assert float(rule.weights.min()) > 0


@pytest.mark.parametrize("rule", [*nested(), gauss(6)], ids=len)
def test_gradients_lead_to_the_heights(rule):
    gradients = 4 * rule.points**3 - rule.points
    heights = rule.points**4 - rule.points**2 / 2
    torch.testing.assert_close(gradients @ rule.cumulative_weights, heights, rtol=0, atol=1e-14)
