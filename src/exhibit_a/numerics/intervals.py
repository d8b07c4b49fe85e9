"""How sure an average is.

Averages over examples get a bootstrap interval, and paired differences a sign-flip p-value: if it
does not matter which of two treatments an example got, the sign of every difference is a coin toss.
A share gets Wilson's interval. Of many p-values at once some are small by chance: adjusted ones
(Benjamini and Hochberg, 1995) say how large a part of those as small as this may be false.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.numerics.precision import exact_device, to_float64
from exhibit_a.numerics.seeds import generator

RESAMPLES = 2000  # of the examples
LEVEL = 0.95  # of an interval
COIN_TOSSES = 9999


def bootstrap_interval(
    values: Float[Tensor, "*kinds example"], *, seed: int
) -> Float[Tensor, "*kinds 2"]:
    """Where the mean over examples lies when they are drawn again; NaN examples are left out."""
    known = ~values.isnan()
    count = values.shape[-1]
    seeded = generator(seed)
    drawn = torch.randint(count, (RESAMPLES, count), generator=seeded)
    times = torch.zeros(RESAMPLES, count, dtype=torch.float64)
    times.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
    times = times.to(exact_device(values.device))
    sums = to_float64(values.nan_to_num()) @ times.T
    means = sums / (to_float64(known) @ times.T)
    ends = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
    bounds = means.nanquantile(ends.to(means.device), dim=-1).movedim(0, -1)
    return bounds.to(values.dtype).to(values.device)


def sign_flip_p_value(
    differences: Float[Tensor, "*kinds example"], *, seed: int
) -> Float[Tensor, "*kinds"]:
    """How often a mean difference this large, either way, comes out when signs are coin tosses."""
    seeded = generator(seed)
    shape = (COIN_TOSSES, differences.shape[-1])
    signs = torch.randint(2, shape, generator=seeded).to(differences.device) * 2.0 - 1.0
    observed = to_float64(differences).sum(-1, keepdim=True).abs()
    tossed = (to_float64(differences) @ to_float64(signs).T).abs()
    as_large = (tossed >= observed - 1e-9).sum(-1)
    return ((1 + as_large) / (1 + COIN_TOSSES)).to(differences.dtype).to(differences.device)


def wilson(right: Float[Tensor, "*batch"], count: int) -> Float[Tensor, "*batch bound"]:
    """The 95 % interval of a share of ``count`` (Wilson), which also holds near 0 and 1."""
    z = 1.959964
    middle = (right + z * z / (2 * count)) / (1 + z * z / count)
    spread = z * (right * (1 - right) / count + z * z / (4 * count**2)).sqrt() / (1 + z * z / count)
    return torch.stack([middle - spread, middle + spread], -1).clamp(0, 1)


def discovery_rates(p_values: Float[Tensor, " kind"]) -> Float[Tensor, " kind"]:
    """The share of false discoveries that must be borne for each p-value to count as one.

    >>> discovery_rates(torch.tensor([0.01, 0.04, 0.03, 0.5]))
    tensor([0.0400, 0.0533, 0.0533, 0.5000])
    """
    # imported here: that alone is a third of a second, which other commands need not wait for
    from scipy.stats import false_discovery_control

    rates = torch.from_numpy(false_discovery_control(to_float64(p_values).numpy(force=True)))
    return rates.to(p_values)
