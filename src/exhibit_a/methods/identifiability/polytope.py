"""Finds other attention rows that are valid and give the same head output.

The rows a′ with a′ ≥ 0, Σa′ = Σa and a′V = aV form a polytope around the observed row a. Each of
its corners is an attention row that would have been just as good an explanation of the output.

1. The equations a′[V, 1] = a[V, 1] are written in an orthonormal basis of the columns of [V, 1], so
   that a linear program meets them equally well however unlike the columns are.
2. Minimising and maximising one entry at a time gives the interval that each weight can take, and
   2n corners; random objectives give corners that favour no key.
3. The corner farthest from a in total variation is sought from the farthest one found: moving on
   along the sign of a′ − a never comes closer, and stops when it gains nothing.

Corners are polished to meet the equations to rounding. The farthest corner found is a lower bound:
finding the farthest of all is a hard problem.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.numerics.precision import to_float64

DEPENDENT = 1e-12  # singular values of [V, 1] below this share of the largest impose nothing
SAME_OUTPUT = 1e-9  # how well an alternative must reproduce the output, in units of the values
TIGHT = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
    "presolve": False,
}

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Polytope:
    """Rows that are as good as the observed one, over the keys it may see."""

    row: Float[Tensor, " key"]
    freedom: int  # dimensions in which the equations let the row move
    low: Float[Tensor, " key"]
    high: Float[Tensor, " key"]
    corners: Float[Tensor, "sample key"]
    farthest: Float[Tensor, " key"]
    distance: float  # total variation between the row and the farthest corner found
    residual: float  # largest change of an output component, over the largest value

    @property
    def unique(self) -> bool:
        """Whether the observed row is the only valid one."""
        return bool((self.high - self.low).max() < SAME_OUTPUT)


def polytope(
    row: Float[Tensor, " key"],
    values: Float[Tensor, "key d_head"],
    *,
    samples: int = 16,
    generator: torch.Generator | None = None,
) -> Polytope:
    """Explore the valid rows with the same output as ``row``; ``samples`` corners at random."""
    observed = to_float64(row.detach()).cpu().numpy()
    equations = np.column_stack([to_float64(values.detach()).cpu().numpy(), np.ones(len(observed))])
    # step 1
    scale = np.abs(equations[:, :-1]).max(initial=0) or 1.0
    equations[:, :-1] /= scale
    basis, strength, _ = np.linalg.svd(equations, full_matrices=False)
    basis = basis[:, strength > DEPENDENT * strength[0]]
    freedom = len(observed) - basis.shape[1]
    if freedom == 0:
        only = torch.from_numpy(observed)
        return Polytope(only, 0, only, only, only.expand(samples, -1), only, 0.0, 0.0)
    # step 2
    unit = np.eye(len(observed))
    least = np.stack([_corner(basis, observed, axis) for axis in unit])
    most = np.stack([_corner(basis, observed, -axis) for axis in unit])
    drawn = torch.randn(samples, len(observed), dtype=torch.float64, generator=generator)
    corners = [_corner(basis, observed, objective) for objective in drawn.numpy()]
    # step 3
    away = _corner(basis, observed, observed)
    start = max([*least, *most, *corners, away], key=lambda corner: _distance(corner, observed))
    farthest = _climb(basis, observed, start)
    every = np.stack([*least, *most, *corners, away, farthest])
    residual = float(np.abs((every - observed) @ equations).max())
    if residual > SAME_OUTPUT:
        raise BrokenInvariantError(
            f"An alternative row changes the head output by {residual:.1e} of its scale, more than "
            f"{SAME_OUTPUT:.0e}; the linear programs could not be solved well enough."
        )
    return Polytope(
        row=torch.from_numpy(observed),
        freedom=freedom,
        low=torch.from_numpy(np.minimum(least.diagonal(), observed)),
        high=torch.from_numpy(np.maximum(most.diagonal(), observed)),
        corners=torch.from_numpy(np.stack(corners)) if corners else torch.empty(0, len(observed)),
        farthest=torch.from_numpy(farthest),
        distance=_distance(farthest, observed),
        residual=residual,
    )


def _distance(corner: Vector, observed: Vector) -> float:
    """Total variation distance."""
    return float(np.abs(corner - observed).sum() / 2)


def _climb(basis: Vector, observed: Vector, start: Vector) -> Vector:
    """A corner at least as far from the row as ``start``, with none farther in its direction."""
    while True:
        further = _corner(basis, observed, -np.sign(start - observed))
        if _distance(further, observed) <= _distance(start, observed) + SAME_OUTPUT:
            return start
        start = further


def _corner(basis: Vector, observed: Vector, objective: Vector) -> Vector:
    """The valid row with the smallest ``objective``, polished."""
    wanted = basis.T @ observed
    program = linprog(
        objective, A_eq=basis.T, b_eq=wanted, bounds=(0, None), method="highs", options=TIGHT
    )
    if program.x is None:  # the row itself is valid, so only rounding can have prevented a solution
        return observed
    corner: Vector = program.x
    used = corner > 0
    corner[used] += np.linalg.lstsq(basis[used].T, wanted - basis.T @ corner, rcond=None)[0]
    return corner.clip(min=0)
