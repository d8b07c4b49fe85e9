"""How can rows that see almost the same keys share one factorisation?

Let B be an orthonormal basis for the values, (key, width). A row that sees the keys S needs
G⁻¹z with G = B[S]ᵀB[S] and z = row @ B. Rows of a block see almost the same keys: their union U
without at most a few contested keys D. With the Cholesky factor B[U]ᵀB[U] = LLᵀ and W = B[D]L⁻ᵀ,

    G  =  L (I − WᵀW) Lᵀ,        (I − WᵀW)⁻¹  =  I + Wᵀ(I − WWᵀ)⁻¹W.

So a block needs one factor of width × width, and a row one as small as the contested keys:

1. B[U]ᵀB[U] is updated from the block before, by the keys gained and lost, and factorised;
2. y = L⁻¹z for all rows of the block;
3. W, and the factor of I − WWᵀ of every key set, with zeros for the keys that the set has;
4. y ← y + Wᵀ(I − WWᵀ)⁻¹Wy;
5. G⁻¹z = L⁻ᵀy.

Removing keys loses digits exactly where the smaller set is nearly dependent; the smallest pivots
of both factors show where, and such rows must be computed in another way.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import KeySets


def coefficients(
    products: Float[Tensor, "head query width"],
    basis: Float[Tensor, "distinct key width"],
    owner: Int[Tensor, " head"],
    sets: KeySets,
    asked: Bool[Tensor, " set"],
) -> tuple[Float[Tensor, "head query width"], Float[Tensor, "head set"]]:
    """G⁻¹z for every row, and the smallest squared pivot of G on every key set.

    ``products`` is z. Heads may share values: head h uses ``basis[owner[h]]``. Columns of zeros in
    the basis are directions that were dropped. Blocks in which no set is ``asked`` for stay zero.
    """
    solution = torch.zeros_like(products)
    pivots = products.new_zeros(len(products), len(sets))
    gram = torch.diag_embed((basis == 0).all(1).to(products))
    for block in sets.blocks:
        # step 1
        for keys, sign in ((block.gained, 1), (block.lost, -1)):
            if len(keys):
                gram = torch.baddbmm(gram, basis[:, keys].mT, basis[:, keys], alpha=sign)
        if not bool(asked[block.sets].any()):
            continue
        factor, smallest = _cholesky(gram)
        half = torch.linalg.solve_triangular(  # step 2
            factor[owner], products[:, block.rows].mT, upper=False
        ).mT
        if len(block.contested):
            # step 3
            contested = basis[:, block.contested].mT
            reduced = torch.linalg.solve_triangular(factor, contested, upper=False).mT
            inner, inner_smallest = _contested_factors(reduced, block.absent)
            smallest = smallest * inner_smallest
            # step 4
            absent_products = (half @ reduced[owner].mT) * block.absent[block.set_of_row]
            row_factors = inner[owner][:, block.set_of_row]
            correction = torch.cholesky_solve(absent_products.unsqueeze(-1), row_factors)
            half = half + correction.squeeze(-1) @ reduced[owner]
        # step 5
        solved = torch.linalg.solve_triangular(factor[owner].mT, half.mT, upper=True)
        solution[:, block.rows] = solved.mT
        pivots[:, block.sets] = smallest[owner].square()
    return solution, pivots


def _contested_factors(
    reduced: Float[Tensor, "distinct contested width"], absent: Bool[Tensor, "set contested"]
) -> tuple[Float[Tensor, "distinct set contested contested"], Float[Tensor, "distinct set"]]:
    """Factors of I − WWᵀ for every set, W being the contested keys that are absent from it."""
    both = absent.unsqueeze(-1) & absent.unsqueeze(-2)
    identity = torch.eye(reduced.shape[1], dtype=reduced.dtype, device=reduced.device)
    return _cholesky(identity - (reduced @ reduced.mT).unsqueeze(1) * both)


def _cholesky(
    matrix: Float[Tensor, "distinct *set width width"],
) -> tuple[Float[Tensor, "distinct *set width width"], Float[Tensor, "distinct any"]]:
    """The factor and its smallest pivot, which is zero where there is no factor."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    pivot = factor.diagonal(dim1=-2, dim2=-1).amin(-1)
    smallest = torch.where(failed == 0, pivot, 0.0)
    return factor, smallest.unsqueeze(-1) if smallest.ndim == 1 else smallest
