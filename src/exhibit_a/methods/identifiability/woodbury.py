"""Lets rows that see almost the same keys share one factorisation (Woodbury's identity).

Let B be an orthonormal basis for the values, (key, width). A row that sees the keys S needs
G⁻¹z with G = B[S]ᵀB[S] and z = row @ B. Rows of a block see almost the same keys: their union U
without at most a few contested keys D. With the Cholesky factor B[U]ᵀB[U] = LLᵀ and W = B[D]L⁻ᵀ,

    G  =  L (I − WᵀW) Lᵀ,        (I − WᵀW)⁻¹  =  I + Wᵀ(I − WWᵀ)⁻¹W.

So a block needs one factor of width × width, and a key set one as small as the contested keys:

1. B[U]ᵀB[U] is updated from the block before, by the keys gained and lost, and factorised;
2. W, the factor M of I − WWᵀ = MMᵀ for every key set, over the keys that the set lacks, and
   Z = M⁻¹W. Where the sets are a chain, a set lacks the first few contested keys: its factor is a
   leading block of one factor for all, and its Z are the first rows of one Z;
3. y = L⁻¹z for all rows of the block;
4. y ← y + Zᵀ(Zy), over the rows of Z that belong to the set;
5. G⁻¹z = L⁻ᵀy.

Removing keys loses digits exactly where the smaller set is nearly dependent; the smallest pivots
of both factors show where, and such rows must be computed in another way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.ranks import Block, KeySets


@dataclass(frozen=True, eq=False)
class Solver:
    """Solves for the rows of one block; heads may have values of their own or share them."""

    block: Block
    inverse: Float[Tensor, "distinct width width"] | None  # L⁻¹; None where G = I
    reduced: Float[Tensor, "distinct any contested width"]  # Z: one for all sets, or one for each
    pivots: Float[Tensor, "distinct set"]  # the smallest of G, squared; zero where there is none

    def coefficients(
        self,
        products: Float[Tensor, "head row width"],
        owner: Int[Tensor, " head"],
        rows: slice,
    ) -> Float[Tensor, "head row width"]:
        """G⁻¹z for a slice of the block's rows; ``products`` is z, head h has values owner[h]."""
        if self.inverse is None:
            return products
        inverse, set_of_row = self.inverse[owner], self.block.set_of_row[rows]
        half = products @ inverse.mT  # correction step 3
        if self.block.chain:  # correction step 4
            reduced = self.reduced[owner, 0]
            lacking = (half @ reduced.mT) * self.block.absent[set_of_row]
            half = half + lacking @ reduced
        else:
            by_row = self.reduced[owner][:, set_of_row]
            half = half + (by_row.mT @ (by_row @ half.unsqueeze(-1))).squeeze(-1)
        return half @ inverse  # correction step 5

    @cached_property
    def amplification(self) -> Float[Tensor, " distinct"]:
        """How much an error of z may grow at most: √tr G⁻¹, over the sets of the block."""
        if self.inverse is None:
            return self.pivots.new_full((len(self.pivots),), self.reduced.shape[-1] ** 0.5)
        removed = (self.reduced @ self.inverse.unsqueeze(1)).square().sum((-2, -1)).amax(-1)
        return (self.inverse.square().sum((-2, -1)) + removed).sqrt()


def solvers(
    basis: Float[Tensor, "distinct key width"], sets: KeySets, requested: Bool[Tensor, " set"]
) -> Iterator[Solver]:
    """One solver for every block of the sets requested.

    Columns of zeros in the basis are directions that were dropped. Where there is but one set, the
    basis is orthonormal on it.
    """
    if len(sets) == 1:
        (block,) = sets.blocks()
        yield Solver(block, None, basis[:, None, :0], basis.new_ones(len(basis), 1))
        return
    gram = torch.diag_embed((basis == 0).all(1).to(basis))
    identity = torch.eye(basis.shape[-1], dtype=basis.dtype, device=basis.device)
    for block in sets.blocks(requested):
        # correction step 1
        for keys, sign in ((block.gained, 1), (block.lost, -1)):
            if len(keys):
                gram = torch.baddbmm(gram, basis[:, keys].mT, basis[:, keys], alpha=sign)
        factor, smallest = _cholesky(gram)
        inverse = torch.linalg.solve_triangular(factor, identity.expand_as(gram), upper=False)
        # correction step 2
        contested = basis[:, block.contested] @ inverse.mT
        reduced, pivots = (_one_for_all if block.chain else _one_for_each)(contested, block.absent)
        yield Solver(block, inverse, reduced, (smallest * pivots).square())


def _one_for_all(
    contested: Float[Tensor, "distinct contested width"], absent: Bool[Tensor, "set contested"]
) -> tuple[Float[Tensor, "distinct 1 contested width"], Float[Tensor, "distinct set"]]:
    """Z for sets that are a chain, and the smallest of the leading pivots that each set needs.

    Where I − WWᵀ has no factor, its leading block up to there still has one.
    """
    identity = torch.eye(contested.shape[1], dtype=contested.dtype, device=contested.device)
    matrix = identity - contested @ contested.mT
    place = torch.arange(len(identity), device=contested.device)
    end = matrix.new_full((len(matrix), 1), len(identity))
    factor, failed = torch.linalg.cholesky_ex(matrix)
    while bool(failed.any()):
        end = torch.where(failed.unsqueeze(-1) > 0, failed.unsqueeze(-1) - 1.0, end).minimum(end)
        beyond = place >= end
        matrix = torch.where(beyond.unsqueeze(-1) | beyond.unsqueeze(-2), identity, matrix)
        factor, failed = torch.linalg.cholesky_ex(matrix)
    pivots = torch.where(place < end, factor.diagonal(dim1=-2, dim2=-1), 0.0)
    ones = pivots.new_ones(len(pivots), 1)
    smallest = torch.cat([ones, pivots], -1).cummin(-1).values[:, absent.sum(-1)]
    reduced = torch.linalg.solve_triangular(factor, contested, upper=False)
    return reduced.unsqueeze(1), smallest


def _one_for_each(
    contested: Float[Tensor, "distinct contested width"], absent: Bool[Tensor, "set contested"]
) -> tuple[Float[Tensor, "distinct set contested width"], Float[Tensor, "distinct set"]]:
    """Z for every set by itself, with zeros for the keys that it has, and its smallest pivot."""
    both = absent.unsqueeze(-1) & absent.unsqueeze(-2)
    identity = torch.eye(contested.shape[1], dtype=contested.dtype, device=contested.device)
    factors, smallest = _cholesky(identity - (contested @ contested.mT).unsqueeze(1) * both)
    lacking = contested.unsqueeze(1) * absent.unsqueeze(-1)
    return torch.linalg.solve_triangular(factors, lacking, upper=False), smallest


def _cholesky(
    matrix: Float[Tensor, "distinct *set width width"],
) -> tuple[Float[Tensor, "distinct *set width width"], Float[Tensor, "distinct any"]]:
    """The factor and its smallest pivot, which is zero where there is no factor."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    pivot = factor.diagonal(dim1=-2, dim2=-1).amin(-1)
    smallest = torch.where(failed == 0, pivot, 0.0)
    return factor, smallest.unsqueeze(-1) if smallest.ndim == 1 else smallest
