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
   rank B − rank VᵀB, which is found in four steps:
   a. B;
   b. its rank, the reach of the keys, and an orthonormal basis Q of its columns;
   c. the rank of VᵀQ, which is that of VᵀB;
   d. the smallest singular value of VᵀQ over its largest: how visible the least visible move is.

The last demand is counted for small moves; rows far away that meet it too are not counted.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import KeySets, key_sets
from exhibit_a.methods.identifiability.ranks import (
    EXACT,
    Counts,
    HeadMaps,
    HeadValues,
    Tolerance,
    ranks,
    singular_values,
    tolerance_for,
    with_ones,
)
from exhibit_a.numerics.exact import exact, exact_device, returned
from exhibit_a.numerics.parallel import shares, spread

WORKSPACE = 2**24  # bytes of float64 moves that a thread works on at a time, if more than one row


@dataclass(frozen=True, eq=False)
class Freedom:
    """Dimensions left to every row under each demand, from the weakest to the strongest."""

    same_output: Counts
    same_sum: Counts
    not_negative: Counts
    generated: Counts | None  # None without keys, as the next two
    reach: Counts | None  # dimensions in which the keys can move the row
    visibility: Float[Tensor, "head query"] | None  # least visible such move over the most visible


def degrees_of_freedom(
    attention: HeadMaps,
    values: Float[Tensor, "head key d_head"],
    keys: Float[Tensor, "head key d_query"] | None,
    visible: Bool[Tensor, "query key"],
    *,
    rtol: float | None = None,
    dtype: torch.dtype | None = None,
) -> Freedom:
    """Count, for every row of every head, the dimensions in which it could have been different.

    ``dtype`` is the precision the model computed in, where it is not that of ``values``.
    """
    device, precision = attention.device, dtype or values.dtype
    place = exact_device(device)
    attention, values, visible = attention.to(place), values.to(place), visible.to(place)
    sets = key_sets(visible)
    if not len(visible):
        none = torch.zeros(len(attention), 0, dtype=torch.long, device=device)
        no_rows = returned(exact(none), device)
        keyed = (none, none, no_rows) if keys is not None else (None, None, None)
        return Freedom(none, none, none, *keyed)

    def count_heads(heads: slice) -> list[Tensor]:
        weights = exact(attention[heads]).masked_fill(~visible, 0)
        exact_values = exact(values[heads])
        summed = with_ones(exact_values, sets)
        plain = tolerance_for(precision, values.shape[-1], rtol)
        wider = tolerance_for(precision, summed.shape[-1], rtol)
        same_output = _nullity(exact_values, sets, plain)  # step 1
        same_sum = _nullity(summed, sets, wider)  # step 2
        not_negative = _on_its_face(weights, summed, sets, wider, same_sum)  # step 3
        if keys is None:
            return [same_output, same_sum, not_negative]
        line = tolerance_for(precision, max(values.shape[-1], keys.shape[-1]), rtol)
        exact_keys = exact(keys[heads])
        at_a_time = max(1, WORKSPACE // (8 * exact_keys.numel()))
        row_runs = zip(
            torch.split(weights, at_a_time, dim=1), torch.split(visible, at_a_time), strict=True
        )
        moves = [  # step 4
            _moves(rows, seen, exact_values, exact_keys, line) for rows, seen in row_runs
        ]
        generated, reach, visibility = (torch.cat(runs, 1) for runs in zip(*moves, strict=True))
        return [same_output, same_sum, not_negative, generated, reach, visibility]

    bytes_per_head = 8 * attention[0].numel() * (1 if keys is None else keys.shape[-1])
    head_runs = shares(len(attention), max(1, WORKSPACE // bytes_per_head), place)
    by_run = spread(count_heads, head_runs, place)
    counts = [returned(torch.cat(runs), device) for runs in zip(*by_run, strict=True)]
    return Freedom(*counts, *[None] * (6 - len(counts)))


def _nullity(values: HeadValues, sets: KeySets, tolerance: Tolerance) -> Counts:
    """The number of keys that a row sees, without the rank of their values."""
    return (sets.size - ranks(values, sets, tolerance).rank)[:, sets.of_row]


def _on_its_face(
    weights: HeadMaps, summed: HeadValues, sets: KeySets, tolerance: Tolerance, same_sum: Counts
) -> Counts:
    """As ``same_sum``, but over the keys that a row gives any weight."""
    used, counts = weights > 0, same_sum.clone()
    has_zeros = (used != sets.member[sets.of_row]).any(-1).any(-1)
    for head in has_zeros.nonzero().flatten().tolist():
        counts[head] = _nullity(summed[head : head + 1], key_sets(used[head]), tolerance)[0]
    return counts


def _moves(
    weights: Float[Tensor, "head row key"],
    seen: Bool[Tensor, "row key"],
    values: Float[Tensor, "head key d_head"],
    keys: Float[Tensor, "head key d_query"],
    tolerance: Tolerance,
) -> tuple[Int[Tensor, "head row"], Int[Tensor, "head row"], Float[Tensor, "head row"]]:
    """Moves that the output cannot show, all moves, and how visible the least visible is.

    Neither B nor VᵀQ depends on what all keys or values have in common, but the rounding of K and V
    does: it is as large as they are. So the tolerance is relative to their size with that part.
    """
    sizes = seen.sum(-1, keepdim=True)
    lines = torch.tensor([[tolerance.of(size)] for size in sizes.flatten().tolist()]).to(weights)
    finest, transposed_values = float(lines.min()), values.mT.unsqueeze(1)
    # step 4a
    common_key = weights @ keys
    moves = weights.unsqueeze(-1) * (keys.unsqueeze(1) - common_key.unsqueeze(2))
    key_rounding = weights.norm(dim=-1, keepdim=True) * common_key.norm(dim=-1, keepdim=True)
    # step 4b, and VᵀQ; by the eigenvectors of BᵀB where squares keep enough digits
    if finest**2 < 1e3 * EXACT or moves.shape[-2] < moves.shape[-1]:
        directions, strength, _ = torch.linalg.svd(moves, full_matrices=False)
        kept = strength > lines * (strength[..., :1] + key_rounding)
        output_moves = transposed_values @ (directions * kept.unsqueeze(-2))
    else:
        squares, turn = torch.linalg.eigh(moves.mT @ moves)
        largest = squares[..., -1:].clamp_min(0).sqrt()
        kept = squares > (lines * (largest + key_rounding)).square()
        unit = torch.where(kept, squares, torch.inf).rsqrt()
        output_moves = (transposed_values @ moves) @ (turn * unit.unsqueeze(-2))
    reach = kept.sum(-1)
    # step 4c
    output_strength = singular_values(output_moves, finest)
    common_value = (seen.to(values) @ values).norm(dim=-1, keepdim=True)
    value_rounding = common_value / sizes.clamp_min(1).sqrt()
    visible = (output_strength > lines * (output_strength[..., :1] + value_rounding)).sum(-1)
    # step 4d; there can be more moves than outputs
    last = (reach - 1).clamp_min(0).unsqueeze(-1)
    padded = torch.nn.functional.pad(output_strength, (0, 1 + int(last.max())))
    least = padded.gather(-1, last).squeeze(-1)
    ratio = least / output_strength[..., 0].clamp_min(torch.finfo(output_strength.dtype).tiny)
    return reach - visible, reach, torch.where(reach > 0, ratio, 1.0)
