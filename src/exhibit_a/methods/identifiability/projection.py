"""Projects attention rows onto the space that the values can see.

A head only ever uses ``row @ values``. Whatever part of the row lies in the left null space of the
values of the keys it sees is multiplied away (Brunner et al., 2020). What remains is the effective
attention: it gives the same output, it is the shortest row that does, and it is all that the output
can tell us about the row. For row i, with S the keys it may see, c = row @ V and G = V[S]ᵀV[S],

    effective row i  =  c G⁺ V[S]ᵀ  on S, and nothing outside S.

1. The mask is read as key sets, and the rank of V on each is counted (``ranks.py``).
2. Rows whose keys have independent values have no null space and stay as they are, bit for bit.
3. V is replaced by an orthonormal basis B of its columns: the formula does not change, and G = I
   when a row sees everything, which settles bidirectional, padded and cross-attention.
4. Otherwise G is I minus the outer products of what the row cannot see. Neighbouring rows differ in
   few keys, so a block of rows shares one factor of G, and each row corrects it for the few keys it
   does not see (``woodbury.py``). A product of G⁻¹c with Bᵀ then gives the effective row.
5. Rows with a smaller rank than the whole, or whose correction is ill-conditioned, are projected
   one key set at a time by a singular value decomposition.

Ranks, bases and factors are computed in float64. The two large products are computed in the
precision of the attention, float32 at least: an error of ``row @ B`` grows by up to √tr G⁻¹, which
is √width where a row sees everything. A block in which it may grow much more (its rows see hardly
more keys than the values are wide) is computed in float64. Some rows of some heads are worked on
at a time, and they are measured before the next ones; heads that share values share steps 1 and 3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.ranks import (
    EXACT,
    Block,
    Factor,
    HeadMaps,
    HeadValues,
    KeySets,
    Ranks,
    Spectrum,
    Tolerance,
    key_sets,
    ranks,
    tolerance_for,
    with_ones,
)
from exhibit_a.methods.identifiability.woodbury import Solver, solvers
from exhibit_a.numerics.parallel import chunk_slices, parallel_map
from exhibit_a.numerics.precision import exact_device, returned, to_float64

Distinct = Float[Tensor, "distinct key width"]


@dataclass(frozen=True)
class ProjectionSettings:
    """What is worked on at a time, and when the fast route is good enough."""

    workspace: int = 2**22  # bytes of attention per thread, if more than one row of one head
    fewest_rows: int = 64  # of a head that are worth a product of their own
    safe_growth: float = 4.0  # of an error by G⁻¹, in units of its growth where G = I
    same_space: float = 1e-6  # how far directions below the tolerance may turn the space kept

    def smallest_pivot(self, dtype: torch.dtype) -> float:
        """Of G, against 1: below it a row is projected by a decomposition of its own (step 5)."""
        return 1e-8 if dtype == torch.float32 else 1e-6


SETTINGS = ProjectionSettings()


@dataclass(frozen=True, eq=False)
class Measured:
    """Some rows of some heads while they are in the cache, over the keys of a span."""

    heads: slice
    rows: slice | Int[Tensor, " row"]
    span: slice
    raw: HeadMaps
    kept: HeadMaps
    null: HeadMaps  # raw − kept; none of the three may be changed or kept


Measure = Callable[[Measured], None]


@dataclass(frozen=True)
class Convention:
    """What a projection depends on besides its tensors.

    ``simplex`` adds a column of ones to the values: effective rows then keep the sum of the raw
    ones. ``rtol`` is a tolerance of the rank of one's own. ``dtype`` is the precision the model
    computed the values in, where it is not their own.
    """

    simplex: bool = False
    rtol: float | None = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True, eq=False)
class Projection:
    """Effective attention, and how much of each row the output determines."""

    effective: Float[Tensor, "*site head query key"]
    rank: Int[Tensor, "*site head query"]
    least_rank: Int[Tensor, "*site head query"]  # counting only what is surely above the tolerance
    most_rank: Int[Tensor, "*site head query"]  # counting all that is possibly above the tolerance
    keys_seen: Int[Tensor, " query"]
    rtol: Float[Tensor, " query"]  # tolerance, relative to the largest singular value
    spectra: Sequence[Spectrum]  # of some heads each

    @cached_property
    def spectrum(self) -> Float[Tensor, "*site head direction"]:
        """Singular values of the values behind the row that sees most; computed when requested."""
        flat = torch.cat([spectrum() for spectrum in self.spectra])
        return returned(flat, self.rank.device).reshape(*self.rank.shape[:-1], flat.shape[-1])

    @property
    def nullity(self) -> Int[Tensor, "*site head query"]:
        """Dimensions in which a row can move without moving the output."""
        return self.keys_seen - self.rank

    @property
    def borderline(self) -> Bool[Tensor, "*site head query"]:
        """Rows with a singular value within ten times the tolerance, on either side."""
        return self.least_rank != self.most_rank

    @property
    def identifiable(self) -> Bool[Tensor, "*site head query"]:
        """Rows that the output determines, even if borderline singular values count as zero."""
        return self.least_rank == self.keys_seen

    @property
    def unidentifiable(self) -> Bool[Tensor, "*site head query"]:
        """Rows that the output does not determine, even if borderline singular values count."""
        return self.most_rank < self.keys_seen


def project(
    attention: Float[Tensor, "*site head query key"],
    values: Float[Tensor, "*site head key d_head"],
    visible: Bool[Tensor, "query key"],
    convention: Convention = Convention(),  # noqa: B008 (frozen)
    measures: Sequence[Measure] = (),
) -> Projection:
    """Project every attention row onto the space that the values of its visible keys span.

    ``measures`` are shown all rows, a few at a time and on several threads, each head on one.
    """
    maps, flat_values = attention.flatten(0, -3), values.flatten(0, -3)
    sets = key_sets(visible.to(exact_device(maps.device)))  # step 1
    simplex = convention.simplex
    dtype, width = convention.dtype or values.dtype, values.shape[-1] + simplex
    tolerance = tolerance_for(dtype, width, convention.rtol)
    precision = torch.promote_types(maps.dtype, torch.float32)
    room = torch.empty if bool(sets.member.all()) else torch.zeros  # where all is written to
    effective = room(maps.shape, dtype=precision, device=maps.device)

    def project_heads(heads: slice) -> _Counted:
        exact_values = to_float64(flat_values[heads])
        exact_values = with_ones(exact_values, sets) if simplex else exact_values
        rows = _Rows(maps[heads], effective[heads], sets, heads.start, measures)
        return fill_effective_rows(rows, exact_values, sets, tolerance)

    at_a_time = SETTINGS.workspace // (
        effective.element_size() * visible.shape[1] * SETTINGS.fewest_rows
    )
    runs = parallel_map(project_heads, chunk_slices(len(maps), at_a_time, maps.device), maps.device)
    counts = torch.cat([run.by_row for run in runs], 1).to(maps.device)
    least, rank, most = counts.reshape(3, *attention.shape[:-1])
    relative = [tolerance.of(size) for size in sets.size.tolist()]
    return Projection(
        effective.reshape(attention.shape),
        rank,
        least_rank=least,
        most_rank=most,
        keys_seen=sets.size[sets.of_row].to(maps.device),
        rtol=torch.tensor(relative, dtype=torch.float64)[sets.of_row.cpu()],
        spectra=[run.spectrum for run in runs],
    )


@dataclass(frozen=True)
class RowPart:
    """What is worked on at a time: some heads, and some rows of a block."""

    heads: slice
    rows: slice
    place: slice | Int[Tensor, " row"]  # of the rows in their maps


@dataclass(frozen=True, eq=False)
class BlockPlan:
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

    def plan(self, solver: Solver) -> BlockPlan:
        """How the rows of a block are projected, which is the same for all its parts."""
        block, limit = solver.block, SETTINGS.safe_growth * self.basis.shape[-1] ** 0.5
        safe = bool((solver.amplification <= limit).all())  # False for NaN, too
        free = self.counted.rank[:, block.sets] < self.sets.size[block.sets]
        line = (
            (self.blur / SETTINGS.same_space)
            .square()
            .clamp_min(SETTINGS.smallest_pivot(self.rough.dtype))
        )
        settled = self.settled[:, block.sets] & (solver.pivots > line.unsqueeze(-1))
        unsettled = free & ~settled
        return BlockPlan(
            solver,
            safe,
            bound=None if bool(free.all()) else ~free,
            unsettled=unsettled if bool(unsettled.any()) else None,
        )

    def fill(self, raw: HeadMaps, plan: BlockPlan, part: RowPart, effective: HeadMaps) -> None:
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
        # As many of the strongest left singular vectors as the rank says, then zeros.
        rank = self.counted.rank[kinds, index]
        left, _, _ = torch.linalg.svd(self.values[kinds][:, keys], full_matrices=False)
        kept = torch.arange(left.shape[-1], device=rank.device) < rank.unsqueeze(-1)
        directions = (left * kept.unsqueeze(1))[place]
        block = (heads[:, None, None], rows[:, None], keys - span.start)
        projected = to_float64(raw[block]) @ directions @ directions.mT
        effective[heads[:, None], rows] = 0  # without a factor, there may be anything
        effective[block] = projected.to(effective.dtype).to(effective.device)


def seen_in(sets: KeySets, block: Block, part: RowPart) -> Bool[Tensor, "row key"]:
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
    # The Gram matrix, with squares of the spectrum, must still have the digits of the maps.
    eps = torch.finfo(dtype).eps
    if factor is not None and bool((factor.spread * eps > 8 * EXACT).all()):
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
    if bool((growth <= SETTINGS.safe_growth * values.shape[-1] ** 0.5).all()):
        product: Tensor = values.to(dtype) @ factor.inverse.to(dtype).mT
        return product
    columns: Tensor = torch.linalg.solve_triangular(factor.lower, values.mT, upper=False).mT
    return columns


@dataclass(frozen=True, eq=False)
class _Counted:
    """Ranks of the values of some heads; heads may share values, which are not kept."""

    by_row: Int[Tensor, "3 head query"]  # the least, likely and largest rank of every row
    of_values: Spectrum
    owner: Int[Tensor, " head"]

    def spectrum(self) -> Float[Tensor, "head direction"]:
        """The singular values behind the row that sees most."""
        return self.of_values()[self.owner]


def fill_effective_rows(
    rows: "_Rows", values: HeadValues, sets: KeySets, tolerance: Tolerance
) -> _Counted:
    """Fill the effective rows of some heads, which are zero, and count their ranks."""
    distinct, owner = _distinct(values)
    counted = ranks(distinct, sets, tolerance)  # step 1
    free = counted.rank < sets.size
    if not bool(free.any(0).all()):
        for block in sets.blocks(~free.any(0)):
            for part in rows.parts(block):
                raw = rows.read(block, part)
                rows.write(block, part, raw, raw)  # step 2
    if bool(free.any()):
        space = space_of(distinct, owner, sets, counted, tolerance, rows.effective)  # step 3
        for solver in solvers(space.basis, sets, free.any(0)):
            plan = space.plan(solver)
            for part in rows.parts(solver.block):
                raw = rows.read(solver.block, part)
                kept = rows.room(solver.block, part)
                space.fill(raw, plan, part, kept)
                rows.write(solver.block, part, raw, kept)
    counts = torch.stack([counted.least, counted.rank, counted.most])
    return _Counted(counts[:, owner[:, None], sets.of_row], counted.spectrum_later, owner)


class _Rows:
    """The rows of some heads, read, written and measured a few at a time."""

    def __init__(
        self,
        maps: HeadMaps,
        effective: HeadMaps,
        sets: KeySets,
        first_head: int,
        measures: Sequence[Measure],
    ) -> None:
        self.maps, self.effective, self.sets = maps, effective, sets
        self.first_head, self.measures = first_head, measures

    def parts(self, block: Block) -> list[RowPart]:
        """Whole heads as many as fit into the workspace, or else rows of one, in runs of equal "
        "length."""
        row = max(1, (block.span.stop - block.span.start) * self.effective.element_size())
        most = max(1, SETTINGS.workspace // row)
        heads = _even_runs(len(self.maps), max(1, most // max(1, len(block.rows))))
        rows = [(run, _place(block.rows[run])) for run in _even_runs(len(block.rows), most)]
        return [RowPart(some_heads, *some_rows) for some_heads in heads for some_rows in rows]

    def read(self, block: Block, part: RowPart) -> HeadMaps:
        """Rows of a block over the keys of its span; what they cannot see is nothing."""
        raw = self.maps[part.heads, part.place, block.span].to(self.effective.dtype)
        if block.sees_all:
            return raw
        return raw * seen_in(self.sets, block, part).to(raw.device)

    def room(self, block: Block, part: RowPart) -> HeadMaps:
        """Where effective rows go: their place, if it is not scattered."""
        room = self.effective[part.heads, part.place, block.span]
        return room if isinstance(part.place, slice) else torch.empty_like(room)

    def write(self, block: Block, part: RowPart, raw: HeadMaps, kept: HeadMaps) -> None:
        """Put effective rows in their place, and measure them while they are in the cache."""
        if not isinstance(part.place, slice) or kept is raw:
            self.effective[part.heads, part.place, block.span] = kept
        if not self.measures:
            return
        heads = slice(self.first_head + part.heads.start, self.first_head + part.heads.stop)
        measured = Measured(heads, part.place, block.span, raw, kept, raw - kept)
        for measure in self.measures:
            measure(measured)


def _even_runs(count: int, most: int) -> list[slice]:
    """``count`` things in runs of at most ``most``, about as long as each other."""
    step = -(-count // -(-count // most)) if count else 1
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _place(rows: Int[Tensor, " row"]) -> slice | Int[Tensor, " row"]:
    """Rows as a slice where they follow each other: a slice of a map is not copied."""
    if not len(rows) or not bool((rows.diff() == 1).all()):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def _distinct(
    values: HeadValues,
) -> tuple[Float[Tensor, "distinct key width"], Int[Tensor, " head"]]:
    """The values with those that neighbouring heads share once, and which of them a head uses."""
    new = torch.ones(len(values), dtype=torch.bool, device=values.device)
    new[1:] = (values[1:, 0] != values[:-1, 0]).any(1)  # the first key nearly always suffices
    if bool(new.all()):
        return values, new.cumsum(0) - 1
    new[1:] = (values[1:] != values[:-1]).flatten(1).any(1)
    return values[new], new.cumsum(0) - 1
