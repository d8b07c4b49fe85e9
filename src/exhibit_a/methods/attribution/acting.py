"""Raw attention in the rows where it acts.

People show a head by the row that the answer is read from. In most layers that is not the row in
which the head does its work. How much a row acts is known from the game of levelled heads
(``reliance.py``): the edges of a row add up to what it adds to the answer, r. Two heat maps follow,
and both show nothing but the model's own weights, in other rows than usual:

``acting_attention``    all heads, by what their rows add:  Σ max(0, r) A over layers, heads, rows
``head_in_its_rows``    the head with the largest share, by what its rows do for or against the
                        answer:  Σ w A / Σ w,  w = Σ_k |edge|
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.attribution.head_game import SETTINGS as GAME
from exhibit_a.methods.attribution.reliance import Reliance, reliance
from exhibit_a.methods.registry import Cost, Need, token_method
from exhibit_a.trace.answer_rows import one_stack
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target

Scores = Float[Tensor, " token"]
NEEDS: tuple[Need, ...] = ("attention", "values", "hidden", "target")
COST = Cost(forwards=45, per_layer=6, maps=4, at_once=GAME.tokens_at_once)


class HeadInRows(NamedTuple):
    """The weights of one head in the rows where it acts, and which head it is."""

    scores: Scores
    site: int
    head: int


@token_method(
    "acting_attention",
    "Where does attention look, in the rows where it acts?",
    COST,
    *NEEDS,
    rows=True,
)
def acting_attention(trace: Trace, target: Target) -> Scores:
    """The attention of all heads, each row weighted by what it adds to the answer."""
    return acting_in(reliance(trace, target=target), trace)


@token_method(
    "head_in_its_rows",
    "Where does the head look that carries most, in the rows where it acts?",
    COST,
    *NEEDS,
    rows=True,
)
def head_in_its_rows(trace: Trace, target: Target) -> tuple[Scores, dict[str, object]]:
    """The attention of the head with the largest share, in the rows where it acts."""
    relied = reliance(trace, target=target)
    scores, site, head = first_head_in_its_rows(relied, trace)
    return scores, {"head": f"layer {relied.sites[site].layer}, head {head}"}


def acting_in(relied: Reliance, trace: Trace) -> Scores:
    """Acting attention, where the game of the pass was played."""
    played, scores = _played(relied, trace), torch.zeros(len(trace.tokens))
    for site in one_stack(trace):
        adds = relied.edges[site.index].sum(-1).clamp_min(0)
        maps = played.attention[site.index].cpu().float()
        scores += torch.einsum("hq,hqk->k", adds.to(maps), maps)
    return scores


def head_in_rows(relied: Reliance, trace: Trace, site: int, head: int) -> Scores:
    """The weights of one head, averaged over its rows by how much it acts in them."""
    weights = relied.rows_of(site, head)
    maps = _played(relied, trace).attention[site][head].cpu().float()
    tiny = torch.finfo(weights.dtype).tiny
    return (weights / weights.sum().clamp_min(tiny)).to(maps) @ maps


def first_head_in_its_rows(relied: Reliance, trace: Trace) -> HeadInRows:
    """The same for the head with the largest share in the answer."""
    sites = [site.index for site in one_stack(trace)]
    site = max(sites, key=lambda place: float(relied.heads[place].amax()))
    head = int(relied.heads[site].argmax())
    return HeadInRows(head_in_rows(relied, trace, site, head), site, head)


def _played(relied: Reliance, trace: Trace) -> Trace:
    """The pass with the rows that the game was played in."""
    kept = trace.keeping("attention")
    return kept if relied.rows is None else kept.at_rows(relied.rows)
