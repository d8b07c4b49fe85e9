"""Rows that share a factorisation are solved as if each had one of its own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.masks import KINDS, mask, seeded
from torch.testing import assert_close

from exhibit_a.methods.identifiability import ranks as key_set_module
from exhibit_a.methods.identifiability.ranks import key_sets
from exhibit_a.methods.identifiability.woodbury import solvers

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
    basis, _ = torch.linalg.qr(drawn * visible.any(0).unsqueeze(-1))  # of the keys that are seen
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


def solved_together(problem, asked):
    """G⁻¹z of every row, and the pivots of every set, for the sets asked for."""
    products, basis, owner, sets = problem
    solution, pivots = torch.zeros_like(products), products.new_zeros(len(products), len(sets))
    for solver in solvers(basis, sets, asked):
        rows = solver.block.rows
        for part in (slice(0, 3), slice(3, None)):
            place = rows[part]
            solution[:, place] = solver.coefficients(products[:, place], owner, part)
        pivots[:, solver.block.sets] = solver.pivots[owner]
    return solution, pivots


def check_against_dense_solutions(problem):
    products, _, _, sets = problem
    solution, _ = solved_together(problem, every_set(sets))
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
    monkeypatch.setattr(key_set_module, "CHAINED", contested)
    generator = seeded(5)
    visible = mask(kind, 36, generator=generator)
    drawn = torch.randn(2, 36, 4, generator=generator, dtype=torch.float64)
    basis, _ = torch.linalg.qr(drawn * visible.any(0).unsqueeze(-1))
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
    _, _, _, sets = problem
    _, pivots = solved_together(problem, every_set(sets))
    for head, _, index, gram in rows_of(problem):
        least = float(torch.linalg.eigvalsh(gram)[0])
        assert pivots[head, index] >= least**2 - 1e-12
        if least < 1e-14:
            assert pivots[head, index] < 1e-10


@pytest.mark.parametrize("kind", ["causal", "sliding", "any"])
def test_errors_grow_by_no_more_than_is_said(kind):
    generator = seeded(4)
    visible = mask(kind, 40, generator=generator)
    basis, _ = torch.linalg.qr(torch.randn(1, 40, 4, generator=generator, dtype=torch.float64))
    sets = key_sets(visible)
    asked = sets.size > 4
    for solver in solvers(basis, sets, asked):
        for index in solver.block.sets.tolist():
            trace = torch.linalg.inv(gram_of(basis[0], sets.member[index])).trace()
            assert float(solver.amplification[0]) >= float(trace.sqrt()) * (1 - 1e-9)
