"""Distances between distributions.

Answers are compared by total variation, ½ Σ|p − q|: the most by which the two can disagree about
any event. Attention rows are compared by the Jensen–Shannon divergence with the natural logarithm,
½ KL(p‖m) + ½ KL(q‖m) with m = ½(p + q), which is 0 for equal rows and at most ln 2, reached when
the rows share no key (Jain & Wallace, 2019). Vectors are compared by the angle between them,
1 − cos = ½ ‖a/‖a‖ − b/‖b‖‖²: the difference of directions loses no digits where they nearly agree,
unlike the subtraction from one.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.numerics.precision import returned, to_float64

FARTHEST = math.log(2)  # the largest Jensen–Shannon divergence there is


def total_variation(
    first: Float[Tensor, "*rows answer"], second: Float[Tensor, "*others answer"]
) -> Float[Tensor, "..."]:
    """Half the absolute difference, summed over the last axis."""
    return 0.5 * (first - second).abs().sum(-1)


def jensen_shannon(
    first: Float[Tensor, "*rows key"], second: Float[Tensor, "*others key"]
) -> Float[Tensor, "..."]:
    """The divergence along the last axis, from 0 to ln 2; keys without weight count nothing.

    Rows that do not sum to one (attention sinks) are compared as they are.
    """
    middle = (first + second) / 2
    return 0.5 * (_relative(first, middle) + _relative(second, middle)).clamp_min(0)


def cosine_distance(
    first: Float[Tensor, "*rows width"], second: Float[Tensor, "*others width"]
) -> Float[Tensor, "..."]:
    """One minus the cosine along the last axis, in double precision; 1 where a vector is zero."""
    device, (first, second) = first.device, (to_float64(first), to_float64(second))
    lengths = first.norm(dim=-1), second.norm(dim=-1)
    tiny = torch.finfo(torch.float64).tiny
    ways = [
        it / size.clamp_min(tiny).unsqueeze(-1)
        for it, size in zip((first, second), lengths, strict=True)
    ]
    distance = 0.5 * (ways[0] - ways[1]).square().sum(-1)
    return returned(torch.where((lengths[0] > 0) & (lengths[1] > 0), distance, 1.0), device)


def farthest_divergence(
    row: Float[Tensor, "*rows key"], visible: Bool[Tensor, "*others key"]
) -> Float[Tensor, "*rows"]:
    """The largest divergence that any distribution over the visible keys can have from each row.

    Divergence is convex, so the maximum lies in a corner: all weight on the least attended key.
    """
    least = row.masked_fill(~visible, torch.inf).argmin(-1, keepdim=True)
    return jensen_shannon(torch.zeros_like(row).scatter(-1, least, 1.0), row)


def _relative(row: Tensor, middle: Tensor) -> Tensor:
    """Σ row · log(row / middle), with 0 · log 0 = 0 and a gradient that stays finite there."""
    tiny = torch.finfo(row.dtype).tiny
    return (row * (row.clamp_min(tiny).log() - middle.clamp_min(tiny).log())).sum(-1)
