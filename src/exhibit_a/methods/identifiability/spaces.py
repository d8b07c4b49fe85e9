"""Finds the space onto which rows are projected, for many rows at once.

These are steps 2 to 5 of ``projection.py``: an orthonormal basis B of the values of all keys that
are seen, and the rows of a block projected with it. In the precision of the attention an error of
``row @ B`` grows by up to √tr G⁻¹, which is √width where a row sees everything. A block in which it
may grow much more is computed in float64.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import Block, KeySets
from exhibit_a.methods.identifiability.ranks import EXACT, Factor, HeadMaps, Ranks, Tolerance
from exhibit_a.methods.identifiability.woodbury import Solver
from exhibit_a.numerics.precision import to_float64

WELL_CONDITIONED = {torch.float32: 1e-8, torch.float64: 1e-6}  # smallest pivot of G, against 1
SAME_SPACE = 1e-6  # how far directions below the tolerance may turn the space that is kept
SAFE_GROWTH = 4.0  # of an error by G⁻¹, in units of its growth where G = I

Distinct = Float[Tensor, "distinct key width"]


@dataclass(frozen=True)
class Part:
    """What is worked on at a time: some heads, and some rows of a block."""

    heads: slice
    rows: slice
    place: slice | Int[Tensor, " row"]  # of the rows in their maps


@dataclass(frozen=True, eq=False)
class Plan:
    """How the rows of a block are projected, by what is known of its key sets."""

    solver: Solver
    safe: bool  # whether products in the precision of the maps are good enough
    bound: Bool[Tensor, "distinct set"] | None  # where rows have no null space, if anywhere
    unsettled: Bool[Tensor, "distinct set"] | None  # where each set has its own basis, if anywhere


@dataclass(frozen=True, eq=False)
class Space:
    """The space that the values of some heads span; heads may share values."""

    values: Distinct
    owner: Int[Tensor, " head"]  # which of the values a head uses
    sets: KeySets
    counted: Ranks
    basis: Float[Tensor, "distinct key direction"]
    rough: Float[Tensor, "head key direction"]  # the basis of each head, in the precision of maps
    settled: Bool[Tensor, "distinct set"]  # whether the values have the rank of the whole there
    blur: Float[Tensor, " distinct"]  # strongest direction dropped over the weakest kept

    def plan(self, solver: Solver) -> Plan:
        """How the rows of a block are projected, which is the same for all its parts."""
        block, limit = solver.block, SAFE_GROWTH * self.basis.shape[-1] ** 0.5
        safe = bool((solver.amplification <= limit).all())  # False for NaN, too
        free = self.counted.rank[:, block.sets] < self.sets.size[block.sets]
        line = (self.blur / SAME_SPACE).square().clamp_min(WELL_CONDITIONED[self.rough.dtype])
        settled = self.settled[:, block.sets] & (solver.pivots > line.unsqueeze(-1))
        unsettled = free & ~settled
        return Plan(
            solver,
            safe,
            bound=None if bool(free.all()) else ~free,
            unsettled=unsettled if bool(unsettled.any()) else None,
        )

    def project(self, raw: HeadMaps, plan: Plan, part: Part, effective: HeadMaps) -> None:
        """Fill ``effective`` for a part of a block, over the keys of its span."""
        solver, block, owner = plan.solver, plan.solver.block, self.owner[part.heads]
        weights = raw if plan.safe else to_float64(raw)
        span = block.span
        basis = self.rough[part.heads, span] if plan.safe else to_float64(self.basis[owner, span])
        solution = weights @ basis
        if solver.inverse is not None:
            solution = solver.coefficients(to_float64(solution), owner, part.rows)  # step 4
        if plan.safe:
            torch.matmul(solution.to(raw.dtype).to(raw.device), basis.mT, out=effective)
        else:
            effective.copy_((solution @ basis.mT).to(raw.dtype))
        if not block.sees_all:
            effective *= seen_in(self.sets, block, part).to(raw.device)
        set_of_row = block.set_of_row[part.rows]
        if plan.bound is not None:
            untouched = plan.bound[owner][:, set_of_row].unsqueeze(-1).to(raw.device)
            effective.copy_(torch.where(untouched, raw, effective))  # step 2
        if plan.unsettled is None:
            return
        unsettled = plan.unsettled[owner]
        for place in unsettled.any(0).nonzero().flatten().tolist():  # step 5
            rows = (set_of_row == place).nonzero().flatten()
            heads = unsettled[:, place].nonzero().flatten()
            seen = (owner[heads], int(block.sets[place]))
            self._row_by_row(raw, effective, seen, span, (heads, rows))

    def _row_by_row(
        self,
        raw: HeadMaps,
        effective: HeadMaps,
        seen: tuple[Int[Tensor, " some"], int],
        span: slice,
        where: tuple[Int[Tensor, " some"], Int[Tensor, " row"]],
    ) -> None:
        """Put the projection by a decomposition in its place, for rows that see one key set."""
        (heads, rows), (owner, index) = where, seen
        keys = self.sets.member[index].nonzero().flatten()
        kinds, place = torch.unique(owner, return_inverse=True)
        directions = _leading(self.values[kinds][:, keys], self.counted.rank[kinds, index])[place]
        block = (heads[:, None, None], rows[:, None], keys - span.start)
        projected = to_float64(raw[block]) @ directions @ directions.mT
        effective[heads[:, None], rows] = 0  # without a factor, there may be anything
        effective[block] = projected.to(effective.dtype).to(effective.device)


def seen_in(sets: KeySets, block: Block, part: Part) -> Bool[Tensor, "row key"]:
    """Which keys of the block's span the rows of a part see."""
    return sets.member[block.sets[block.set_of_row[part.rows]], block.span]


def space_of(
    values: Distinct,
    owner: Int[Tensor, " head"],
    sets: KeySets,
    counted: Ranks,
    tolerance: Tolerance,
    maps: HeadMaps,
) -> Space:
    """The space of the values on all keys that are seen, for such maps (step 3)."""
    dtype = maps.dtype
    seen, widest = sets.everything, int(sets.size.argmax())
    rank, blur = counted.rank[:, widest], values.new_zeros(len(values))
    whole = values if bool(seen.all()) else values[:, seen]
    one_sees_all = bool((sets.member[widest] == seen).all())
    full = one_sees_all and bool((rank == values.shape[-1]).all())
    factor = counted.factor if full else None
    if factor is not None and _well_spread(factor, dtype):
        columns = _by_cholesky(whole, factor, dtype if len(sets) == 1 else whole.dtype)
    else:
        columns, mixing = torch.linalg.qr(whole)
    if not full:
        turn, strength, _ = torch.linalg.svd(mixing)
        if not one_sees_all:
            line = tolerance.of(int(seen.sum())) * strength[:, :1]
            rank = (strength > line).sum(-1)
        kept = torch.arange(strength.shape[-1], device=rank.device) < rank.unsqueeze(-1)
        columns = (columns @ turn) * kept.unsqueeze(1)
        weakest = torch.where(kept, strength, torch.inf).amin(-1)
        blur = torch.where(kept, 0, strength).amax(-1) / weakest
    basis = columns
    if whole is not values:
        basis = values.new_zeros(*values.shape[:2], columns.shape[-1])
        basis[:, seen] = columns
    settled = counted.rank == rank.unsqueeze(-1)
    rough = basis.to(dtype).to(maps.device)
    rough = rough if len(rough) == len(owner) else rough[owner]
    return Space(values, owner, sets, counted, basis, rough, settled, blur)


def _by_cholesky(
    values: Distinct, factor: Factor, dtype: torch.dtype
) -> Float[Tensor, "distinct key width"]:
    """B from VᵀV = LLᵀ and V = B Lᵀ; in ``dtype`` where that adds little to its own rounding.

    The columns of V add to the rounding of B by √Σ Gₖₖ(G⁻¹)ₖₖ, which is √width where they are
    orthogonal, whatever their lengths.
    """
    lengths = factor.gram.diagonal(dim1=-2, dim2=-1)
    growth = (lengths * factor.inverse.square().sum(-2)).sum(-1).sqrt()
    if bool((growth <= SAFE_GROWTH * values.shape[-1] ** 0.5).all()):
        product: Tensor = values.to(dtype) @ factor.inverse.to(dtype).mT
        return product
    columns: Tensor = torch.linalg.solve_triangular(factor.lower, values.mT, upper=False).mT
    return columns


def _well_spread(factor: Factor, dtype: torch.dtype) -> bool:
    """Whether the Gram matrix, with squares of the spectrum, still has the digits of ``dtype``."""
    return bool((factor.spread * torch.finfo(dtype).eps > 8 * EXACT).all())


def _leading(
    values: Float[Tensor, "kind seen width"], rank: Int[Tensor, " kind"]
) -> Float[Tensor, "kind seen direction"]:
    """The ``rank`` strongest left singular vectors, then zeros."""
    left, _, _ = torch.linalg.svd(values, full_matrices=False)
    kept = torch.arange(left.shape[-1], device=rank.device) < rank.unsqueeze(-1)
    leading: Tensor = left * kept.unsqueeze(1)
    return leading
