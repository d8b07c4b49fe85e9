"""Adjusted p-values are those of the reference implementation."""

import torch
from scipy.stats import false_discovery_control
from torch.testing import assert_close

from exhibit_a.numerics.intervals import discovery_rates


def test_adjusted_p_values_are_those_of_scipy_to_the_bit() -> None:
    for count in (1, 2, 7, 40):
        drawn = torch.rand(
            count, dtype=torch.double, generator=torch.Generator().manual_seed(count)
        )
        tied = (drawn * 8).ceil() / 8
        for p_values in (drawn, tied):
            expected = torch.from_numpy(false_discovery_control(p_values.numpy(), method="bh"))
            assert_close(discovery_rates(p_values), expected, rtol=0, atol=0)
