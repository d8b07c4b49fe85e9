"""Which part of an attention row can reach the output?

A head only ever uses ``row @ values``. Whatever part of the row lies in the left null space of the
values of the keys it sees is multiplied away (Brunner et al., 2020). What remains is the effective
attention: it gives the same output, it is the shortest row that does, and it is all that the output
can tell us about the row. For row i, with S the keys it may see, c = row @ V and G = V[S]ᵀV[S],

    effective row i  =  c G⁺ V[S]ᵀ  on S, and nothing outside S.

1. The mask is read as key sets (``visibility``), and the rank of V on each is counted (``ranks``).
2. Rows whose keys have independent values have no null space and stay as they are, bit for bit.
3. V is replaced by an orthonormal basis B of its columns: the formula does not change, and G = I
   when a row sees everything, which settles bidirectional, padded and cross-attention.
4. Otherwise G is I minus the outer products of what the row cannot see. Neighbouring rows differ in
   few keys, so a block of rows shares one factor of G, and each row corrects it for the few keys it
   lacks (Woodbury). G⁻¹c is found for all rows, then one product with Bᵀ gives all effective rows.
5. Rows with a smaller rank than the whole, or whose correction is ill-conditioned, are projected
   one key set at a time by a singular value decomposition.

Everything is computed in float64, a few heads at a time.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import KeySets, key_sets
from exhibit_a.methods.identifiability.ranks import (
    Ranks,
    Tolerance,
    ranks,
    tolerance_for,
    with_ones,
)
from exhibit_a.methods.identifiability.woodbury import coefficients
from exhibit_a.numerics.parallel import shares, spread

WORKSPACE = 2**23  # bytes of float64 attention that a thread has in hand, if more than one head
WELL_CONDITIONED = 1e-6  # smallest pivot of G, against 1 for a row that sees everything
SAME_SPACE = 1e-6  # how far directions below the tolerance may turn the space that is kept


@dataclass(frozen=True, eq=False)
class Projection:
    """Effective attention, and row by row how much the output can tell about it."""

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
        """Rows that the output determines, whatever one thinks of borderline singular values."""
        return self.least_rank == self.keys_seen

    @property
    def unidentifiable(self) -> Bool[Tensor, "*site head query"]:
        """Rows that the output does not determine, however small a singular value may count."""
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
    maps, own_values = attention.flatten(0, -3), values.flatten(0, -3)
    sets = key_sets(visible)
    tolerance = tolerance_for(dtype or values.dtype, values.shape[-1] + simplex, rtol)
    effective = torch.empty_like(maps, dtype=torch.promote_types(maps.dtype, torch.float32))

    def part(heads: slice) -> dict[str, Tensor]:
        exact = own_values[heads].to(torch.float64)
        exact = with_ones(exact, sets) if simplex else exact
        weights = maps[heads].to(torch.float64, copy=True)
        if not bool(visible.all()):
            weights.masked_fill_(~visible, 0)
        return _project(weights, exact, sets, tolerance, effective[heads])

    at_a_time = WORKSPACE // (8 * visible.numel())
    parts = spread(part, shares(len(maps), at_a_time, maps.device), maps.device)
    rows = {name: torch.cat([each[name] for each in parts]) for name in parts[0]}
    shaped = {
        name: row.reshape(*attention.shape[:-2], *row.shape[1:]) for name, row in rows.items()
    }
    seen = sets.size[sets.of_row]
    relative = torch.tensor([tolerance.of(size) for size in seen.tolist()], dtype=torch.float64)
    return Projection(effective.reshape(attention.shape), keys_seen=seen, rtol=relative, **shaped)


def _project(
    weights: Float[Tensor, "head query key"],
    values: Float[Tensor, "head key width"],
    sets: KeySets,
    tolerance: Tolerance,
    effective: Float[Tensor, "head query key"],
) -> dict[str, Tensor]:
    """Fill ``effective`` for some heads and tell the rest about them; ``weights`` is used up."""
    own, owner = _distinct(values)
    found = ranks(own, sets, tolerance)
    counts = {"rank": found.rank, "least_rank": found.least, "most_rank": found.most}
    about = {name: count[owner][:, sets.of_row] for name, count in counts.items()}
    about["spectrum"] = found.spectrum[owner]
    if bool((found.rank == sets.size).all()):
        effective.copy_(weights)
        nothing = weights.new_zeros(weights.shape[:2])
        same = weights.new_ones(len(weights))
        return about | {"null_fraction": nothing, "moved": nothing, "pearson": same}
    shown = _shown(weights, own, owner, sets, found, tolerance)
    effective.copy_(shown)
    sums, length = (weights.sum(-1), shown.sum(-1)), weights.norm(dim=-1)
    hidden = weights.sub_(shown)
    null = hidden.norm(dim=-1)
    return about | {
        "null_fraction": null / torch.where(length > 0, length, 1.0),
        "moved": hidden.norm(p=1, dim=-1) / 2,
        "pearson": _pearson(sums, length, null, int(sets.size[sets.of_row].sum())),
    }


def _shown(
    weights: Float[Tensor, "head query key"],
    values: Float[Tensor, "own key width"],
    owner: Int[Tensor, " head"],
    sets: KeySets,
    found: Ranks,
    tolerance: Tolerance,
) -> Float[Tensor, "head query key"]:
    """The part of every row that the output can show (steps 2 to 5)."""
    basis, same_rank, blur = _basis(values, sets, found, tolerance)
    free, seen = (found.rank < sets.size)[owner], weights @ basis[owner]
    if len(sets) == 1:
        shown = seen @ basis[owner].mT
        return torch.where(free.unsqueeze(-1), shown, weights) if not bool(free.all()) else shown
    solution, pivots = coefficients(seen, basis, owner, sets, free.any(0))
    shown = (solution @ basis[owner].mT).masked_fill_(~sets.member[sets.of_row], 0)
    untouched = ~free[:, sets.of_row]
    shown[untouched] = weights[untouched]
    enough = (blur / SAME_SPACE).square().clamp_min(WELL_CONDITIONED).unsqueeze(-1)
    stubborn = free & ~(same_rank[owner] & (pivots > enough[owner]))
    for index in stubborn.any(0).nonzero().flatten().tolist():
        heads = stubborn[:, index].nonzero().flatten()
        keys = sets.member[index].nonzero().flatten()
        rows = (sets.of_row == index).nonzero().flatten()
        kinds, place = torch.unique(owner[heads], return_inverse=True)
        directions = _leading(values[kinds][:, keys], found.rank[kinds, index])[place]
        there = (heads[:, None, None], rows[:, None], keys)
        shown[there] = weights[there] @ directions @ directions.mT
    return shown


def _basis(
    values: Float[Tensor, "own key width"], sets: KeySets, found: Ranks, tolerance: Tolerance
) -> tuple[Float[Tensor, "own key direction"], Bool[Tensor, "own set"], Float[Tensor, " own"]]:
    """Orthonormal columns for the values of all keys that are seen; zeros elsewhere.

    Also: on which key sets the values have the rank of the whole, and how much stronger the
    weakest direction kept is than the strongest dropped.
    """
    seen, widest = sets.everything, int(sets.size.argmax())
    columns, mixing = torch.linalg.qr(values[:, seen])
    rank, blur = found.rank[:, widest], values.new_zeros(len(values))
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
    return basis, found.rank == rank.unsqueeze(-1), blur


def _leading(
    values: Float[Tensor, "own seen width"], rank: Int[Tensor, " own"]
) -> Float[Tensor, "own seen direction"]:
    """The ``rank`` strongest left singular vectors, then zeros."""
    left, _, _ = torch.linalg.svd(values, full_matrices=False)
    kept = torch.arange(left.shape[-1], device=rank.device) < rank.unsqueeze(-1)
    leading: Tensor = left * kept.unsqueeze(1)
    return leading


def _distinct(
    values: Float[Tensor, "head key width"],
) -> tuple[Float[Tensor, "own key width"], Int[Tensor, " head"]]:
    """Neighbouring heads with the same values, once; and which head uses which."""
    new = torch.ones(len(values), dtype=torch.bool, device=values.device)
    new[1:] = (values[1:, 0] != values[:-1, 0]).any(1)  # the first key nearly always tells
    if bool(new.all()):
        return values, new.cumsum(0) - 1
    new[1:] = (values[1:] != values[:-1]).flatten(1).any(1)
    return values[new], new.cumsum(0) - 1


def _pearson(
    sums: tuple[Float[Tensor, "head query"], Float[Tensor, "head query"]],
    length: Float[Tensor, "head query"],
    null: Float[Tensor, "head query"],
    pairs: int,
) -> Float[Tensor, " head"]:
    """Correlation of raw and effective weights.

    A row and its projection have the product ‖row‖² − ‖null‖², which is the square of the latter.
    """
    raw_sum, kept_sum = (part.sum(-1) for part in sums)
    raw, kept = length.square().sum(-1), (length.square() - null.square()).sum(-1)
    covariance = kept - raw_sum * kept_sum / pairs
    variances = (raw - raw_sum**2 / pairs) * (kept - kept_sum**2 / pairs)
    return covariance / variances.clamp_min(0).sqrt()
