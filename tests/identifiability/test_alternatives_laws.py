"""Laws of the polytope of other valid rows, against all of its corners."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.masks import seeded
from torch.testing import assert_close

from exhibit_a.methods.identifiability.alternatives import polytope

law = settings(max_examples=20, deadline=None)


def a_row(n, d, seed, dtype=torch.float64):
    generator = seeded(seed)
    values = torch.randn(n, d, generator=generator).to(dtype)
    return torch.softmax(torch.randn(n, generator=generator).to(dtype), 0), values


def all_corners(row, values):
    """Every basic solution that is not negative: the corners of the polytope, by exhaustion."""
    equations = np.column_stack([values.numpy(), np.ones(len(row))])
    wanted = row.numpy() @ equations
    corners = []
    for support in combinations(range(len(row)), equations.shape[1]):
        square = equations[list(support)]
        if abs(np.linalg.det(square)) < 1e-9:
            continue
        weights = np.linalg.solve(square.T, wanted)
        if weights.min() > -1e-10:
            corner = np.zeros(len(row))
            corner[list(support)] = weights
            corners.append(corner)
    return np.stack(corners)


@law
@given(st.integers(2, 14), st.integers(1, 6), st.integers(0, 2**31))
def test_every_alternative_is_valid_and_has_the_same_output(n, d, seed):
    row, values = a_row(n, d, seed)
    explored = polytope(row, values, samples=4, generator=seeded(seed))
    for other in (*explored.corners, explored.farthest):
        assert other.min() >= 0
        assert abs(float(other.sum() - row.sum())) <= 1e-9
        assert ((other - row) @ values).abs().max() <= 1e-9
    assert explored.freedom == max(0, n - d - 1)
    assert bool((explored.low <= row).all())
    assert bool((row <= explored.high).all())
    assert explored.distance == pytest.approx(float((explored.farthest - row).abs().sum() / 2))


@law
@given(st.integers(5, 8), st.integers(1, 3), st.integers(0, 2**31))
def test_intervals_are_those_of_all_corners_and_nothing_farther_is_claimed(n, d, seed):
    row, values = a_row(n, d, seed)
    corners = all_corners(row, values)
    explored = polytope(row, values, samples=8, generator=seeded(seed))
    assert_close(explored.low.numpy(), corners.min(0), rtol=0, atol=1e-7)
    assert_close(explored.high.numpy(), corners.max(0), rtol=0, atol=1e-7)
    distances = np.abs(corners - row.numpy()).sum(1) / 2
    assert explored.distance <= distances.max() + 1e-9
    assert explored.distance >= 0.9 * distances.max()
    for corner in explored.corners.numpy():
        assert np.abs(corners - corner).sum(1).min() < 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_no_corner_lies_farther_in_the_direction_of_the_farthest_one(seed):
    row, values = a_row(12, 3, seed)
    explored = polytope(row, values, samples=0)
    direction = np.sign(explored.farthest.numpy() - row.numpy())
    reached = (all_corners(row, values) - row.numpy()) @ direction
    assert reached.max() <= 2 * explored.distance + 1e-7


@law
@given(st.integers(1, 5), st.integers(0, 2**31))
def test_an_identifiable_row_is_its_only_alternative(n, seed):
    row, values = a_row(n, 4, seed)
    explored = polytope(row, values, samples=3)
    assert (explored.freedom, explored.distance, explored.unique) == (0, 0.0, True)
    assert_close(explored.corners, row.expand(3, -1))
    assert_close(explored.low, row)
    assert_close(explored.high, row)


def test_weights_that_may_not_be_negative_can_leave_no_choice():
    angles = torch.linspace(0, 2 * torch.pi, 8)[:-1].double()
    values = torch.stack([angles.cos(), angles.sin()], dim=-1)  # no key is a mixture of others
    row = torch.zeros(7, dtype=torch.float64)
    row[2] = 1
    explored = polytope(row, values, samples=2, generator=seeded(0))
    assert explored.freedom == 4
    assert explored.unique
    assert explored.distance == pytest.approx(0, abs=1e-9)


def test_copies_of_a_token_can_take_all_of_their_common_weight():
    row, values = a_row(6, 8, 1)
    values[4] = values[1]
    explored = polytope(row, values, samples=4, generator=seeded(1))
    assert explored.freedom == 1
    both = float(row[1] + row[4])
    for key in (1, 4):
        assert float(explored.low[key]) == pytest.approx(0, abs=1e-12)
        assert float(explored.high[key]) == pytest.approx(both)
    others = [0, 2, 3, 5]
    assert_close(explored.low[others], row[others], rtol=0, atol=1e-9)
    assert_close(explored.high[others], row[others], rtol=0, atol=1e-9)
    assert explored.distance == pytest.approx(max(float(row[1]), float(row[4])))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_the_values_does_not_matter(scale):
    row, values = a_row(16, 4, 4)
    plain = polytope(row, values, samples=2, generator=seeded(4))
    scaled = polytope(row, values * scale, samples=2, generator=seeded(4))
    assert_close(scaled.low, plain.low, rtol=0, atol=1e-7)
    assert_close(scaled.high, plain.high, rtol=0, atol=1e-7)
