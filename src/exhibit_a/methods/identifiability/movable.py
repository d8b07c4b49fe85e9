"""Measures how much of the weight that a row shows could lie on other keys, exactly.

For a row a over the keys that it may see, with values V, let S be the fewest keys that hold at
least half of its weight: the dark cells of its heat map. The movable weight is

    μ = a(S) − min { x(S) : x ≥ 0, Σx = Σa, xV = aV },

the weight of S that other keys could have instead while the head gives the same output. Every x is
a row of proper attention weights: none negative, with the same sum. A key whose weight is 0 may
take some, because a softmax gives 0 only by rounding.

1. S is taken from the keys as they are; of equal weights, the earlier key comes first.
2. Keys with exactly equal values are one unknown of the program, because their weight can move
   between them. It counts as weight of S only if all of these keys are in S.
3. The columns of [V, 1] are written in an orthonormal basis, whose columns are the equations, each
   scaled by its largest entry. Values are compared with those of the first key: a constant added
   to all of them changes nothing, because the row keeps its sum.
4. With no more unknowns than equations there is one solution, and no program is needed.
5. Otherwise HiGHS solves the linear program min cᵀx for Ex = Ea. Its multipliers y are the
   certificate: where r = c − Eᵀy is the reduced cost, every valid x has

       cᵀx = yᵀEa + rᵀx ≥ yᵀEa + Σa · min(0, min r).

   The solution and this bound must agree to 1e-7 of the row's weight, and the solution must meet
   the equations as well as that. Otherwise the row's μ is NaN, and the row is counted as failed.
"""

from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from exhibit_a.methods.identifiability.alternatives import DEPENDENT, TIGHT
from exhibit_a.methods.identifiability.ranks import key_sets
from exhibit_a.numerics.parallel import one_thread, parallel_map
from exhibit_a.numerics.precision import returned, to_float64

AGREES = 1e-7  # of the row's weight: how well a program and its certificate must agree
HALF = 0.5  # of the row's weight lies on the keys of S, at least

Vector = NDArray[np.float64]


class MovableRow(NamedTuple):
    """The movable weight of one row, and its certificate."""

    movable: float  # μ; NaN without a certificate
    shown: float  # a(S)
    disagreement: float = 0.0  # of program and certificate, as a share of the row's weight
    program: bool = False  # whether one was needed


@dataclass(frozen=True, eq=False)
class MovableWeight:
    """The movable weight of the rows of a site; NaN in rows for which it was not computed."""

    movable: Float[Tensor, "head query"]  # μ
    shown: Float[Tensor, "head query"]  # a(S), the weight of the fewest keys that hold half
    rows: int  # how many rows were computed,
    programs: int  # rows that needed a linear program
    failed: int  # rows without a certificate; they are NaN
    disagreement: float  # the largest of the others


def movable_of_row(row: Float[Tensor, " key"], values: Float[Tensor, "key d_head"]) -> MovableRow:
    """How much of the weight on the heaviest keys of one row could lie elsewhere.

    The third value lies between the first two, so two of its weights stand for one of each:

    >>> values = torch.tensor([[0.0], [2.0], [1.0]])
    >>> movable_of_row(torch.tensor([0.0, 0.0, 1.0]), values).movable
    1.0
    >>> movable_of_row(torch.tensor([0.5, 0.5, 0.0]), values).shown
    0.5
    >>> movable_of_row(torch.tensor([0.6, 0.4]), values[:2]).movable  # as many keys as equations
    0.0
    """
    with one_thread():
        return _solved(_exactly(row), _Equations.of(to_float64(values).cpu()))


def movable_weight(
    attention: Float[Tensor, "head query key"],
    values: Float[Tensor, "head key d_head"],
    visible: Bool[Tensor, "query key"],
    rows: Bool[Tensor, "head query"] | None = None,
) -> MovableWeight:
    """The movable weight of the marked rows of every head, or of all rows.

    >>> attention = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    >>> seen, same_values = torch.ones(2, 2, dtype=torch.bool), torch.ones(1, 2, 4)
    >>> movable_weight(attention, same_values, seen, torch.tensor([[True, False]])).movable
    tensor([[0.9000,    nan]], dtype=torch.float64)
    """
    place = torch.device("cpu")
    sets = key_sets(visible.to(place))
    marks = torch.ones(attention.shape[:2], dtype=torch.bool) if rows is None else rows.to(place)

    def solve(part: tuple[int, int, list[int]]) -> list[MovableRow]:
        head, key_set, queries = part
        seen = sets.member[key_set]
        equations = _Equations.of(to_float64(values[head]).to(place)[seen])
        return [_solved(_exactly(attention[head, query])[seen], equations) for query in queries]

    parts = [  # rows of a head that see the same keys have the same equations
        (head, key_set, queries)
        for head in range(len(marks))
        for key_set in range(len(sets))
        if (queries := (marks[head] & (sets.of_row == key_set)).nonzero().flatten().tolist())
    ]
    numbers = torch.full((2, *marks.shape), torch.nan, dtype=torch.float64)
    solved: list[MovableRow] = []
    for (head, _, queries), found in zip(parts, parallel_map(solve, parts, place), strict=True):
        numbers[:, head, queries] = torch.tensor(
            [[row.movable, row.shown] for row in found], dtype=torch.float64
        ).T
        solved += found
    failed = [row for row in solved if np.isnan(row.movable)]
    return MovableWeight(
        movable=returned(numbers[0], attention.device),
        shown=returned(numbers[1], attention.device),
        rows=len(solved),
        programs=sum(row.program for row in solved),
        failed=len(failed),
        disagreement=max(
            (row.disagreement for row in solved if not np.isnan(row.movable)), default=0.0
        ),
    )


@dataclass(frozen=True, eq=False)
class _Equations:
    """What every valid row over some keys has to meet."""

    unknown: NDArray[np.int64]  # of each key: keys with equal values share one
    matrix: NDArray[np.float64]  # E: equations × unknowns

    @classmethod
    def of(cls, values: Float[Tensor, "key d_head"]) -> "_Equations | None":
        """The equations of rows over keys with these values; None where a value is not finite."""
        if not bool(values.isfinite().all()):
            return None
        if not len(values):
            return cls(np.zeros(0, dtype=np.int64), np.zeros((0, 0)))
        distinct, unknown = torch.unique(values + 0.0, dim=0, return_inverse=True)  # −0 is 0
        from_first = distinct - values[:1]
        columns = torch.cat([from_first, torch.ones_like(from_first[:, :1])], 1)
        columns[:, :-1] /= float(from_first.abs().amax()) or 1.0
        basis, strength, _ = torch.linalg.svd(columns, full_matrices=False)
        basis = basis[:, strength > DEPENDENT * strength[:1]]
        return cls(unknown.numpy(), (basis / basis.abs().amax(0)).mT.contiguous().numpy())

    @property
    def one_solution(self) -> bool:
        """Whether the weights of the unknowns follow from the output."""
        equations, unknowns = self.matrix.shape
        return bool(equations >= unknowns)


def _exactly(row: Float[Tensor, " key"]) -> Vector:
    weights: Vector = to_float64(row.detach()).cpu().numpy()
    return weights


def _solved(row: Vector, equations: _Equations | None) -> MovableRow:
    """The movable weight of a row over the keys that it sees."""
    total = row.sum()
    if equations is None or not np.isfinite(total):
        return MovableRow(nan, nan)
    if total == 0:
        return MovableRow(0.0, 0.0)
    order = np.argsort(-row, kind="stable")  # step 1
    cumulative = np.cumsum(row[order])
    in_set = np.zeros(len(row), dtype=bool)
    in_set[order[: np.searchsorted(cumulative, HALF * cumulative[-1]) + 1]] = True
    shown = row[in_set].sum()
    count = equations.matrix.shape[1]
    cost = np.ones(count)  # step 2
    cost[equations.unknown[~in_set]] = 0
    if equations.one_solution:  # step 4
        leaves = in_set & (cost[equations.unknown] == 0)
        return MovableRow(float(row[leaves].sum()), float(shown))
    merged = np.bincount(equations.unknown, row / total, minlength=count)
    wanted = equations.matrix @ merged
    program = linprog(  # step 5
        cost, A_eq=equations.matrix, b_eq=wanted, bounds=(0, None), method="highs", options=TIGHT
    )
    if program.status != 0:
        return MovableRow(nan, float(shown), nan, program=True)
    multipliers = program.eqlin.marginals
    reduced = cost - equations.matrix.T @ multipliers
    bound = multipliers @ wanted + min(0.0, reduced.min())
    weights = program.x.clip(min=0)
    least = cost @ weights
    missed = np.abs(equations.matrix @ weights - wanted).max()
    disagreement = float(max(abs(least - bound), missed))
    if not disagreement <= AGREES:
        return MovableRow(nan, float(shown), disagreement, program=True)
    movable = float(np.clip(shown - total * least, 0.0, shown))
    return MovableRow(movable, float(shown), disagreement, program=True)
