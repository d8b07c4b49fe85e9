"""Measures how much a map loses when it is projected.

Measured while the rows are in the cache, from five numbers of each row: the sum and the length of
the raw row a, the sum of the effective row e, and the length and the absolute sum of a − e.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.identifiability.projection import Measured, Projection
from exhibit_a.numerics.precision import exact_device, returned, to_float64


@dataclass(frozen=True, eq=False)
class Lost:
    """What a projection took from its maps; heads in which no row is free lose nothing."""

    null_fraction: Float[Tensor, "*site head query"]  # length of the null part over the whole
    moved: Float[Tensor, "*site head query"]  # half the sum of |raw − effective|
    pearson: Float[Tensor, "*site head"]  # over the pairs that can see each other


class Losses:
    """A measure for ``project``: notes the numbers of all rows, and says what was lost."""

    def __init__(self, attention: Float[Tensor, "*site head query key"]) -> None:
        rows = attention.flatten(0, -3).shape[:2]
        place = exact_device(attention.device)
        self._numbers = torch.zeros(5, *rows, dtype=torch.float64, device=place)

    def __call__(self, part: Measured) -> None:
        """Note the five numbers of some rows."""
        raw, kept, null = part.raw, part.kept, part.null
        numbers = (
            raw.sum(-1),
            torch.linalg.vector_norm(raw, dim=-1),
            kept.sum(-1),
            torch.linalg.vector_norm(null, dim=-1),
            null.abs().sum(-1),
        )
        for rows, number in zip(self._numbers, numbers, strict=True):
            rows[part.heads, part.rows] = to_float64(number)

    def of(self, projection: Projection) -> Lost:
        """What the projection took, once it is done."""
        shape, place = projection.rank.shape, projection.rank.device
        raw_sum, length, kept_sum, null_length, null_sum = self._numbers.reshape(5, *shape)
        pearson = _pearson(
            (raw_sum, kept_sum), length, null_length, int(projection.keys_seen.sum())
        )
        free = (projection.nullity > 0).any(-1).to(pearson.device)
        return Lost(
            returned(null_length / torch.where(length > 0, length, 1.0), place),
            returned(null_sum / 2, place),
            returned(torch.where(free, pearson, 1.0), place),
        )


def _pearson(
    sums: tuple[Float[Tensor, "*site query"], Float[Tensor, "*site query"]],
    length: Float[Tensor, "*site query"],
    null_length: Float[Tensor, "*site query"],
    pairs: int,
) -> Float[Tensor, "*site"]:
    """Correlation of raw and effective weights.

    The product of a row with its projection is ‖row‖² − ‖null part‖², the projection's own square.
    """
    raw_sum, kept_sum = (row_sums.sum(-1) for row_sums in sums)
    raw, kept = length.square().sum(-1), (length.square() - null_length.square()).sum(-1)
    covariance = kept - raw_sum * kept_sum / pairs
    variances = (raw - raw_sum**2 / pairs) * (kept - kept_sum**2 / pairs)
    return covariance / variances.clamp_min(0).sqrt()
