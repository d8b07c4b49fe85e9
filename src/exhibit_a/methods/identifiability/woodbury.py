"""What does a row that lacks a few keys need instead of a factorisation of its own?

Let B be an orthonormal basis for the values, (key, width). A row that sees the keys S needs
G⁻¹z with G = B[S]ᵀB[S] and z = row @ B. Rows of a block see almost the same keys: their union U
without at most a few contested keys D. With the Cholesky factor B[U]ᵀB[U] = LLᵀ and W = B[D]L⁻ᵀ,

    G  =  L (I − WᵀW) Lᵀ,        (I − WᵀW)⁻¹  =  I + Wᵀ(I − WWᵀ)⁻¹W.

So a block pays for one factor of width × width, and a row for one as small as the contested keys.
Removing keys loses digits exactly where the smaller set is nearly dependent; the smallest pivots
of both factors say where, and such rows are not to be trusted.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import KeySets


def coefficients(
    seen: Float[Tensor, "head query width"],
    basis: Float[Tensor, "own key width"],
    owner: Int[Tensor, " head"],
    sets: KeySets,
    asked: Bool[Tensor, " set"],
) -> tuple[Float[Tensor, "head query width"], Float[Tensor, "head set"]]:
    """G⁻¹z for every row, and the smallest squared pivot of G on every key set.

    ``seen`` is z. Heads may share values: head h uses ``basis[owner[h]]``. Columns of zeros in the
    basis are directions that were dropped. Blocks in which no set is ``asked`` for stay zero.
    """
    found = torch.zeros_like(seen)
    pivots = seen.new_zeros(len(seen), len(sets))
    gram = torch.diag_embed((basis == 0).all(1).to(seen))
    for block in sets.blocks:
        for keys, sign in ((block.gained, 1), (block.lost, -1)):
            if len(keys):
                gram = torch.baddbmm(gram, basis[:, keys].mT, basis[:, keys], alpha=sign)
        if not bool(asked[block.sets].any()):
            continue
        factor, smallest = _cholesky(gram)
        half = torch.linalg.solve_triangular(factor[owner], seen[:, block.rows].mT, upper=False).mT
        if len(block.contested):
            contested = basis[:, block.contested].mT
            rim = torch.linalg.solve_triangular(factor, contested, upper=False).mT
            inner, inner_smallest = _lacking(rim, block.absent)
            smallest = smallest * inner_smallest
            lacked = (half @ rim[owner].mT) * block.absent[block.set_of_row]
            its_own = inner[owner][:, block.set_of_row]
            half = (
                half + torch.cholesky_solve(lacked.unsqueeze(-1), its_own).squeeze(-1) @ rim[owner]
            )
        solved = torch.linalg.solve_triangular(factor[owner].mT, half.mT, upper=True)
        found[:, block.rows] = solved.mT
        pivots[:, block.sets] = smallest[owner].square()
    return found, pivots


def _lacking(
    rim: Float[Tensor, "own contested width"], absent: Tensor
) -> tuple[Float[Tensor, "own set contested contested"], Float[Tensor, "own set"]]:
    """Factors of I − WWᵀ for every set, W being the contested keys that the set lacks."""
    both = absent.unsqueeze(-1) & absent.unsqueeze(-2)
    identity = torch.eye(rim.shape[1], dtype=rim.dtype, device=rim.device)
    return _cholesky(identity - (rim @ rim.mT).unsqueeze(1) * both)


def _cholesky(
    matrix: Float[Tensor, "own *set width width"],
) -> tuple[Float[Tensor, "own *set width width"], Float[Tensor, "own any"]]:
    """The factor and its smallest pivot, which is zero where there is no factor."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    pivot = factor.diagonal(dim1=-2, dim2=-1).amin(-1)
    smallest = torch.where(failed == 0, pivot, 0.0)
    return factor, smallest.unsqueeze(-1) if smallest.ndim == 1 else smallest
