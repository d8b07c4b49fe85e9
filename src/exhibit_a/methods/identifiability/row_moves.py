"""Moves attention rows as far as possible while the output of their head stays the same.

Valid rows have no negative weight, the same sum and the same output. For a row a over keys with
values V let M be an orthonormal basis of the columns of [V, 1]. From x = a, repeatedly:

1. choose an objective c: first c = −a, away from the heavy keys; then c = sign(x − a), along which
   the distance ½ Σ|x − a| never shrinks, because it is convex;
2. with w = x^p, y = (Mᵀ diag(w) M)⁻¹ Mᵀ diag(w) c, take the direction d = w ⊙ (c − My), which gains
   along c and keeps Mᵀx. Small weights move slowly (p = 3/2), so that they do not block the others;
3. x ← x + t·d, with t nine tenths of the longest step that leaves no weight negative;
4. a step after which the equations no longer hold is not taken;
5. at the end, the change of Mᵀx by rounding is corrected.

A key with weight zero (masked, or underflown) keeps it. Rows of several heads move together: each
meets the M of its head, and everything else is done for all of them at once. The matrices of step 2
are sums over keys of m mᵀ, with m the key's row of M (``numerics/outer_products.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.polytope import DEPENDENT, SAME_OUTPUT
from exhibit_a.numerics.outer_products import Halves, as_matrices, halves_of

AWAY, FURTHER, CORRECTIONS = 4, 8, 2  # steps with the first objective, with the second, and after
SOLVED = AWAY + FURTHER + CORRECTIONS  # equations for each row
PACE = 1.5  # p
SHORT_OF = 0.9  # the share of the longest step that is taken
RIDGE = 1e-16  # of the trace, so that keys which impose nothing can be left out
TINY = 1e-30

Rows = Float[Tensor, "row key"]
Products = Float[Tensor, "row constraint"]
HeadOfRow = Int[Tensor, " row"]  # in ascending order
Runs = list[tuple[int, slice]]


@dataclass(frozen=True, eq=False)
class RowMoves:
    """What the rows of some heads must keep."""

    basis: Float[Tensor, "head key constraint"]  # M; zero where a head has fewer constraints
    halves: Halves
    equations: Float[Tensor, "head key equation"]  # [V, 1] with values of at most 1

    @classmethod
    def of(cls, values: Float[Tensor, "head key d_head"]) -> "RowMoves":
        """The constraints of heads with these values, in float64."""
        largest = values.abs().amax((1, 2), keepdim=True)
        scaled = values / largest.clamp_min(torch.finfo(values.dtype).tiny)
        equations = torch.cat([scaled, torch.ones_like(scaled[..., :1])], -1)
        left, strength, _ = torch.linalg.svd(equations, full_matrices=False)
        basis = left * (strength > DEPENDENT * strength[:, :1]).unsqueeze(1)
        return cls(basis, halves_of(basis), equations)

    @property
    def width(self) -> int:
        """The number of constraints."""
        return self.basis.shape[-1]

    def move(self, row: Rows, head: HeadOfRow) -> Rows:
        """Rows as far from ``row`` as a few steps lead, with the same output."""
        moved, kept = row, _Kept(self, head)
        for step in range(AWAY + FURTHER):
            objective = -row if step < AWAY else (moved - row).sign()  # step 1
            further = kept.step(moved, objective)  # steps 2 and 3
            holds = kept.residual(further - row) <= SAME_OUTPUT / 64  # step 4
            moved = torch.where(holds, further, moved)
        for _ in range(CORRECTIONS):  # step 5
            corrected = kept.corrected(moved, row)
            better = kept.residual(corrected - row) < kept.residual(moved - row)
            moved = torch.where(better, corrected, moved)
        return moved

    def change_of_output(self, moved: Rows, head: HeadOfRow) -> Float[Tensor, " row"]:
        """The largest change of an output by a change of the rows, in units of the values."""
        change = by_head(runs_of(head), moved, lambda h, rows: rows @ self.equations[h])
        return change.abs().amax(-1)


def runs_of(head: HeadOfRow) -> Runs:
    """The heads of the rows, and which rows are those of each."""
    ends = [*(head.diff().nonzero().flatten() + 1).tolist(), len(head)]
    heads = head[[end - 1 for end in ends]].tolist()
    return [(number, slice(*run)) for number, run in zip(heads, pairwise([0, *ends]), strict=True)]


def by_head(runs: Runs, rows: Tensor, work: Callable[[int, Tensor], Tensor]) -> Tensor:
    """``work`` on the rows of every head, one head after the other."""
    return torch.cat([work(number, rows[run]) for number, run in runs])


class _Kept:
    """The equations of some rows, each with those of its head."""

    def __init__(self, moves: RowMoves, head: HeadOfRow) -> None:
        self.moves, self.runs = moves, runs_of(head)

    def residual(self, change: Rows) -> Float[Tensor, "row 1"]:
        """By how much the products with the basis have changed."""
        return self._products(change).abs().amax(-1, keepdim=True)

    def step(self, moved: Rows, objective: Rows) -> Rows:
        """A step that gains along the objective and keeps Mᵀx."""
        slower = moved ** (PACE - 1)
        pace = slower * moved  # w
        gain = objective - self._back(
            self._solved(pace, self._products(pace * objective))
        )  # c − My
        rate = gain * slower  # d / x: of growth or, below zero, of shrinking
        fastest = (-rate).amax(-1, keepdim=True)
        length = torch.where(fastest > TINY, SHORT_OF / fastest.clamp_min(TINY), 0)  # step 3
        return moved * (1 + length * rate).clamp_min(0)

    def corrected(self, moved: Rows, row: Rows) -> Rows:
        """The moved row with the change of Mᵀx by rounding corrected."""
        correction = self._solved(moved, self._products(row - moved))
        return moved * (1 + self._back(correction)).clamp_min(0)

    def _products(self, rows: Rows) -> Products:
        """Mᵀx of every row."""
        return by_head(self.runs, rows, lambda h, some: some @ self.moves.basis[h])

    def _back(self, products: Products) -> Rows:
        """My of every row."""
        return by_head(self.runs, products, lambda h, some: some @ self.moves.basis[h].mT)

    def _solved(self, pace: Rows, wanted: Products) -> Products:
        """(Mᵀ diag(w) M)⁻¹ times ``wanted``; zero where the row's keys impose nothing."""
        entries = by_head(self.runs, pace, lambda h, rows: rows @ self.moves.halves[h])
        gram = as_matrices(entries, wanted.shape[-1])
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        diagonal.add_((RIDGE * diagonal.sum(-1, keepdim=True)).clamp_min(TINY**4))
        factor, _ = torch.linalg.cholesky_ex(gram)
        solution: Tensor = torch.cholesky_solve(wanted.unsqueeze(-1), factor).squeeze(-1)
        return solution.nan_to_num(0, 0, 0)
