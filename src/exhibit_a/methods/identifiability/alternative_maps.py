"""Moves whole attention maps as far as possible with the same output of every head.

``alternatives.py`` explores one row with linear programs. Here every row of every head is moved
away from what it was, a little less far and thousands of times as fast, without leaving the rows
that are valid: no negative weight, the same sum and the same output. For a row a over keys with
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

The distance is a lower bound of what is possible: on real heads it came to five sixths of what
linear programs find. Where there are too many rows, those that contribute most to the answer are
moved, and a few of every head. With all alternatives in place, the model must give the answer that
it gave.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.identifiability.alternatives import DEPENDENT, SAME_OUTPUT, rounding_of
from exhibit_a.numerics.outer_products import Halves, as_matrices, halves_of
from exhibit_a.numerics.parallel import chunk_slices, parallel_map
from exhibit_a.numerics.precision import exact_device, to_float64
from exhibit_a.numerics.spilling import spilled
from exhibit_a.shapes import SiteMap, SiteRows
from exhibit_a.subject.guard import floating
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.counting import multiplications
from exhibit_a.trace.replay import replay

WORKSPACE = 2**21  # bytes of float64 matrices that a thread works on at a time
PASSES = 7  # of the model; where moving all rows takes more multiplications, only some are moved
LEAST_EFFORT, EFFORT = 2**29, 2**35  # multiplications, however small or large the model
FEWEST = 4  # rows of every head
SMALL = 5  # a matrix of side m takes as long as the sum of that many times m keys

RowMarks = Bool[Tensor, "_head _query"]

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
class AlternativeMaps:
    """Other valid maps with the same head outputs, and how far they are from the model's own."""

    maps: tuple[SiteMap, ...]
    distance: tuple[SiteRows, ...]  # total variation of every row; 0 where no other was found
    free_rows: tuple[RowMarks, ...]  # that could have been different
    tried: tuple[RowMarks, ...]  # and those of them that were moved
    residual: float  # largest change of a head's output, in units of the values
    answer_change: float  # of the model, with all alternatives in place at once
    allowed: float

    @property
    def free(self) -> int:
        """How many rows could have been different."""
        return sum(int(marks.sum()) for marks in self.free_rows)

    @property
    def searched(self) -> int:
        """How many of them were moved."""
        return sum(int(marks.sum()) for marks in self.tried)


@torch.no_grad()
def alternative_maps(
    trace: Trace, free: tuple[RowMarks, ...], *, first: tuple[SiteRows, ...] | None = None
) -> AlternativeMaps:
    """Move every row that is marked ``free`` as far as a few steps take it.

    Where that is too much work, only some rows are moved: those with the largest numbers in
    ``first``, and a few of each head; or the first ones of each.
    """
    trace = trace.keeping("attention", "values", "hidden")
    wanted = _affordable(trace, free, first)
    moved = [_move_site(trace, site.index, wanted[site.index]) for site in trace.sites]
    maps, distances, residuals = zip(*moved, strict=True)
    change, allowed = _answer_change(trace, maps)
    return AlternativeMaps(
        maps=maps,
        distance=distances,
        free_rows=free,
        tried=tuple(wanted),
        residual=max(residuals),
        answer_change=change,
        allowed=allowed,
    )


def _move_site(trace: Trace, site: int, wanted: RowMarks) -> tuple[SiteMap, SiteRows, float]:
    """The moved maps of one site, the distance of every row, and the worst change of an output."""
    attention, values = trace.attention[site], trace.values[site]
    if not bool(wanted.any()):
        return attention, torch.zeros(wanted.shape), 0.0
    place = exact_device(attention.device)
    dtype = torch.promote_types(attention.dtype, torch.float32)

    own = to_float64(attention)
    solver = RowMoves.of(to_float64(values))
    heads, queries = wanted.to(place).nonzero().unbind(1)

    def move_some(some: Tensor) -> tuple[Tensor, Tensor]:
        rows, of_heads = own[heads[some], queries[some]], heads[some]
        moved = solver.move(rows, of_heads)
        residual = solver.change_of_output(moved - rows, of_heads)
        kept = residual <= SAME_OUTPUT  # False for NaN, too
        return torch.where(kept.unsqueeze(-1), moved, rows), residual.where(kept, 0)

    at_a_time = max(1, WORKSPACE // (8 * solver.width**2))
    runs = chunk_slices(len(heads), at_a_time, place)
    rows, residuals = zip(
        *parallel_map(
            lambda run: move_some(torch.arange(len(heads), device=place)[run]), runs, place
        ),
        strict=True,
    )
    moved, all_rows = own.to(dtype, copy=True), torch.cat(rows)
    distance = torch.zeros(wanted.shape, device=place)
    distance[heads, queries] = 0.5 * (all_rows - own[heads, queries]).abs().sum(-1).float()
    moved[heads, queries] = all_rows.to(dtype)
    (on_disk,) = spilled((moved.to(attention.device),), of=sum(m.nbytes for m in trace.attention))
    return on_disk, distance.to(attention.device), float(torch.cat(residuals).amax())


def _affordable(
    trace: Trace, free: tuple[RowMarks, ...], first: tuple[SiteRows, ...] | None
) -> list[RowMarks]:
    """The rows to move: all that are free, or those that contribute most, and some of each head."""
    limit = _affordable_rows(trace)
    if sum(int(marks.sum()) for marks in free) <= limit:
        return list(free)
    heads = sum(len(marks) for marks in free)
    if first is None:
        return [_largest(to_float64(marks), max(1, limit // heads)) & marks for marks in free]
    worth = [
        to_float64(share).cpu() * marks.cpu() for share, marks in zip(first, free, strict=True)
    ]
    few = [_largest(site, FEWEST) & marks.cpu() for site, marks in zip(worth, free, strict=True)]
    pairs = zip(worth, few, strict=True)
    ranked = torch.cat([site.masked_fill(some, torch.inf).flatten() for site, some in pairs])
    chosen = torch.zeros_like(ranked, dtype=torch.bool)
    chosen[ranked.topk(max(limit, sum(int(some.sum()) for some in few))).indices] = True
    by_site = torch.split(chosen & (ranked > 0), [site.numel() for site in worth])
    return [
        rows.view(marks.shape).to(marks.device) & marks
        for rows, marks in zip(by_site, free, strict=True)
    ]


def _affordable_rows(trace: Trace) -> int:
    """How many rows can be moved without taking longer than everything else."""
    keys, width = max((values.shape[1], values.shape[2] + 1) for values in trace.values)
    a_row = SOLVED * width**2 * (keys + SMALL * width)
    effort = min(EFFORT, max(LEAST_EFFORT, PASSES * multiplications(trace)))
    return max(1, int(effort // a_row))


def _largest(worth: Float[Tensor, "head query"], count: int) -> RowMarks:
    """The rows of every head that are worth most."""
    best = worth.topk(min(count, worth.shape[1])).indices
    return torch.zeros_like(worth, dtype=torch.bool).scatter(1, best, True)


def _answer_change(trace: Trace, maps: tuple[SiteMap, ...]) -> tuple[float, float]:
    """The change of the model's answer with all maps in place, which only rounding may explain."""
    answer = floating(trace.output)[0]
    allowed = rounding_of(answer)
    if all(moved is raw for moved, raw in zip(maps, trace.attention, strict=True)):
        return 0.0, allowed
    changed = [
        edits.replace(site, moved.to(trace.attention[site].dtype))
        for site, moved in enumerate(maps)
    ]
    again = floating(replay(trace, edits.together(*changed)))[0]
    change = float((again - answer).abs().amax())
    if change > allowed:
        raise BrokenInvariantError(
            f"The alternative maps move the model's answer by {change:.1e}, beyond rounding "
            f"({allowed:.0e}), though every head output is the same. None are given."
        )
    return change, allowed


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
