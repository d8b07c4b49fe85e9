"""Counts the dimensions in which an attention row could have differed, by constraint.

The more we know about where a row comes from, the fewer rows are left that give the same output.
For a row a over the keys S it sees, with values V and keys K, the dimension of what is left is
counted under one demand after the other (Brunner et al., 2020; Bhardwaj et al., 2021):

1. the output is the same, a′V = aV:                                   |S| − rank V
2. and the weights keep their sum:                                     |S| − rank [V, 1]
3. and none is negative: as before, because softmax weights are positive. Weights that are exactly
   zero are held at zero; the count is that of the face on which the row lies.
4. and the model's own keys can produce them, a′ = softmax(Kq′). What is left, close to a, is what
   moves of q do to the row and not to its output (``key_moves.py``).

The last demand is counted for small moves; rows far away that meet it too are not counted.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.methods.identifiability.key_moves import key_moves
from exhibit_a.methods.identifiability.key_sets import KeySets, key_sets
from exhibit_a.methods.identifiability.ranks import (
    Counts,
    HeadMaps,
    HeadValues,
    Tolerance,
    ranks,
    tolerance_for,
    with_ones,
)
from exhibit_a.numerics.parallel import chunk_slices, parallel_map
from exhibit_a.numerics.precision import exact_device, returned, to_float64

WORKSPACE = 2**23  # bytes of float64 that a thread works on at a time, if more than one row


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
        no_rows = returned(to_float64(none), device)
        keyed = (none, none, no_rows) if keys is not None else (None, None, None)
        return Freedom(none, none, none, *keyed)

    def count_heads(heads: slice) -> list[Tensor]:
        weights = to_float64(attention[heads]).masked_fill(~visible, 0)
        exact_values = to_float64(values[heads])
        summed = with_ones(exact_values, sets)
        plain = tolerance_for(precision, values.shape[-1], rtol)
        wider = tolerance_for(precision, summed.shape[-1], rtol)
        same_output = _nullity(exact_values, sets, plain)  # step 1
        same_sum = _nullity(summed, sets, wider)  # step 2
        not_negative = _on_its_face(weights, summed, sets, wider, same_sum)  # step 3
        if keys is None:
            return [same_output, same_sum, not_negative]
        line = tolerance_for(precision, max(values.shape[-1], keys.shape[-1]), rtol)
        exact_keys = to_float64(keys[heads])
        at_a_time = max(1, WORKSPACE // (len(weights) * _bytes_of_moves(values, keys)))
        row_runs = zip(
            torch.split(weights, at_a_time, dim=1), torch.split(visible, at_a_time), strict=True
        )
        moves = [  # step 4
            key_moves(rows, seen, exact_values, exact_keys, line) for rows, seen in row_runs
        ]
        generated, reach, visibility = (torch.cat(runs, 1) for runs in zip(*moves, strict=True))
        return [same_output, same_sum, not_negative, generated, reach, visibility]

    bytes_per_head = 8 * attention[0].numel()
    if keys is not None:
        bytes_per_head += values.shape[1] * _bytes_of_moves(values, keys)
    head_runs = chunk_slices(len(attention), max(1, WORKSPACE // bytes_per_head), place)
    by_run = parallel_map(count_heads, head_runs, place)
    counts = [returned(torch.cat(runs), device) for runs in zip(*by_run, strict=True)]
    return Freedom(*counts, *[None] * (6 - len(counts)))


def _bytes_of_moves(values: Tensor, keys: Tensor) -> int:
    """What kkᵀ and vkᵀ of one key, or of one row, take in float64."""
    return 8 * keys.shape[-1] * (keys.shape[-1] + values.shape[-1])


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
