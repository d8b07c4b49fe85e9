"""Which other attention rows are valid and give the same head output?

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
    here = row.detach().double().cpu().numpy()
    equations = np.column_stack([values.detach().double().cpu().numpy(), np.ones(len(here))])
    scale = np.abs(equations[:, :-1]).max(initial=0) or 1.0
    equations[:, :-1] /= scale
    basis, strength, _ = np.linalg.svd(equations, full_matrices=False)
    basis = basis[:, strength > DEPENDENT * strength[0]]
    freedom = len(here) - basis.shape[1]
    if freedom == 0:
        alone = torch.from_numpy(here)
        return Polytope(alone, 0, alone, alone, alone.expand(samples, -1), alone, 0.0, 0.0)
    unit = np.eye(len(here))
    least = np.stack([_corner(basis, here, axis) for axis in unit])
    most = np.stack([_corner(basis, here, -axis) for axis in unit])
    objectives = torch.randn(samples, len(here), dtype=torch.float64, generator=generator).numpy()
    corners = [_corner(basis, here, objective) for objective in objectives]
    away = _corner(basis, here, here)
    farthest = _climb(
        basis, here, max([*least, *most, *corners, away], key=lambda it: _gap(it, here))
    )
    every = np.stack([*least, *most, *corners, away, farthest])
    residual = float(np.abs((every - here) @ equations).max())
    if residual > SAME_OUTPUT:
        raise BrokenInvariantError(
            f"An alternative row changes the head output by {residual:.1e} of its scale, more than "
            f"{SAME_OUTPUT:.0e}; the linear programs could not be solved well enough."
        )
    return Polytope(
        row=torch.from_numpy(here),
        freedom=freedom,
        low=torch.from_numpy(np.minimum(least.diagonal(), here)),
        high=torch.from_numpy(np.maximum(most.diagonal(), here)),
        corners=torch.from_numpy(np.stack(corners)) if corners else torch.empty(0, len(here)),
        farthest=torch.from_numpy(farthest),
        distance=_gap(farthest, here),
        residual=residual,
    )


def _gap(there: Vector, here: Vector) -> float:
    """Total variation distance."""
    return float(np.abs(there - here).sum() / 2)


def _climb(basis: Vector, here: Vector, start: Vector) -> Vector:
    """A corner at least as far from ``here`` as ``start``, with none farther in its direction."""
    while True:
        further = _corner(basis, here, -np.sign(start - here))
        if _gap(further, here) <= _gap(start, here) + SAME_OUTPUT:
            return start
        start = further


def _corner(basis: Vector, here: Vector, objective: Vector) -> Vector:
    """The valid row with the smallest ``objective``, polished."""
    wanted = basis.T @ here
    found = linprog(
        objective, A_eq=basis.T, b_eq=wanted, bounds=(0, None), method="highs", options=TIGHT
    )
    if found.x is None:  # the row itself is valid, so only rounding can be in the way
        return here
    corner: Vector = found.x
    used = corner > 0
    corner[used] += np.linalg.lstsq(basis[used].T, wanted - basis.T @ corner, rcond=None)[0]
    return corner.clip(min=0)
