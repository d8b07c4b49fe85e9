"""Which other attention would have been just as valid, and given the same answer?

For one row of one head: other rows of weights that are not negative, keep their sum, and average
the values to the same output. The rows a′ with a′ ≥ 0, Σa′ = Σa and a′V = aV form a polytope around
the observed row a. Each of its corners is an attention row that would have been just as good an
explanation of the output.

1. The equations a′[V, 1] = a[V, 1] are written in an orthonormal basis of the columns of [V, 1], so
   that a linear program meets them equally well however unlike the columns are.
2. Minimising and maximising one entry at a time gives the interval that each weight can take, and
   2n corners; random objectives give corners that favour no key.
3. The corner farthest from a in total variation is sought from the farthest one found: moving on
   along the sign of a′ − a never comes closer, and stops when it gains nothing.
4. The model itself is run again: its answer is computed with each alternative in place of the row.

Corners are polished to meet the equations to rounding. The farthest corner found is a lower bound:
finding the farthest of all is a hard problem.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.subject.anatomy import check_site
from exhibit_a.subject.guard import floating
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.replay import replay

NOISE = 64  # units of rounding, of the largest answer, that a replay may differ by

Row = Float[Tensor, " key"]

DEPENDENT = 1e-12  # singular values of [V, 1] below this share of the largest impose nothing
SAME_OUTPUT = 1e-9  # how well an alternative must reproduce the output, in units of the values
TIGHT = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
    "presolve": False,
}

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AlternativeAttention(Result):
    """Other valid rows with the same output, and the interval that each key's weight can take."""

    site: int
    head: int
    query: int
    row: Row  # the weights of the model
    low: Row  # least weight of the key in any valid row
    high: Row  # most weight of the key in any valid row
    alternatives: Float[Tensor, "sample key"]  # valid rows, at random
    farthest: Row  # the valid row farthest from the model's
    distance: float  # total variation between the row and the farthest alternative found
    freedom: int  # dimensions in which the row can move
    identifiable: bool
    key_tokens: tuple[str, ...]

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """Keys may be the tokens of another stack."""
        return {"key": self.key_tokens} if "key" in leaf.dims else {}


@method(
    question="Which other attention would have given the same answer?",
    needs=rows_of("attention", "values"),
    cost=Cost(forwards=18, algebra_per_token=0.1, maps=1),
)
def alternative_attention(
    trace: Trace,
    *,
    site: int,
    head: int,
    query: int | None = None,
    samples: int = 16,
    seed: int = 0,
) -> AlternativeAttention:
    """Other valid attention rows with the same head output, and what the model answers to them.

    Args:
        site: number of the attention site.
        head: number of the head at that site.
        query: position of the row; by default the row that the answer is usually read from, which
            is the last real token of a decoder and the first of an encoder.
        samples: number of alternatives drawn at random, besides the farthest one.
        seed: seed of the random draws.

    >>> short = xa.alternative_attention(trace, site=0, head=0)
    >>> short.identifiable, short.freedom
    (True, 0)
    >>> longer = xa.capture(subject, "a gripping , beautifully shot film " * 8)
    >>> result = xa.alternative_attention(longer, site=5, head=0, samples=2)
    >>> result.identifiable, result.freedom, tuple(result.alternatives.shape)
    (False, 17, (2, 50))
    """
    check_site(trace.sites, site, head)
    if samples < 1:
        raise BadRequestError(f"At least 1 sample is needed, {samples} were requested.")
    trace = trace.keeping("attention", "values", "hidden")
    query = _query(trace, site, query)
    place = query if trace.rows is None else trace.rows.index(query)
    seen = trace.visible[site][place]
    row, values = trace.attention[site][head, place, seen], trace.values[site][head, seen]
    valid = polytope(
        to_float64(row), to_float64(values), samples=samples, generator=generator(seed)
    )
    rows = _over_all_keys(torch.cat([valid.farthest.unsqueeze(0), valid.corners]), seen)
    where = {"site": site, "head": head, "query": query}
    return build_result(
        AlternativeAttention,
        trace,
        "alternative_attention",
        seed=seed,
        settings={"samples": samples, **where},
        checks={
            "largest change of the head's output": valid.residual,
            **_answer_checks(trace, **where, rows=rows),
        },
        **where,
        row=_over_all_keys(valid.row, seen),
        low=_over_all_keys(valid.low, seen),
        high=_over_all_keys(valid.high, seen),
        alternatives=rows[1:],
        farthest=rows[0],
        distance=valid.distance,
        freedom=valid.freedom,
        identifiable=valid.unique,
        key_tokens=trace.keys_of(site).tokens,
    )


def rounding_of(answer: Tensor) -> float:
    """How far rounding may move an answer that should stay the same."""
    return NOISE * torch.finfo(answer.dtype).eps * max(1.0, float(answer.abs().amax()))


def _over_all_keys(
    weights: Float[Tensor, "*row _seen"], seen: Bool[Tensor, " key"]
) -> Float[Tensor, "*row key"]:
    """Weights over the keys that are seen, with zeros for the other keys."""
    every = torch.zeros(*weights.shape[:-1], len(seen), dtype=torch.float64)
    every[..., seen.cpu()] = to_float64(weights)
    return every


def _query(trace: Trace, site: int, query: int | None) -> int:
    """The row requested, or the one that the answer is usually read from."""
    real = trace.sequences[trace.sites[site].stack].real.nonzero().flatten().tolist()
    if trace.partial is not None:
        kept = trace.partial.rows if trace.sites[site].stack == trace.partial.stack else ()
        real = [row for row in real if row in kept]
        if query is None and real:
            return int(real[-1])
        if query not in real:
            raise BadRequestError(
                f"The row of query {query} was not kept at site {site}; requested were "
                f"{list(kept) or 'none'}."
            )
    if query is None:
        return int(real[-1] if trace.sites[site].stack == "decoder" else real[0])
    if query not in real:
        raise BadRequestError(
            f"There is no query {query} at site {site}; the text has {real[0]} to {real[-1]}."
        )
    return query


def _in_place(trace: Trace, where: tuple[int, int, int], row: Row) -> edits.Edit:
    """An edit that puts another row in the place of one (site, head, query)."""
    site, head, query = where
    edited = trace.attention[site].clone()
    if trace.rows is None:
        edited[head, query] = row.to(edited)
        return edits.replace(site, edited)
    edited[head, trace.rows.index(query)] = row.to(edited)
    return edits.ReplaceRows(site, torch.tensor(trace.rows), edited)


@torch.no_grad()
def _answer_checks(
    trace: Trace, site: int, head: int, query: int, rows: Float[Tensor, "sample key"]
) -> dict[str, float]:
    """How far each row in place moves the model's answer, which only rounding may explain."""
    answer = floating(trace.output)[0]
    changes = []
    for row in rows:
        again = floating(replay(trace, _in_place(trace, (site, head, query), row)))[0]
        changes.append(float((again - answer).abs().amax()))
    allowed = rounding_of(answer)
    if max(changes) > allowed:
        raise BrokenInvariantError(
            f"An alternative row moves the model's answer by {max(changes):.1e}, beyond rounding "
            f"({allowed:.0e}), though its head output is the same. No alternatives are given."
        )
    return {"largest change of the answer": max(changes), "rounding of the answer": allowed}


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
