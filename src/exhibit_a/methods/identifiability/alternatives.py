"""Which other attention would have been just as valid, and given the same answer?

For one row of one head: other rows of weights that are not negative, keep their sum, and average
the values to the same output (``polytope.py`` has the linear programs). The model itself is then
asked: its answer is computed again with each alternative in place of the row it used.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.methods.identifiability.polytope import polytope
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.result import Result
from exhibit_a.subject.anatomy import check_site
from exhibit_a.subject.guard import floating
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.replay import replay

if TYPE_CHECKING:
    pass

NOISE = 64  # units of rounding, of the largest answer, that a replay may differ by

Row = Float[Tensor, " key"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AlternativeAttention(Result):
    """Other valid rows with the same output, and the interval that each key's weight can take."""

    site: int
    head: int
    query: int
    row: Row
    low: Row
    high: Row
    alternatives: Float[Tensor, "sample key"]
    farthest: Row
    distance: float  # total variation between the row and the farthest alternative found
    freedom: int  # dimensions in which the row can move
    identifiable: bool
    key_tokens: tuple[str, ...]


@method(
    question="Which other attention would have given the same answer?",
    room="identifiability",
    needs=("attention", "values"),
    cost=Cost(forwards=2, maps=1),
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

    Without ``query``, the row the answer is usually read from: the last real token where attention
    is causal, else the first.
    """
    check_site(trace.sites, site, head)
    if samples < 1:
        raise BadRequestError(f"At least 1 sample is needed, {samples} were asked for.")
    trace = trace.keeping("attention", "values", "hidden")
    query = _query(trace, site, query)
    seen = trace.visible[site][query]
    seeded = generator(seed)
    found = polytope(
        trace.attention[site][head, query, seen].double(),
        trace.values[site][head, seen].double(),
        samples=samples,
        generator=seeded,
    )

    def everywhere(part: Tensor) -> Tensor:
        whole = torch.zeros(*part.shape[:-1], len(seen), dtype=torch.float64)
        whole[..., seen.cpu()] = part.double()
        return whole

    rows = everywhere(torch.cat([found.farthest.unsqueeze(0), found.corners]))
    return AlternativeAttention(
        tokens=trace.tokens,
        provenance=provenance(
            trace.subject.name,
            "alternative_attention",
            trace.subject.revision,
            seed,
            site=site,
            head=head,
            query=query,
            samples=samples,
        ),
        checks={
            "parity": trace.subject.anatomy.parity,
            "largest change of the head's output": found.residual,
            **_answers(trace, site, head, query, rows),
        },
        site=site,
        head=head,
        query=query,
        row=everywhere(found.row),
        low=everywhere(found.low),
        high=everywhere(found.high),
        alternatives=rows[1:],
        farthest=rows[0],
        distance=found.distance,
        freedom=found.freedom,
        identifiable=found.unique,
        key_tokens=trace.keys_of(site).tokens,
    )


def _query(trace: Trace, site: int, query: int | None) -> int:
    positions = trace.queries_of(site)
    real = positions.real.nonzero().flatten().tolist()
    if query is None:
        return int(real[-1] if trace.sites[site].stack == "decoder" else real[0])
    if query not in real:
        raise BadRequestError(
            f"There is no query {query} at site {site}; the text has {real[0]} to {real[-1]}."
        )
    return query


@torch.no_grad()
def _answers(trace: Trace, site: int, head: int, query: int, rows: Tensor) -> dict[str, Any]:
    """The model's answer with each row in place; it may not move beyond rounding."""
    own = floating(trace.output)[0]
    changes = []
    for row in rows:
        edited = trace.attention[site].clone()
        edited[head, query] = row.to(edited)
        answer = floating(replay(trace, edits.replace(site, edited)))[0]
        changes.append(float((answer - own).abs().amax()))
    allowed = NOISE * torch.finfo(own.dtype).eps * max(1.0, float(own.abs().amax()))
    if max(changes) > allowed:
        raise BrokenInvariantError(
            f"An alternative row moves the model's answer by {max(changes):.1e}, beyond rounding "
            f"({allowed:.0e}), though its head output is the same. No alternatives are given."
        )
    return {"largest change of the answer": max(changes), "rounding of the answer": allowed}
