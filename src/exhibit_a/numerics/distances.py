"""How far apart are two distributions, and how sure is an average?

Answers are compared by total variation, ½ Σ|p − q|: the most by which the two can disagree about
any event. Attention rows are compared by the Jensen–Shannon divergence with the natural logarithm,
½ KL(p‖m) + ½ KL(q‖m) with m = ½(p + q), which is 0 for equal rows and at most ln 2, reached when
the rows share no key (Jain & Wallace, 2019). Averages over examples get a bootstrap interval, and
paired differences a sign-flip p-value: if it does not matter which of two treatments an example
got, the sign of every difference is a coin toss.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

FARTHEST = math.log(2)  # the largest Jensen–Shannon divergence there is
RESAMPLES = 2000
COIN_TOSSES = 9999

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for every eye


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


def farthest_divergence(
    row: Float[Tensor, "*rows key"], visible: Bool[Tensor, "*others key"]
) -> Float[Tensor, "*rows"]:
    """The largest divergence that any distribution over the visible keys can have from each row.

    Divergence is convex, so the maximum lies in a corner: all weight on the least attended key.
    """
    least = row.masked_fill(~visible, torch.inf).argmin(-1, keepdim=True)
    return jensen_shannon(torch.zeros_like(row).scatter(-1, least, 1.0), row)


def bootstrap_interval(
    values: Float[Tensor, "*kinds example"], *, seed: int, level: float = 0.95
) -> Float[Tensor, "*kinds 2"]:
    """Where the mean over examples lies when they are drawn again; NaN examples are left out."""
    known = ~values.isnan()
    count = values.shape[-1]
    seeded = torch.Generator().manual_seed(seed)
    drawn = torch.randint(count, (RESAMPLES, count), generator=seeded)
    times = torch.zeros(RESAMPLES, count, dtype=torch.float64)
    times.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
    times = times.to(values.device)
    sums = values.nan_to_num().double() @ times.T
    means = sums / (known.double() @ times.T)
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return means.nanquantile(ends.to(means.device), dim=-1).movedim(0, -1).to(values.dtype)


def sign_flip_p_value(
    differences: Float[Tensor, "*kinds example"], *, seed: int
) -> Float[Tensor, "*kinds"]:
    """How often a mean difference this large, either way, comes out when signs are coin tosses."""
    seeded = torch.Generator().manual_seed(seed)
    shape = (COIN_TOSSES, differences.shape[-1])
    signs = torch.randint(2, shape, generator=seeded).to(differences.device) * 2.0 - 1.0
    observed = differences.double().sum(-1, keepdim=True).abs()
    tossed = (differences.double() @ signs.double().T).abs()
    as_large = (tossed >= observed - 1e-9).sum(-1)
    return ((1 + as_large) / (1 + COIN_TOSSES)).to(differences.dtype)


def _relative(row: Tensor, middle: Tensor) -> Tensor:
    """Σ row · log(row / middle), with 0 · log 0 = 0 and a gradient that stays finite there."""
    tiny = torch.finfo(row.dtype).tiny
    return (row * (row.clamp_min(tiny).log() - middle.clamp_min(tiny).log())).sum(-1)
