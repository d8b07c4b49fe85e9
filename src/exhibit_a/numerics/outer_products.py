"""Weighted sums of m mᵀ, for the same vectors m and many sets of weights.

    Σ_k w_k m_k m_kᵀ   for every row w of weights

is one product of all rows with the entries of m mᵀ, key by key. The matrices are symmetric: half of
the entries are enough.
"""

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

Vectors = Float[Tensor, "*head key width"]
Halves = Float[Tensor, "*head key entry"]


def halves_of(vectors: Vectors) -> Halves:
    """The entries of m mᵀ of every key, on and below the diagonal."""
    row, column = torch.tril_indices(vectors.shape[-1], vectors.shape[-1], device=vectors.device)
    return vectors[..., row] * vectors[..., column]


def as_matrices(sums: Float[Tensor, "*row entry"], width: int) -> Float[Tensor, "*row width width"]:
    """Sums of such entries as whole matrices.

    >>> from exhibit_a.numerics.outer_products import as_matrices, halves_of
    >>> weights, vectors = torch.rand(5, 7), torch.rand(7, 3)
    >>> sums = as_matrices(weights @ halves_of(vectors), 3)
    >>> torch.allclose(sums, torch.einsum("rk,ki,kj->rij", weights, vectors, vectors))
    True
    """
    places = _places(width).to(sums.device).expand(*sums.shape[:-1], -1)
    return sums.gather(-1, places).view(*sums.shape[:-1], width, width)


@cache
def _places(width: int) -> Int[Tensor, " _entry"]:
    """Where the entries of a matrix stand among those of its half."""
    row, column = torch.arange(width)[:, None], torch.arange(width)
    larger, smaller = torch.maximum(row, column), torch.minimum(row, column)
    return (larger * (larger + 1) // 2 + smaller).flatten()
