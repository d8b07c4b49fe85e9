"""Which part of an attention row can reach the output?

A head only ever uses ``row @ values``. Whatever part of the row lies in the left null space of the
values of the keys it sees is multiplied away (Brunner et al., 2020). What remains is the effective
attention: it gives the same output, it is the shortest row that does, and it is all that the output
can tell us about the row. For row i, with S the keys it may see, c = row @ V and G = V[S]ᵀV[S],

    effective row i  =  c G⁺ V[S]ᵀ  on S, and nothing outside S.

1. The mask is read as key sets (``key_sets``), and the rank of V on each is counted (``ranks``).
2. Rows whose keys have independent values have no null space and stay as they are, bit for bit.
3. V is replaced by an orthonormal basis B of its columns: the formula does not change, and G = I
   when a row sees everything, which settles bidirectional, padded and cross-attention.
4. Otherwise G is I minus the outer products of what the row cannot see. Neighbouring rows differ in
   few keys, so a block of rows shares one factor of G, and each row corrects it for the few keys it
   does not see (``woodbury``). A product of G⁻¹c with Bᵀ then gives the effective row.
5. Rows with a smaller rank than the whole, or whose correction is ill-conditioned, are projected
   one key set at a time by a singular value decomposition.

Ranks, bases and factors are computed in float64. The two large products are computed in the
precision of the attention, float32 at least, as long as G⁻¹ cannot make their rounding visible;
rows that see hardly more keys than the values are wide are where it can, and those are computed in
float64 as well. Some rows of some heads are worked on at a time, and what is told about them is
measured before the next ones; heads that share their values share steps 1 and 3.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import Block, KeySets, key_sets
from exhibit_a.methods.identifiability.ranks import (
    HeadMaps,
    HeadValues,
    Tolerance,
    ranks,
    tolerance_for,
    with_ones,
)
from exhibit_a.methods.identifiability.spaces import Part, space_of
from exhibit_a.methods.identifiability.woodbury import solvers
from exhibit_a.numerics.parallel import shares, spread

WORKSPACE = 2**22  # bytes of attention that a thread works on, if more than one row of one head
FEWEST_ROWS = 64  # rows of a head that are worth a product of their own


@dataclass(frozen=True, eq=False)
class Measured:
    """Some rows of some heads while they are in the cache, over the keys of a span."""

    heads: slice
    span: slice
    raw: HeadMaps
    kept: HeadMaps
    null: HeadMaps  # raw − kept; None of the three may be changed or kept


Measure = Callable[[Measured], None]


@dataclass(frozen=True)
class Convention:
    """What a projection depends on beside its tensors.

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
    null_fraction: Float[Tensor, "*site head query"]  # length of the null part over the whole
    moved: Float[Tensor, "*site head query"]  # half the sum of |raw − effective|
    pearson: Float[Tensor, "*site head"]  # over the pairs that can see each other
    spectrum: Float[Tensor, "*site head direction"]  # values of the row that sees most
    rtol: Float[Tensor, " query"]  # tolerance, relative to the largest singular value

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
    measure: Measure | None = None,
) -> Projection:
    """Project every attention row onto the space that the values of its visible keys span.

    ``measure`` is shown all rows, a few at a time and on several threads, each head on one.
    """
    maps, flat_values = attention.flatten(0, -3), values.flatten(0, -3)
    sets = key_sets(visible)  # step 1
    simplex = convention.simplex
    dtype, width = convention.dtype or values.dtype, values.shape[-1] + simplex
    tolerance = tolerance_for(dtype, width, convention.rtol)
    precision = torch.promote_types(maps.dtype, torch.float32)
    room = torch.empty if bool(sets.member.all()) else torch.zeros  # where all is written to
    effective = room(maps.shape, dtype=precision, device=maps.device)

    def project_heads(heads: slice) -> dict[str, Tensor]:
        exact = flat_values[heads].to(torch.float64)
        exact = with_ones(exact, sets) if simplex else exact
        rows = _Rows(maps[heads], effective[heads], sets, heads, measure)
        return _project(rows, exact, sets, tolerance)

    at_a_time = WORKSPACE // (effective.element_size() * visible.shape[1] * FEWEST_ROWS)
    runs = spread(project_heads, shares(len(maps), at_a_time, maps.device), maps.device)
    numbers = {name: torch.cat([run[name] for run in runs]) for name in runs[0]}
    shaped = {
        name: flat.reshape(*attention.shape[:-2], *flat.shape[1:]) for name, flat in numbers.items()
    }
    relative = [tolerance.of(size) for size in sets.size.tolist()]
    return Projection(
        effective.reshape(attention.shape),
        keys_seen=sets.size[sets.of_row],
        rtol=torch.tensor(relative, dtype=torch.float64)[sets.of_row.cpu()],
        **shaped,
    )


def _project(
    rows: "_Rows", values: HeadValues, sets: KeySets, tolerance: Tolerance
) -> dict[str, Tensor]:
    """Fill the effective rows of some heads, which are zero, and return the rest."""
    distinct, owner = _distinct(values)
    counted = ranks(distinct, sets, tolerance)  # step 1
    counts = {"rank": counted.rank, "least_rank": counted.least, "most_rank": counted.most}
    numbers = {name: count[owner][:, sets.of_row] for name, count in counts.items()}
    numbers["spectrum"] = counted.spectrum[owner]
    free = counted.rank < sets.size
    if not bool(free.any(0).all()):
        for block in sets.blocks(~free.any(0)):
            for part in rows.parts(block):
                raw = rows.read(block, part)
                rows.write(block, part, raw, raw)  # step 2
    if bool(free.any()):
        space = space_of(distinct, owner, sets, counted, tolerance, rows.dtype)  # step 3
        for solver in solvers(space.basis, sets, free.any(0)):
            for part in rows.parts(solver.block):
                raw = rows.read(solver.block, part)
                kept = rows.room(solver.block, part)
                space.project(raw, solver, part, kept)
                rows.write(solver.block, part, raw, kept)
    return numbers | rows.statistics(free.any(-1)[owner])


class _Rows:
    """The rows of some heads, read and written a few at a time, and what is measured of them."""

    def __init__(
        self,
        maps: HeadMaps,
        effective: HeadMaps,
        sets: KeySets,
        heads: slice,
        measure: Measure | None,
    ) -> None:
        self.maps, self.effective, self.sets = maps, effective, sets
        self.first_head, self.measure, self.dtype = heads.start, measure, effective.dtype
        shape = (5, *maps.shape[:2])
        self.measured = torch.zeros(shape, dtype=torch.float64, device=maps.device)

    def parts(self, block: Block) -> list[Part]:
        """Whole heads as many as fit into the workspace, or else rows of one, in even runs."""
        row = max(1, (block.span.stop - block.span.start) * self.effective.element_size())
        most = max(1, WORKSPACE // row)
        rows = _even_runs(len(block.rows), most)
        heads = _even_runs(len(self.maps), max(1, most // max(1, len(block.rows))))
        return [Part(some_heads, some_rows) for some_heads in heads for some_rows in rows]

    def read(self, block: Block, part: Part) -> HeadMaps:
        """Rows of a block over the keys of its span; what they cannot see is nothing."""
        place = _place(block.rows[part.rows])
        raw = self.maps[part.heads, place, block.span].to(self.effective.dtype)
        if block.sees_all:
            return raw
        return raw * self.sets.member[block.sets[block.set_of_row[part.rows]], block.span]

    def room(self, block: Block, part: Part) -> HeadMaps:
        """Where effective rows go: their place, if it is not scattered."""
        place = _place(block.rows[part.rows])
        if isinstance(place, slice):
            return self.effective[part.heads, place, block.span]
        return torch.empty_like(self.effective[part.heads, place, block.span])

    def write(self, block: Block, part: Part, raw: HeadMaps, kept: HeadMaps) -> None:
        """Put effective rows in their place, and measure them while they are in the cache."""
        place = _place(block.rows[part.rows])
        if not isinstance(place, slice) or kept is raw:
            self.effective[part.heads, place, block.span] = kept
        null = raw - kept
        if self.measure is not None:
            heads = slice(self.first_head + part.heads.start, self.first_head + part.heads.stop)
            self.measure(Measured(heads, block.span, raw, kept, null))
        null_length = torch.linalg.vector_norm(null, dim=-1)
        numbers = (
            raw.sum(-1),
            kept.sum(-1),
            torch.linalg.vector_norm(raw, dim=-1),
            null_length,
            null.abs_().sum(-1),
        )
        for rows, number in zip(self.measured, numbers, strict=True):
            rows[part.heads, place] = number.to(torch.float64)

    def statistics(self, free: Bool[Tensor, " head"]) -> dict[str, Tensor]:
        """What the rows lose; heads in which no row is free lose nothing."""
        raw_sum, kept_sum, length, null_length, null_sum = self.measured
        pairs = int(self.sets.size[self.sets.of_row].sum())
        pearson = _pearson((raw_sum, kept_sum), length, null_length, pairs)
        return {
            "null_fraction": null_length / torch.where(length > 0, length, 1.0),
            "moved": null_sum / 2,
            "pearson": torch.where(free, pearson, 1.0),
        }


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


def _pearson(
    sums: tuple[Float[Tensor, "head query"], Float[Tensor, "head query"]],
    length: Float[Tensor, "head query"],
    null_length: Float[Tensor, "head query"],
    pairs: int,
) -> Float[Tensor, " head"]:
    """Correlation of raw and effective weights.

    The product of a row with its projection is ‖row‖² − ‖null part‖², the projection's own square.
    """
    raw_sum, kept_sum = (row_sums.sum(-1) for row_sums in sums)
    raw, kept = length.square().sum(-1), (length.square() - null_length.square()).sum(-1)
    covariance = kept - raw_sum * kept_sum / pairs
    variances = (raw - raw_sum**2 / pairs) * (kept - kept_sum**2 / pairs)
    return covariance / variances.clamp_min(0).sqrt()
