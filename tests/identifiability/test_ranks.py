"""Ranks are those of a singular value decomposition of every key set, and shortcuts never lie."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.masks import KINDS, mask, seeded
from torch.testing import assert_close

from exhibit_a.methods.identifiability.ranks import (
    Tolerance,
    key_sets,
    ranks,
    singular_values,
    surely_independent,
    tolerance_for,
)

law = settings(max_examples=60, deadline=None)
SINGLE = torch.float32


def with_spectrum(keys, width, strength, generator):
    """Values whose singular values are ``strength``."""
    left, _ = torch.linalg.qr(torch.randn(keys, keys, generator=generator, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
    count = min(keys, width)
    return left[:, :count] @ torch.diag(strength) @ right[:count]


@st.composite
def values_with_a_small_direction(draw):
    """Values of at most as many keys as they are wide, the weakest direction of any size."""
    generator = seeded(draw(st.integers(0, 2**31)))
    width = draw(st.integers(1, 24))
    keys = draw(st.integers(1, width))
    strength = torch.rand(keys, generator=generator, dtype=torch.float64) + 0.5
    strength[-1] = 10 ** -draw(st.floats(0, 12))
    strength *= 10 ** draw(st.floats(-3, 3))
    return with_spectrum(keys, width, strength, generator), generator


@law
@given(values_with_a_small_direction())
def test_a_yes_is_never_wrong_for_any_set_of_keys(case):
    values, generator = case
    tolerance = tolerance_for(SINGLE, values.shape[-1])
    if not bool(surely_independent(values, tolerance)):
        return
    for share in (1.0, 0.7, 0.4):
        kept = values[torch.rand(len(values), generator=generator) < share]
        if len(kept):
            strength = torch.linalg.svdvals(kept)
            assert strength[-1] > tolerance.lines(len(kept))[0] * strength[0]


@law
@given(values_with_a_small_direction())
def test_well_conditioned_values_get_a_yes(case):
    values, _ = case
    tolerance = tolerance_for(SINGLE, values.shape[-1])
    strength = torch.linalg.svdvals(values)
    clearly = 2 * len(values) * tolerance.lines(len(values))[0]
    assume(strength[-1] > clearly * strength[0])
    assert bool(surely_independent(values, tolerance))


def test_more_keys_than_dimensions_none_at_all_and_exact_models_get_no_yes():
    values = torch.randn(9, 8, generator=seeded(2), dtype=torch.float64)
    assert not surely_independent(values, tolerance_for(SINGLE, 8))
    assert surely_independent(values[:4], tolerance_for(SINGLE, 8))
    assert not surely_independent(values[:0], tolerance_for(SINGLE, 8))
    # Squares cannot resolve the tolerance of float64, so the spectrum has to be computed.
    assert not surely_independent(values[:4], tolerance_for(torch.float64, 8))


@law
@given(st.integers(0, 2**31), st.sampled_from(KINDS), st.integers(2, 30), st.integers(1, 8))
def test_every_key_set_has_the_rank_of_its_own_decomposition(seed, kind, n, width):
    generator = seeded(seed)
    sets = key_sets(mask(kind, n, generator=generator))
    graded = 10.0 ** -torch.linspace(0, 6, min(n, width), dtype=torch.float64)
    values = torch.stack(
        [
            with_spectrum(n, width, graded, generator),
            torch.randn(n, width, generator=generator, dtype=torch.float64),
        ]
    )
    tolerance = Tolerance(eps=0.0, width=width, fixed=1e-3)
    counted = ranks(values, sets, tolerance)
    counts = torch.stack([counted.least, counted.rank, counted.most], -1)
    for head in range(2):
        for index, member in enumerate(sets.member):
            strength = torch.linalg.svdvals(values[head, member])
            if not len(strength):
                assert counts[head, index].tolist() == [0, 0, 0]
                continue
            lines = strength[0] * torch.tensor(tolerance.lines(int(member.sum()))).double()
            gaps = (strength.unsqueeze(-1) / lines - 1).abs()
            if gaps.amin() > 1e-6:  # else rounding decides
                expected = (strength.unsqueeze(-1) > lines).sum(0)
                assert torch.equal(counts[head, index], expected)
    largest = sets.member[int(sets.size.argmax())]
    assert_close(counted.spectrum, torch.linalg.svdvals(values[:, largest]), rtol=1e-5, atol=1e-7)


def test_dependent_values_never_get_a_yes():
    generator = seeded(1)
    values = torch.randn(3, 8, 12, generator=generator, dtype=torch.float64)
    values[1, 5] = values[1, 2]  # a repeated token
    values[2, 7] = values[2, :7].mean(0)
    tolerance = tolerance_for(SINGLE, 12)
    assert surely_independent(values, tolerance).tolist() == [True, False, False]
    assert surely_independent(values.float(), tolerance).tolist() == [True, False, False]
    assert not surely_independent(torch.zeros(4, 12), tolerance)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 6, 3), (0, 3)])
@pytest.mark.parametrize("finest", [1e-12, 1e-5])
def test_singular_values_are_those_of_torch(shape, finest):
    matrix = torch.randn(shape, generator=seeded(3), dtype=torch.float64)
    assert_close(singular_values(matrix, finest), torch.linalg.svdvals(matrix), rtol=1e-6, atol=0)
