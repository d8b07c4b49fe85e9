"""Moves whole attention maps as far as possible with the same output of every head.

``alternatives.py`` explores one row with linear programs. Here every row of every head is moved
away from what it was, a little less far and thousands of times as fast, without leaving the rows
that are valid (``row_moves.py``). The distance is a lower bound of what is possible: on real heads
it came to five sixths of what linear programs find.

Where there are too many rows, those that contribute most to the answer are moved, and a few of
every head. With all alternatives in place, the model must give the answer that it gave.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.identifiability.alternatives import rounding_of
from exhibit_a.methods.identifiability.polytope import SAME_OUTPUT
from exhibit_a.methods.identifiability.row_moves import SOLVED, RowMoves
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
