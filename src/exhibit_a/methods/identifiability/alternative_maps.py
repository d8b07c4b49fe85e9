"""Could whole attention maps have been different, with the same output of every head?

``alternatives.py`` explores one row with linear programs. Here every row of every head is moved
away from what it was, a little less far and thousands of times as fast, without leaving the rows
that are valid: none negative, the same sum, the same head output. For a row a over keys with values
V let M be an orthonormal basis of the columns of [V, 1]. From x = a, repeatedly:

1. choose an objective c: first c = −a, away from the heavy keys; then c = sign(x − a), along which
   the distance ½ Σ|x − a| never shrinks, because it is convex;
2. with w = x^p, y = (Mᵀ diag(w) M)⁻¹ Mᵀ diag(w) c, take the direction d = w ⊙ (c − My), which gains
   along c and keeps Mᵀx. Small weights move slowly (p = 3/2), so that they do not block the others;
3. x ← x + t·d, with t nine tenths of the longest step that leaves no weight negative;
4. a step after which the equations no longer hold is not taken;
5. at the end, the change of Mᵀx by rounding is corrected.

A key with weight zero (masked, or underflown) keeps it. The distance is a lower bound of what is
possible: on real heads it came to five sixths of what linear programs find.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.identifiability.alternatives import rounding_of
from exhibit_a.methods.identifiability.polytope import DEPENDENT, SAME_OUTPUT
from exhibit_a.numerics.exact import exact, exact_device
from exhibit_a.numerics.parallel import spread
from exhibit_a.numerics.spilling import spilled
from exhibit_a.shapes import SiteMap, SiteRows
from exhibit_a.subject.guard import floating
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.replay import replay

AWAY, FURTHER = 4, 8  # steps with the first objective and with the second
PACE = 1.5  # p
SHORT_OF = 0.9  # the share of the longest step that is taken
RIDGE = 1e-16  # of the trace, so that keys which impose nothing can be left out
TINY = 1e-30
EFFORT = 2**35  # multiplications; beyond, only some rows of each head are moved

Rows = Float[Tensor, "row key"]
Constraints = Float[Tensor, "key constraint"]
RowMarks = Bool[Tensor, "_head _query"]


@dataclass(frozen=True, eq=False)
class AlternativeMaps:
    """Other valid maps with the same head outputs, and how far they are from the model's own."""

    maps: tuple[SiteMap, ...]
    distance: tuple[SiteRows, ...]  # total variation of every row; 0 where no other was found
    searched: int  # rows that were moved
    free: int  # rows that could have been different
    residual: float  # largest change of a head's output, in units of the values
    answer_change: float  # of the model, with all alternatives in place at once
    allowed: float


@torch.no_grad()
def alternative_maps(
    trace: Trace, free: tuple[RowMarks, ...], *, first: tuple[SiteRows, ...] | None = None
) -> AlternativeMaps:
    """Move every row that is marked ``free`` as far as a few steps take it.

    Where that is too much work, only some rows of each head are moved: those with the largest
    numbers in ``first``, or the first ones.
    """
    trace = trace.keeping("attention", "values", "hidden")
    wanted = _affordable(trace, free, first)
    moved = [_move_site(trace, site.index, wanted[site.index]) for site in trace.sites]
    maps, distances, residuals = zip(*moved, strict=True)
    change, allowed = _answer_change(trace, maps)
    return AlternativeMaps(
        maps=maps,
        distance=distances,
        searched=sum(int(marks.sum()) for marks in wanted),
        free=sum(int(marks.sum()) for marks in free),
        residual=max(residuals),
        answer_change=change,
        allowed=allowed,
    )


def move(row: Rows, basis: Constraints) -> Rows:
    """Rows as far from ``row`` as a few steps lead, with the same products with ``basis``."""
    moved = row
    for step in range(AWAY + FURTHER):
        objective = -row if step < AWAY else (moved - row).sign()  # step 1
        further = _step(moved, basis, objective)  # steps 2 and 3
        holds = _residual(further, row, basis) <= SAME_OUTPUT / 64  # step 4
        moved = torch.where(holds, further, moved)
    for _ in range(2):  # step 5
        corrected = _corrected(moved, row, basis)
        better = _residual(corrected, row, basis) < _residual(moved, row, basis)
        moved = torch.where(better, corrected, moved)
    return moved


def _residual(moved: Rows, row: Rows, basis: Constraints) -> Float[Tensor, "row 1"]:
    """By how much the products with the basis have changed."""
    return ((moved - row) @ basis).abs().amax(-1, keepdim=True)


def _step(moved: Rows, basis: Constraints, objective: Rows) -> Rows:
    """A step that gains along the objective and keeps Mᵀx."""
    pace = moved**PACE  # w
    gain = objective - _solved(pace, basis, (pace * objective) @ basis) @ basis.mT  # c − My
    rate = gain * moved ** (PACE - 1)  # d / x: of growth or, below zero, of shrinking
    fastest = (-rate).amax(-1, keepdim=True)
    length = torch.where(fastest > TINY, SHORT_OF / fastest.clamp_min(TINY), 0)  # step 3
    return moved * (1 + length * rate).clamp_min(0)


def _corrected(moved: Rows, row: Rows, basis: Constraints) -> Rows:
    """The moved row with the change of Mᵀx by rounding corrected."""
    correction = _solved(moved, basis, (row - moved) @ basis)
    return moved * (1 + correction @ basis.mT).clamp_min(0)


def _solved(
    pace: Rows, basis: Constraints, wanted: Float[Tensor, "row constraint"]
) -> Float[Tensor, "row constraint"]:
    """(Mᵀ diag(w) M)⁻¹ times ``wanted``; zero where the row's keys impose nothing."""
    gram = basis.mT @ (pace.unsqueeze(-1) * basis)
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    diagonal.add_((RIDGE * diagonal.sum(-1, keepdim=True)).clamp_min(TINY**4))
    factor, _ = torch.linalg.cholesky_ex(gram)
    solution: Tensor = torch.cholesky_solve(wanted.unsqueeze(-1), factor).squeeze(-1)
    return solution.nan_to_num(0, 0, 0)


def _move_site(trace: Trace, site: int, wanted: RowMarks) -> tuple[SiteMap, SiteRows, float]:
    """The moved maps of one site, the distance of every row, and the worst change of an output."""
    attention, values = trace.attention[site], trace.values[site]
    if not bool(wanted.any()):
        return attention, torch.zeros(wanted.shape), 0.0
    place = exact_device(attention.device)
    dtype = torch.promote_types(attention.dtype, torch.float32)

    def move_head(head: int) -> tuple[Tensor, Tensor, float]:
        own = exact(attention[head])
        rows = wanted[head].nonzero().flatten().to(place)
        equations = _equations(exact(values[head]))
        left, strength, _ = torch.linalg.svd(equations, full_matrices=False)
        basis = left[:, strength > DEPENDENT * strength[0]]
        moved_head, worst = own.clone(), 0.0
        for run in torch.split(rows, max(1, 2**22 // basis.numel())):
            row = own[run]
            moved = move(row, basis)
            residual = ((moved - row) @ equations).abs().amax(-1)
            kept = residual <= SAME_OUTPUT  # False for NaN, too
            moved_head[run] = torch.where(kept.unsqueeze(-1), moved, row)
            worst = max(worst, float(residual[kept].amax()) if bool(kept.any()) else 0.0)
        distance = 0.5 * (moved_head - own).abs().sum(-1)
        return moved_head.to(dtype), distance.float(), worst

    heads = spread(move_head, range(len(attention)), place)
    moved = torch.stack([head for head, _, _ in heads]).to(attention.device)
    distance = torch.stack([far for _, far, _ in heads]).to(attention.device)
    (aside,) = spilled((moved,), of=sum(maps.nbytes for maps in trace.attention))
    return aside, distance, max(worst for _, _, worst in heads)


def _equations(values: Float[Tensor, "key d_head"]) -> Float[Tensor, "key equation"]:
    """[V, 1] with values of at most 1."""
    scaled = values / values.abs().amax().clamp_min(torch.finfo(values.dtype).tiny)
    return torch.cat([scaled, torch.ones_like(scaled[:, :1])], -1)


def _affordable(
    trace: Trace, free: tuple[RowMarks, ...], first: tuple[SiteRows, ...] | None
) -> list[RowMarks]:
    """The rows to move: all that are free, or the most wanted of each head."""
    heads = sum(len(marks) for marks in free)
    cost = max(keys.shape[1] * (keys.shape[2] + 1) ** 2 * (AWAY + FURTHER) for keys in trace.values)
    limit = max(1, EFFORT // (cost * heads))
    chosen = []
    for site, marks in enumerate(free):
        worth = exact(marks)
        worth = worth if first is None else worth * (exact(first[site]) + 1e-30)
        best = worth.topk(min(limit, worth.shape[1])).indices.to(marks.device)
        chosen.append(torch.zeros_like(marks).scatter(1, best, True) & marks)
    return chosen


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
