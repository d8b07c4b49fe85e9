"""Rows that share a factorisation are solved as if each had one of its own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.masks import KINDS, mask, seeded
from torch.testing import assert_close

from exhibit_a.methods.identifiability import key_sets as key_set_module
from exhibit_a.methods.identifiability.key_sets import key_sets
from exhibit_a.methods.identifiability.woodbury import coefficients

law = settings(max_examples=40, deadline=None)
SOLVABLE = 1e-3  # smallest eigenvalue of G, of at most 1


@st.composite
def problems(draw):
    """Products, a basis for each distinct head, which head uses which, and the key sets."""
    generator = seeded(draw(st.integers(0, 2**31)))
    n = draw(st.integers(4, 40))
    width = draw(st.integers(1, min(6, n)))
    distinct, heads = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    visible = mask(draw(st.sampled_from(KINDS)), n, generator=generator)
    drawn = torch.randn(distinct, n, width, generator=generator, dtype=torch.float64)
    basis, _ = torch.linalg.qr(drawn)
    if draw(st.booleans()):
        basis[0, :, -1] = 0  # a direction that was dropped
    owner = torch.randint(0, distinct, (heads,), generator=generator).sort().values
    weights = torch.rand(heads, n, n, generator=generator, dtype=torch.float64) * visible
    return weights @ basis[owner], basis, owner, key_sets(visible)


def gram_of(basis, member):
    """G, with ones on the diagonal for directions that were dropped."""
    seen = basis[member]
    return seen.T @ seen + torch.diag((basis == 0).all(0).double())


def rows_of(problem):
    """Every row: its head, place, key set and dense G."""
    products, basis, owner, sets = problem
    for head in range(products.shape[0]):
        for query, index in enumerate(sets.of_row.tolist()):
            yield head, query, index, gram_of(basis[owner[head]], sets.member[index])


def every_set(sets):
    return torch.ones(len(sets), dtype=torch.bool)


def check_against_dense_solutions(problem):
    products, basis, owner, sets = problem
    solution, _ = coefficients(products, basis, owner, sets, every_set(sets))
    solved = 0
    for head, query, _, gram in rows_of(problem):
        if torch.linalg.eigvalsh(gram)[0] > SOLVABLE:
            dense = torch.linalg.solve(gram, products[head, query])
            assert_close(solution[head, query], dense, rtol=1e-7, atol=1e-9)
            solved += 1
    return solved


@law
@given(problems())
def test_every_row_is_solved_as_a_dense_solver_would(problem):
    check_against_dense_solutions(problem)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("contested", [0, 3, 16, 99])
def test_blocks_of_any_size_give_the_same(kind, contested, monkeypatch):
    monkeypatch.setattr(key_set_module, "CONTESTED", contested)
    generator = seeded(5)
    visible = mask(kind, 36, generator=generator)
    basis, _ = torch.linalg.qr(torch.randn(2, 36, 4, generator=generator, dtype=torch.float64))
    owner = torch.tensor([0, 0, 1])
    weights = torch.rand(3, 36, 36, generator=generator, dtype=torch.float64) * visible
    solved = check_against_dense_solutions(
        (weights @ basis[owner], basis, owner, key_sets(visible))
    )
    assert solved > 36


@law
@given(problems())
def test_pivots_show_where_a_solution_can_be_trusted(problem):
    """They are at least the square of the smallest eigenvalue of G, and vanish with it."""
    products, basis, owner, sets = problem
    _, pivots = coefficients(products, basis, owner, sets, every_set(sets))
    for head, _, index, gram in rows_of(problem):
        least = float(torch.linalg.eigvalsh(gram)[0])
        assert pivots[head, index] >= least**2 - 1e-12
        if least < 1e-14:
            assert pivots[head, index] < 1e-10


def test_blocks_that_are_not_asked_for_stay_zero():
    generator = seeded(2)
    visible = mask("causal", 40)
    sets = key_sets(visible)
    assert len(sets.blocks) > 2
    basis, _ = torch.linalg.qr(torch.randn(1, 40, 3, generator=generator, dtype=torch.float64))
    weights = torch.rand(1, 40, 40, generator=generator, dtype=torch.float64) * visible
    products, owner = weights @ basis, torch.tensor([0])
    asked = torch.zeros(len(sets), dtype=torch.bool)
    asked[sets.blocks[-1].sets] = True
    solution, pivots = coefficients(products, basis, owner, sets, asked)
    complete, _ = coefficients(products, basis, owner, sets, every_set(sets))
    last = sets.blocks[-1].rows
    others = torch.ones(40, dtype=torch.bool)
    others[last] = False
    assert torch.equal(solution[:, last], complete[:, last])
    assert not solution[:, others].any()
    assert not pivots[:, ~asked].any()
    assert (complete[:, others].abs().amax(-1) > 0).any()
