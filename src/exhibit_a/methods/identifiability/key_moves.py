"""Finds how a model's own keys can move an attention row, and whether the output shows it.

Moving the query q of a row a = softmax(Kq) moves the row along B = (diag a − aaᵀ)K and its output
along VᵀB = Cov_a(V, K). For every row:

1. B, or where squares keep enough digits G = BᵀB and VᵀB alone. Their sums over keys are products
   of the weights with kkᵀ and vkᵀ, the same for all rows: with c = Σ a k and s = Σ a²,

       G = Σ a² kkᵀ − c tᵀ − t cᵀ,  t = Σ a² k − s c / 2,        VᵀB = Σ a vkᵀ − (Σ a v) cᵀ.

   Rounding of the sums is as small as that of B compared with c, which the tolerance allows for.
2. the rank of B, the reach of the keys, and an orthonormal basis Q of its columns, so that VᵀQ has
   the rank of VᵀB. Where G has a factor LLᵀ that surely shows all directions, VᵀQ = VᵀB L⁻ᵀ;
   the other rows take the eigenvectors of G, or of BBᵀ where there are few keys, and B itself its
   singular vectors.
3. the rank of VᵀQ, the moves that the output shows;
4. the smallest singular value of VᵀQ over its largest: how visible the least visible move is. 0
   where some move is not.

Neither B nor VᵀQ depends on what all keys or values have in common, but the rounding of K and V
does: it is as large as they are. So the tolerance is relative to their size with that part. Weights
that sum to one but for their own rounding are made to do so: else what all values have in common
would show moves that it does not. (Where weights rest on a sink, they sum to less.)
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.ranks import EXACT, Tolerance, factorised, singular_values
from exhibit_a.numerics.outer_products import as_matrices, halves_of

RowWeights = Float[Tensor, "head row key"]
HeadKeys = Float[Tensor, "head key d_query"]
HeadValues = Float[Tensor, "head key d_head"]


class KeyMoves(NamedTuple):
    """What the keys can do to every row."""

    unseen: Int[Tensor, "head row"]  # dimensions of moves that the output does not show
    reach: Int[Tensor, "head row"]  # dimensions of all moves
    visibility: Float[Tensor, "head row"]  # least visible move over the most visible


class _Sums(NamedTuple):
    """What the rows of some heads add up over their keys."""

    gram: Float[Tensor, "head row d_query d_query"]  # BᵀB
    covariance: Float[Tensor, "head row d_head d_query"]  # VᵀB


def key_moves(
    weights: RowWeights,
    seen: Bool[Tensor, "row key"],
    values: HeadValues,
    keys: HeadKeys,
    tolerance: Tolerance,
) -> KeyMoves:
    """The moves of every row; ``weights`` are zero where nothing is seen."""
    sizes = seen.sum(-1, keepdim=True)
    lines = torch.tensor([[tolerance.of(size)] for size in sizes.flatten().tolist()]).to(weights)
    finest = float(lines.min())
    sums = weights.sum(-1, keepdim=True)
    weights = torch.where((sums - 1).abs() <= lines, weights / sums, weights)
    common_key = weights @ keys
    rounding = weights.norm(dim=-1, keepdim=True) * common_key.norm(dim=-1, keepdim=True)
    if finest**2 < 1e3 * EXACT:
        kept, output_moves = _by_moves(weights, values, keys, lines, rounding)
    elif keys.shape[1] < keys.shape[2]:
        kept, output_moves = _by_pairs(weights, values, keys, lines, rounding)
    else:
        kept, output_moves = _by_sums(_sums(weights, values, keys), lines, rounding)
    reach = kept.sum(-1)
    # step 3
    strength = singular_values(output_moves, finest)
    common_value = (seen.to(values) @ values).norm(dim=-1, keepdim=True)
    value_rounding = common_value / sizes.clamp_min(1).sqrt()
    visible = (strength > lines * (strength[..., :1] + value_rounding)).sum(-1)
    # step 4; there can be more moves than outputs
    last = (reach - 1).clamp_min(0).unsqueeze(-1)
    padded = torch.nn.functional.pad(strength, (0, 1 + int(last.max())))
    least = padded.gather(-1, last).squeeze(-1)
    ratio = least / strength[..., 0].clamp_min(torch.finfo(strength.dtype).tiny)
    ratio = torch.where(visible < reach, 0.0, ratio)  # what is left of it is rounding
    return KeyMoves(reach - visible, reach, torch.where(reach > 0, ratio, 1.0))


def _by_moves(
    weights: RowWeights, values: HeadValues, keys: HeadKeys, lines: Tensor, rounding: Tensor
) -> tuple[Tensor, Tensor]:
    """Which directions B has, and VᵀQ; by the singular vectors of B."""
    moves = weights.unsqueeze(-1) * (keys.unsqueeze(1) - (weights @ keys).unsqueeze(2))  # step 1
    directions, strength, _ = torch.linalg.svd(moves, full_matrices=False)  # step 2
    kept = strength > lines * (strength[..., :1] + rounding)
    return kept, values.mT.unsqueeze(1) @ (directions * kept.unsqueeze(-2))


def _by_pairs(
    weights: RowWeights, values: HeadValues, keys: HeadKeys, lines: Tensor, rounding: Tensor
) -> tuple[Tensor, Tensor]:
    """The same of few keys, by the eigenvectors of BBᵀ."""
    common_key = weights @ keys
    common = common_key @ keys.mT  # c · k of every row and key
    size = common_key.square().sum(-1)[..., None, None]
    products = (keys @ keys.mT).unsqueeze(1) - common.unsqueeze(-1) - common.unsqueeze(-2) + size
    squares, directions = torch.linalg.eigh(
        products * weights.unsqueeze(-1) * weights.unsqueeze(-2)
    )
    largest = squares[..., -1:].clamp_min(0).sqrt()
    kept = squares > (lines * (largest + rounding)).square()
    return kept, values.mT.unsqueeze(1) @ (directions * kept.unsqueeze(-2))


def _sums(weights: RowWeights, values: HeadValues, keys: HeadKeys) -> _Sums:
    """BᵀB and VᵀB of every row (step 1)."""
    heads, rows, width = *weights.shape[:2], keys.shape[-1]
    squares, common_key = weights.square(), weights @ keys
    tilt = squares @ keys - squares.sum(-1, keepdim=True) * common_key / 2

    common, averaged = common_key.flatten(0, 1), (weights @ values).flatten(0, 1)
    gram = as_matrices(squares @ halves_of(keys), width).flatten(0, 1)
    gram.baddbmm_(
        torch.stack([common, tilt.flatten(0, 1)], -1),
        torch.stack([tilt.flatten(0, 1), common], -2),
        alpha=-1,
    )
    pairs = (values.unsqueeze(-1) * keys.unsqueeze(-2)).flatten(2)
    covariance = (weights @ pairs).view(heads * rows, -1, width)
    covariance.baddbmm_(averaged.unsqueeze(-1), common.unsqueeze(-2), alpha=-1)
    return _Sums(gram.view(heads, rows, width, width), covariance.view(heads, rows, -1, width))


def _by_sums(sums: _Sums, lines: Tensor, rounding: Tensor) -> tuple[Tensor, Tensor]:
    """Which directions B has, and VᵀQ (step 2)."""
    gram, covariance = sums
    lines = lines.expand(rounding.shape)
    factor = factorised(gram)
    largest = gram.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True).clamp_min(0).sqrt()  # at most
    smallest = factor.inverse.square().sum((-2, -1)).rsqrt().unsqueeze(-1)  # at least
    clear = (smallest > 2 * lines * (largest + rounding)).squeeze(-1) & ~factor.failed
    kept = torch.ones(gram.shape[:-1], dtype=torch.bool, device=gram.device)
    output_moves = covariance @ factor.inverse.mT
    if not bool(clear.all()):
        rest = ~clear
        squares, turn = torch.linalg.eigh(gram[rest])
        line = lines[rest] * (squares[:, -1:].clamp_min(0).sqrt() + rounding[rest])
        kept[rest] = squares > line.square()
        unit = torch.where(kept[rest], squares, torch.inf).rsqrt()
        output_moves[rest] = covariance[rest] @ (turn * unit.unsqueeze(-2))
    return kept, output_moves
