"""How much of what a head says does each key bring, and does it point the same way?

A head writes o_i = Σ_j a_ij v_j W_O into the stream. A large weight on a short vector brings
little, and a long vector that points elsewhere brings nothing to what the head says. So the weight
is multiplied by the length of the vector and by its cosine with the whole:

    c_ij = a_ij ‖v_j W_O‖ cos(v_j W_O, o_i) = a_ij (v_j W_O · o_i) / ‖o_i‖

The entries of a row add up to ‖o_i‖ exactly. They are signed, need no gradient and no second pass,
and say nothing about the answer: they stand between raw attention and attribution. With one Gram
matrix for each head, G = V W_O W_Oᵀ Vᵀ, no vector of the stream is ever made.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.explanation.flow import one_stack, readout
from exhibit_a.methods.registry import Cost, token_method
from exhibit_a.shapes import SiteMap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target


@token_method(
    "contribution_weights",
    "What does each token bring to what the heads say?",
    Cost(forwards=1, algebra=1, maps=1),
    "attention",
    "values",
    "projection",
    "target",
)
def contribution_weights(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """Contributions in the rows the answer is read from, mean over heads and layers."""
    sites, maps = one_stack(trace), contribution_maps(trace)
    rows = readout(trace, target)
    each = [rows.to(maps[site.index]) @ maps[site.index].mean(0) for site in sites]
    return torch.stack(each).mean(0)


def contribution_maps(trace: Trace) -> tuple[SiteMap, ...]:
    """c_ij of every head of every site.

    >>> maps = contribution_maps(trace)
    >>> len(maps), tuple(maps[0].shape)
    (6, (12, 8, 8))
    """
    kept = trace.keeping("attention", "values")
    return tuple(_contributions(kept, site.index) for site in kept.sites)


def _contributions(trace: Trace, site: int) -> SiteMap:
    weight = trace.output_weight(site)
    if weight is None:
        raise NotComputableError(
            f"The output projection of site {site} was not found, and contributions need it."
        )
    values, attention = trace.values[site].double(), trace.attention[site].double()
    projection = weight.to(values)  # head, d_head, d_model
    gram = values @ (projection @ projection.mT) @ values.mT
    along = attention @ gram  # o_i · v_j W_O
    length = (attention * along).sum(-1, keepdim=True).clamp_min(0).sqrt()
    floor = torch.finfo(trace.attention[site].dtype).tiny
    return (attention * along / length.clamp_min(floor)).to(trace.attention[site].dtype)
