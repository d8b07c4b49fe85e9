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
   does not see (``woodbury``). One product of all G⁻¹c with Bᵀ then gives all effective rows.
5. Rows with a smaller rank than the whole, or whose correction is ill-conditioned, are projected
   one key set at a time by a singular value decomposition.

Everything is computed in float64, a few heads at a time; heads that share their values share steps
1 and 3.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import KeySets, key_sets
from exhibit_a.methods.identifiability.ranks import (
    HeadMaps,
    HeadValues,
    Ranks,
    Tolerance,
    ranks,
    tolerance_for,
    with_ones,
)
from exhibit_a.methods.identifiability.woodbury import coefficients
from exhibit_a.numerics.parallel import shares, spread

WORKSPACE = 2**23  # bytes of float64 attention that a thread works on, if more than one head
WELL_CONDITIONED = 1e-6  # smallest pivot of G, against 1 for a row that sees everything
SAME_SPACE = 1e-6  # how far directions below the tolerance may turn the space that is kept


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
    *,
    simplex: bool = False,
    rtol: float | None = None,
    dtype: torch.dtype | None = None,
) -> Projection:
    """Project every attention row onto the space that the values of its visible keys span.

    ``simplex`` adds a column of ones to the values: effective rows then keep the sum of the raw
    ones. ``dtype`` is the precision the model computed the values in, where it is not their own.
    """
    maps, flat_values = attention.flatten(0, -3), values.flatten(0, -3)
    sets = key_sets(visible)  # step 1
    tolerance = tolerance_for(dtype or values.dtype, values.shape[-1] + simplex, rtol)
    effective = torch.empty_like(maps, dtype=torch.promote_types(maps.dtype, torch.float32))

    def project_heads(heads: slice) -> dict[str, Tensor]:
        exact = flat_values[heads].to(torch.float64)
        exact = with_ones(exact, sets) if simplex else exact
        weights = maps[heads].to(torch.float64, copy=True)
        if not bool(visible.all()):
            weights.masked_fill_(~visible, 0)
        return _project(weights, exact, sets, tolerance, effective[heads])

    at_a_time = WORKSPACE // (8 * visible.numel())
    runs = spread(project_heads, shares(len(maps), at_a_time, maps.device), maps.device)
    numbers = {name: torch.cat([run[name] for run in runs]) for name in runs[0]}
    shaped = {
        name: flat.reshape(*attention.shape[:-2], *flat.shape[1:]) for name, flat in numbers.items()
    }
    seen = sets.size[sets.of_row]
    relative = torch.tensor([tolerance.of(size) for size in seen.tolist()], dtype=torch.float64)
    return Projection(effective.reshape(attention.shape), keys_seen=seen, rtol=relative, **shaped)


def _project(
    weights: HeadMaps, values: HeadValues, sets: KeySets, tolerance: Tolerance, effective: HeadMaps
) -> dict[str, Tensor]:
    """Fill ``effective`` for some heads and return the rest; ``weights`` is overwritten."""
    distinct, owner = _distinct(values)
    counted = ranks(distinct, sets, tolerance)  # step 1
    counts = {"rank": counted.rank, "least_rank": counted.least, "most_rank": counted.most}
    numbers = {name: count[owner][:, sets.of_row] for name, count in counts.items()}
    numbers["spectrum"] = counted.spectrum[owner]
    if bool((counted.rank == sets.size).all()):  # step 2, for all rows
        effective.copy_(weights)
        nothing = weights.new_zeros(weights.shape[:2])
        same = weights.new_ones(len(weights))
        return numbers | {"null_fraction": nothing, "moved": nothing, "pearson": same}
    rows = _effective_rows(weights, distinct, owner, sets, counted, tolerance)
    effective.copy_(rows)
    sums, length = (weights.sum(-1), rows.sum(-1)), weights.norm(dim=-1)
    null_part = weights.sub_(rows)
    null_length = null_part.norm(dim=-1)
    return numbers | {
        "null_fraction": null_length / torch.where(length > 0, length, 1.0),
        "moved": null_part.norm(p=1, dim=-1) / 2,
        "pearson": _pearson(sums, length, null_length, int(sets.size[sets.of_row].sum())),
    }


def _effective_rows(
    weights: HeadMaps,
    values: Float[Tensor, "distinct key width"],
    owner: Int[Tensor, " head"],
    sets: KeySets,
    counted: Ranks,
    tolerance: Tolerance,
) -> HeadMaps:
    """The part of every row that the output can show (steps 2 to 5)."""
    basis, same_rank, blur = _basis(values, sets, counted, tolerance)  # step 3
    free, products = (counted.rank < sets.size)[owner], weights @ basis[owner]
    if len(sets) == 1:
        effective = products @ basis[owner].mT
        if bool(free.all()):
            return effective
        return torch.where(free.unsqueeze(-1), effective, weights)  # step 2
    # step 4
    solution, pivots = coefficients(products, basis, owner, sets, free.any(0))
    effective = (solution @ basis[owner].mT).masked_fill_(~sets.member[sets.of_row], 0)
    # step 2
    untouched = ~free[:, sets.of_row]
    effective[untouched] = weights[untouched]
    # step 5
    enough = (blur / SAME_SPACE).square().clamp_min(WELL_CONDITIONED).unsqueeze(-1)
    unsettled = free & ~(same_rank[owner] & (pivots > enough[owner]))
    for index in unsettled.any(0).nonzero().flatten().tolist():
        heads = unsettled[:, index].nonzero().flatten()
        keys = sets.member[index].nonzero().flatten()
        rows = (sets.of_row == index).nonzero().flatten()
        kinds, place = torch.unique(owner[heads], return_inverse=True)
        directions = _leading(values[kinds][:, keys], counted.rank[kinds, index])[place]
        block = (heads[:, None, None], rows[:, None], keys)
        effective[block] = weights[block] @ directions @ directions.mT
    return effective


def _basis(
    values: Float[Tensor, "distinct key width"],
    sets: KeySets,
    counted: Ranks,
    tolerance: Tolerance,
) -> tuple[
    Float[Tensor, "distinct key direction"],
    Bool[Tensor, "distinct set"],
    Float[Tensor, " distinct"],
]:
    """Orthonormal columns for the values of all keys that are seen; zeros elsewhere.

    Also: on which key sets the values have the rank of the whole, and the blur: the strongest
    direction that is dropped over the weakest that is kept.
    """
    seen, widest = sets.everything, int(sets.size.argmax())
    columns, mixing = torch.linalg.qr(values[:, seen])
    rank, blur = counted.rank[:, widest], values.new_zeros(len(values))
    one_sees_all = bool((sets.member[widest] == seen).all())
    if not (one_sees_all and bool((rank == columns.shape[-1]).all())):
        turn, strength, _ = torch.linalg.svd(mixing)
        if not one_sees_all:
            line = tolerance.of(int(seen.sum())) * strength[:, :1]
            rank = (strength > line).sum(-1)
        kept = torch.arange(strength.shape[-1], device=rank.device) < rank.unsqueeze(-1)
        columns = (columns @ turn) * kept.unsqueeze(1)
        weakest = torch.where(kept, strength, torch.inf).amin(-1)
        blur = torch.where(kept, 0, strength).amax(-1) / weakest
    basis = values.new_zeros(*values.shape[:2], columns.shape[-1])
    basis[:, seen] = columns
    return basis, counted.rank == rank.unsqueeze(-1), blur


def _leading(
    values: Float[Tensor, "kind seen width"], rank: Int[Tensor, " kind"]
) -> Float[Tensor, "kind seen direction"]:
    """The ``rank`` strongest left singular vectors, then zeros."""
    left, _, _ = torch.linalg.svd(values, full_matrices=False)
    kept = torch.arange(left.shape[-1], device=rank.device) < rank.unsqueeze(-1)
    leading: Tensor = left * kept.unsqueeze(1)
    return leading


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
