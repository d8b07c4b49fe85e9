"""Correlations of rows of numbers.

Pearson's correlation compares the numbers, Spearman's their ranks; equal numbers share the mean of
their ranks, so that a constant row agrees with nothing. Both go along the last axis, over the
places that are marked.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Rows = Float[Tensor, "*any key"]
Marks = Bool[Tensor, "*#any key"]
RowScores = Float[Tensor, "*any"]


def pearson(a: Rows, b: Rows, where: Marks) -> RowScores:
    """Correlation of two rows over the marked places; 0 where one of them is constant.

    >>> everywhere = torch.ones(4, dtype=torch.bool)
    >>> float(pearson(torch.tensor([1.0, 2, 3, 4]), torch.tensor([2.0, 4, 6, 8]), everywhere))
    1.0
    >>> float(pearson(torch.ones(4), torch.tensor([2.0, 4, 6, 8]), everywhere))
    0.0
    """
    count = where.sum(-1, keepdim=True).clamp_min(1)
    a, b = (
        torch.where(where, part - (part * where).sum(-1, keepdim=True) / count, 0)
        for part in (a, b)
    )
    size = (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return torch.where(size > 1e-12, (a * b).sum(-1) / size.clamp_min(1e-12), 0)


def spearman(a: Rows, b: Rows, where: Marks) -> RowScores:
    """Correlation of the ranks of two rows over the marked places; 0 where one is constant.

    >>> everywhere = torch.ones(4, dtype=torch.bool)
    >>> float(spearman(torch.tensor([1.0, 2, 3, 9]), torch.tensor([0.0, 1, 5, 6]), everywhere))
    1.0
    """
    return pearson(ranks(a, where), ranks(b, where), where)


def ranks(values: Rows, where: Marks) -> Rows:
    """Ranks among the marked places, from ½ up; equal values share their mean rank.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0, 9.0]), torch.tensor([True, True, True, False]))[:3]
    tensor([2.0000, 0.5000, 2.0000])
    """
    marked = where.expand(values.shape)
    ordered = values.masked_fill(~marked, torch.inf).sort(-1).values.contiguous()
    requested = values.contiguous()
    below = torch.searchsorted(ordered, requested)
    up_to = torch.searchsorted(ordered, requested, right=True)
    return below + (up_to - below).to(values.dtype) / 2
