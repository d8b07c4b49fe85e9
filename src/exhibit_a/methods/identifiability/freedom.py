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

from exhibit_a.methods.identifiability.key_sets import KeySets, key_sets
from exhibit_a.methods.identifiability.ranks import (
    EXACT,
    Tolerance,
    ranks,
    singular_values,
    tolerance_for,
    with_ones,
)
from exhibit_a.numerics.parallel import shares, spread

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


def degrees_of_freedom(
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

    def of_heads(some: slice) -> list[Tensor]:
        weights = attention[some].to(torch.float64).masked_fill(~visible, 0)
        exact = values[some].to(torch.float64)
        summed = with_ones(exact, sets)
        plain = tolerance_for(precision, exact.shape[-1], rtol)
        wider = tolerance_for(precision, summed.shape[-1], rtol)
        same_sum = _nullity(summed, sets, wider)
        counts = [
            _nullity(exact, sets, plain),
            same_sum,
            _on_its_face(weights, summed, sets, wider, same_sum),
        ]
        if keys is None:
            return counts
        line = tolerance_for(precision, max(exact.shape[-1], keys.shape[-1]), rtol)
        own_keys = keys[some].to(torch.float64)
        at_a_time = max(1, WORKSPACE // (8 * own_keys.numel()))
        moves = [
            _moves(rows, seen, exact, own_keys, line)
            for rows, seen in zip(
                torch.split(weights, at_a_time, dim=1),
                torch.split(visible, at_a_time),
                strict=True,
            )
        ]
        return [*counts, *(torch.cat(part, 1) for part in zip(*moves, strict=True))]

    one_head = 8 * attention[0].numel() * (1 if keys is None else keys.shape[-1])
    parts = shares(len(attention), max(1, WORKSPACE // one_head), attention.device)
    found = spread(of_heads, parts, attention.device)
    counted = [torch.cat(part) for part in zip(*found, strict=True)]
    return Freedom(*counted, *[None] * (6 - len(counted)))


def _nullity(
    values: Float[Tensor, "head key width"], sets: KeySets, tolerance: Tolerance
) -> Int[Tensor, "head query"]:
    """Keys without independent values, row by row."""
    return (sets.size - ranks(values, sets, tolerance).rank)[:, sets.of_row]


def _on_its_face(
    weights: Float[Tensor, "head query key"],
    summed: Float[Tensor, "head key width"],
    sets: KeySets,
    tolerance: Tolerance,
    same_sum: Int[Tensor, "head query"],
) -> Int[Tensor, "head query"]:
    """As for the sum, over the keys that a row gives any weight."""
    used, found = weights > 0, same_sum.clone()
    some_without = (used != sets.member[sets.of_row]).any(-1).any(-1)
    for head in some_without.nonzero().flatten().tolist():
        found[head] = _nullity(summed[head : head + 1], key_sets(used[head]), tolerance)[0]
    return found


def _moves(
    weights: Float[Tensor, "head row key"],
    seen: Bool[Tensor, "row key"],
    values: Float[Tensor, "head key d_head"],
    keys: Float[Tensor, "head key d_query"],
    tolerance: Tolerance,
) -> tuple[Int[Tensor, "head row"], Int[Tensor, "head row"], Float[Tensor, "head row"]]:
    """Moves that the output cannot show, all moves, and how visible the least visible is.

    Both B and VᵀQ are blind to what all keys or values have in common, but the rounding of K and V
    is not: it is as large as they are, so the tolerance is relative to them with that part.
    """
    sizes = seen.sum(-1, keepdim=True)
    lines = torch.tensor([[tolerance.of(size)] for size in sizes.flatten().tolist()]).to(weights)
    common = weights @ keys
    moves = weights.unsqueeze(-1) * (keys.unsqueeze(1) - common.unsqueeze(2))
    rounded = weights.norm(dim=-1, keepdim=True) * common.norm(dim=-1, keepdim=True)
    finest, shows = float(lines.min()), values.mT.unsqueeze(1)
    if finest**2 < 1e3 * EXACT or moves.shape[-2] < moves.shape[-1]:
        directions, strength, _ = torch.linalg.svd(moves, full_matrices=False)
        kept = strength > lines * (strength[..., :1] + rounded)
        effect = shows @ (directions * kept.unsqueeze(-2))
    else:
        squares, turn = torch.linalg.eigh(moves.mT @ moves)
        largest = squares[..., -1:].clamp_min(0).sqrt()
        kept = squares > (lines * (largest + rounded)).square()
        unit = torch.where(kept, squares, torch.inf).rsqrt()
        effect = (shows @ moves) @ (turn * unit.unsqueeze(-2))
    reach = kept.sum(-1)
    shown = singular_values(effect, finest)
    alike = (seen.to(values) @ values).norm(dim=-1, keepdim=True) / sizes.clamp_min(1).sqrt()
    visible = (shown > lines * (shown[..., :1] + alike)).sum(-1)
    last = (reach - 1).clamp_min(0).unsqueeze(-1)
    padded = torch.nn.functional.pad(shown, (0, 1 + int(last.max())))  # more moves than outputs
    least = padded.gather(-1, last).squeeze(-1)
    ratio = least / shown[..., 0].clamp_min(torch.finfo(shown.dtype).tiny)
    return reach - visible, reach, torch.where(reach > 0, ratio, 1.0)
