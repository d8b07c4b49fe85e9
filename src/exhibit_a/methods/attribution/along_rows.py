"""What the rows of a head say together: whether chance would do as much, and where they point.

Read off the weights of a head, the same weights spread evenly, and the gradients of the answer
along the path between the two (``reliance.py``).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.numerics.sorting import ascending
from exhibit_a.numerics.spilling import few_heads
from exhibit_a.shapes import SiteHeads, SiteMap, SiteVisible


class AlongRows(NamedTuple):
    """What the rows of every head say together."""

    null: SiteHeads  # spread of the share if the rows had been permuted
    alignment: SiteHeads  # correlation of weights and gradients, pooled over rows
    pointing: SiteHeads  # cosine of weights and contributions, row by row
    coherence: SiteHeads  # how far the rows speak for the same side as the head


def along_rows(maps: SiteMap, even: SiteMap, gradients: SiteMap, visible: SiteVisible) -> AlongRows:
    """What the rows of every head say together; a few heads at a time, where maps are large."""
    runs = zip(few_heads(maps), few_heads(even), few_heads(gradients), strict=True)
    by_run = [_along_rows(*run, visible) for run in runs]
    return AlongRows(*(torch.cat(numbers) for numbers in zip(*by_run, strict=True)))


def _along_rows(
    maps: SiteMap, even: SiteMap, gradients: SiteMap, visible: SiteVisible
) -> AlongRows:
    """For every head: the null of its share, its alignment, whether it points, and coherently.

    A row's share is Σ_k (A − U)_k g_k. Over all permutations of A among the n keys of the row it
    has the mean 0 and the variance Σ(A − U)² Σ(g − ḡ)² / (n − 1); rows are permuted apart. The
    alignment is the correlation of A and g along rows, pooled with the rows' sizes.

    What a key contributed is A_k (g_k − m), compared with the median key of its row: the mean would
    credit a key without value with what the others speak against the answer. A row points where A
    and these contributions have the same direction (cosine), in the sense of the row's own share: a
    row that speaks against the answer can look at what it speaks of. Whether the rows of a head
    speak for one side is another question: the coherence is what those with the sense of the
    head's share contribute, less what the others do, of all. Rows count by what they contribute.
    """
    seen = visible.to(maps.device, maps.dtype)
    count = seen.sum(-1)
    gradients = gradients * seen
    centred = (gradients - gradients.sum(-1, keepdim=True) / count.clamp_min(1)[:, None]) * seen
    weights, sizes = (maps - even).square().sum(-1), centred.square().sum(-1)
    variance = (weights * sizes / (count - 1).clamp_min(1)).sum(-1)
    tiny = torch.finfo(maps.dtype).tiny
    row_shares = (maps * centred).sum(-1)
    share = row_shares.sum(-1)
    alignment = share / (weights * sizes).sqrt().sum(-1).clamp_min(tiny)
    contributed = maps * (gradients - _medians(gradients, seen)) * seen
    lengths = maps.square().sum(-1).sqrt() * contributed.square().sum(-1).sqrt()
    cosines = (maps * contributed).sum(-1) / lengths.clamp_min(tiny) * row_shares.sign()
    masses = contributed.abs().sum(-1)
    voices = row_shares.sign() * share.sign()[:, None]
    pointing, coherence = (
        (numbers * masses).sum(-1) / masses.sum(-1).clamp_min(tiny) for numbers in (cosines, voices)
    )
    return AlongRows(*(n.cpu() for n in (variance.sqrt(), alignment, pointing, coherence)))


def _medians(gradients: SiteMap, seen: Float[Tensor, "query key"]) -> Float[Tensor, "head query 1"]:
    """The median of every row over the keys it may see: between the two middle ones, if two are."""
    in_order = ascending(gradients.masked_fill(seen == 0, torch.inf))
    count = seen.sum(-1).long().expand(gradients.shape[:2])
    middle = torch.stack([(count - 1).clamp_min(0) // 2, count // 2], -1)
    low_and_high = in_order.gather(-1, middle.clamp_max(max(gradients.shape[-1] - 1, 0)))
    return low_and_high.mean(-1, keepdim=True).nan_to_num(0, 0, 0)
