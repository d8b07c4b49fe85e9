"""How much could an attention row have been different, and still be what the model would do?

The more we know about where a row comes from, the fewer rows are left that give the same output.
For a row a over the keys S it sees, with values V and keys K, the dimension of what is left is
counted under one demand after the other (Brunner et al., 2020; Bhardwaj et al., 2021):

1. the output is the same, a′V = aV:                                   |S| − rank V
2. and the weights keep their sum:                                     |S| − rank [V, 1]
3. and none is negative: as before, because softmax weights are positive. Weights that are exactly
   zero are held at zero; the count is that of the face on which the row lies.
4. and the model's own keys can produce them, a′ = softmax(Kq′): moving q moves the row along
   B = (diag a − aaᵀ)K and the output along VᵀB = Cov_a(V, K). What is left, close to a, is
   rank B − rank VᵀB. The rank of VᵀB is read off VᵀQ, with Q an orthonormal basis of the columns of
   B; its smallest singular value over its largest says how visible the least visible move is.

The last is a statement about small moves; far away there may be other rows that nobody counted.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.parallel import spread
from exhibit_a.methods.ranks import (
    EXACT,
    Tolerance,
    ranks,
    singular_values,
    tolerance_for,
    with_ones,
)
from exhibit_a.methods.visibility import KeySets, key_sets

WORKSPACE = 2**24  # bytes of float64 moves that a thread has in hand, if more than one row


@dataclass(frozen=True, eq=False)
class Freedom:
    """Dimensions left to every row under each demand, from the weakest to the strongest."""

    same_output: Int[Tensor, "head query"]
    same_sum: Int[Tensor, "head query"]
    not_negative: Int[Tensor, "head query"]
    generated: Int[Tensor, "head query"] | None  # without keys nobody knows
    reach: Int[Tensor, "head query"] | None  # dimensions in which the keys can move the row
    visibility: Float[Tensor, "head query"] | None  # least visible such move over the most visible


def freedom(
    attention: Float[Tensor, "head query key"],
    values: Float[Tensor, "head key d_head"],
    keys: Float[Tensor, "head key d_query"] | None,
    visible: Bool[Tensor, "query key"],
    *,
    rtol: float | None = None,
    dtype: torch.dtype | None = None,
) -> Freedom:
    """Count, for every row of every head, the ways in which it could have been different.

    ``dtype`` is the precision the model computed in, where it is not that of ``values``.
    """
    sets, precision = key_sets(visible), dtype or values.dtype

    def of_head(head: int) -> list[Tensor]:
        weights = attention[head].to(torch.float64).masked_fill(~visible, 0)
        exact = values[head].to(torch.float64)
        summed = with_ones(exact.unsqueeze(0), sets)
        plain = tolerance_for(precision, exact.shape[-1], rtol)
        wider = tolerance_for(precision, summed.shape[-1], rtol)
        counts = [
            _nullity(exact.unsqueeze(0), sets, plain),
            _nullity(summed, sets, wider),
            _on_its_face(weights, summed, sets, wider),
        ]
        if keys is None:
            return counts
        line = tolerance_for(precision, max(exact.shape[-1], keys.shape[-1]), rtol)
        own_keys = keys[head].to(torch.float64)
        at_a_time = max(1, WORKSPACE // (8 * own_keys.numel()))
        moves = [
            _moves(some, seen, exact, own_keys, line)
            for some, seen in zip(
                torch.split(weights, at_a_time), torch.split(visible, at_a_time), strict=True
            )
        ]
        return [*counts, *(torch.cat(part) for part in zip(*moves, strict=True))]

    found = spread(of_head, range(len(attention)), attention.device)
    counted = [torch.stack(part) for part in zip(*found, strict=True)]
    return Freedom(*counted, *[None] * (6 - len(counted)))


def _nullity(
    values: Float[Tensor, "1 key width"], sets: KeySets, tolerance: Tolerance
) -> Int[Tensor, " query"]:
    """Keys without independent values, row by row."""
    return (sets.size - ranks(values, sets, tolerance).rank[0])[sets.of_row]


def _on_its_face(
    weights: Float[Tensor, "query key"],
    summed: Float[Tensor, "1 key width"],
    sets: KeySets,
    tolerance: Tolerance,
) -> Int[Tensor, " query"]:
    """As for the sum, over the keys that a row gives any weight."""
    used = weights > 0
    if torch.equal(used, sets.member[sets.of_row]):
        return _nullity(summed, sets, tolerance)
    return _nullity(summed, key_sets(used), tolerance)


def _moves(
    weights: Float[Tensor, "row key"],
    seen: Bool[Tensor, "row key"],
    values: Float[Tensor, "key d_head"],
    keys: Float[Tensor, "key d_query"],
    tolerance: Tolerance,
) -> tuple[Int[Tensor, " row"], Int[Tensor, " row"], Float[Tensor, " row"]]:
    """Moves that the output cannot show, all moves, and how visible the least visible is.

    Both B and VᵀQ are blind to what all keys or values have in common, but the rounding of K and V
    is not: it is as large as they are, so the tolerance is relative to them with that part.
    """
    sizes = seen.sum(-1, keepdim=True)
    lines = torch.tensor([[tolerance.of(size)] for size in sizes.flatten().tolist()]).to(weights)
    common = weights @ keys
    moves = weights.unsqueeze(-1) * (keys - common.unsqueeze(1))
    rounded = weights.norm(dim=-1, keepdim=True) * common.norm(dim=-1, keepdim=True)
    finest = float(lines.min())
    if finest**2 < 1e3 * EXACT or moves.shape[1] < moves.shape[2]:
        directions, strength, _ = torch.linalg.svd(moves, full_matrices=False)
        kept = strength > lines * (strength[:, :1] + rounded)
        effect = values.mT @ (directions * kept.unsqueeze(1))
    else:
        squares, turn = torch.linalg.eigh(moves.mT @ moves)
        largest = squares[:, -1:].clamp_min(0).sqrt()
        kept = squares > (lines * (largest + rounded)).square()
        unit = torch.where(kept, squares, torch.inf).rsqrt()
        effect = (values.mT @ moves) @ (turn * unit.unsqueeze(1))
    reach = kept.sum(-1)
    shown = singular_values(effect, finest)
    alike = (seen.to(values) @ values).norm(dim=-1, keepdim=True) / sizes.clamp_min(1).sqrt()
    visible = (shown > lines * (shown[:, :1] + alike)).sum(-1)
    last = (reach - 1).clamp_min(0).unsqueeze(-1)
    padded = torch.nn.functional.pad(shown, (0, 1 + int(last.max())))  # more moves than outputs
    least = padded.gather(-1, last).squeeze(-1)
    ratio = least / shown[:, 0].clamp_min(torch.finfo(shown.dtype).tiny)
    return reach - visible, reach, torch.where(reach > 0, ratio, 1.0)
