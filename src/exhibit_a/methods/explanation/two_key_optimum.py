"""Finds the row farthest from the model's own where the answer depends on one number of the row.

For a row a the answer depends on a·s, which must stay between two ends. Divergence from the model's
own row is convex, so its maximum over the polytope {a ≥ 0, Σa = 1, low ≤ a·s ≤ high} lies in a
corner, and corners have at most two keys: single keys whose score lies inside, and pairs of keys
whose scores lie on either side of one end. They are all tried, so the optimum is exact.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.numerics.distances import jensen_shannon


def farthest_corner(
    row: Float[Tensor, " key"], score: Float[Tensor, " key"], low: float, high: float
) -> Float[Tensor, " key"]:
    """The distribution a farthest from ``row`` with low ≤ a · score ≤ high, exactly."""
    corners = [torch.eye(len(row), dtype=row.dtype)[(score >= low) & (score <= high)]]
    for end in (low, high):
        under, over = torch.where((score < end)[:, None] & (score > end)[None, :])
        share = (end - score[under]) / (score[over] - score[under])
        pairs = torch.zeros(len(share), len(row), dtype=row.dtype)
        pairs.scatter_(1, under[:, None], 1 - share[:, None])
        corners.append(pairs.scatter_(1, over[:, None], share[:, None]))
    every = torch.cat(corners)
    if not len(every):
        raise NotComputableError("No distribution over these keys keeps the answer in its range.")
    return every[jensen_shannon(every, row).argmax()]
