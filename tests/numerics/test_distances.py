"""Distances keep their digits where things nearly agree."""

import math

import pytest
import torch

from exhibit_a.numerics.distances import cosine_distance


@pytest.mark.parametrize("angle", [1e-7, 1e-5, 1e-3, 0.5, 3.0])
def test_the_cosine_distance_of_two_directions_is_that_of_their_angle(angle):
    first = torch.tensor([2.0, 0.0], dtype=torch.float64)
    second = 5 * torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    expected = 2 * math.sin(angle / 2) ** 2
    assert float(cosine_distance(first, second)) == pytest.approx(expected, rel=1e-6)
