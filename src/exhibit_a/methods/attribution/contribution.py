"""How much of its head's output does each attention weight stand for?

A head adds up vectors: its output for query i is oᵢ = Σⱼ aᵢⱼ fⱼ with fⱼ = vⱼ W_O. A weight counts
as far as its vector is long and points where the output points:

    cᵢⱼ = aᵢⱼ ‖fⱼ‖ cos(fⱼ, oᵢ) = aᵢⱼ (fⱼ · oᵢ) / ‖oᵢ‖,        Σⱼ cᵢⱼ = ‖oᵢ‖.

The rows add up exactly to the length of the output, so nothing is lost, and a weight can count
against it. No vector of the model's width is ever formed: fⱼ · oᵢ = (Σₖ aᵢₖ vₖ) W_O W_Oᵀ vⱼᵀ.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import SiteMap, SiteRows
from exhibit_a.trace.answer_rows import one_stack, readout_rows
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ContributionWeights(SiteResult):
    """What every attention weight adds to the output of its head, along that output."""

    unit_rules: ClassVar[dict[str, Rule]] = {
        "scores": "map",
        "lengths": "mean",  # so that rows still add up to them
        "sequences": "names",
    }
    scores: tuple[SiteMap, ...]  # rows add up to ``lengths``
    lengths: tuple[SiteRows, ...]  # of the head's output at every query

    @property
    def shares(self) -> tuple[SiteMap, ...]:
        """The same as parts of the output: rows add up to 1, or to 0 where there is no output."""
        return tuple(
            scores / lengths.clamp_min(torch.finfo(lengths.dtype).tiny).unsqueeze(-1)
            for scores, lengths in zip(self.scores, self.lengths, strict=True)
        )


def token_scores(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """Contributions in the rows that the answer is read from, mean over heads and layers."""
    sites, rows = one_stack(trace), readout_rows(trace, target)
    scores = contribution_weights(trace).scores
    maps = [scores[site.index].mean(0) for site in sites]
    return torch.stack([rows.to(site) @ site for site in maps]).mean(0)


@method(
    question="How much of its head's output does each weight stand for?",
    needs=rows_of("attention", "values"),
    cost=Cost(forwards=1, algebra=0.2, maps=2),
    command="contribution",
    tokens=token_scores,
)
@torch.no_grad()
def contribution_weights(trace: Trace) -> ContributionWeights:
    """Weight × length × direction: what each key adds to the output of every head.

    >>> result = xa.contribution_weights(trace)
    >>> tuple(result.scores[0].shape), result.shares[0].sum(-1).mean().round(decimals=3)
    ((12, 8, 8), tensor(1.))
    >>> torch.allclose(result.scores[0].sum(-1), result.lengths[0], atol=1e-5)
    True
    >>> xa.companions(trace, methods=["contribution_weights"])["contribution_weights"].scores.shape
    torch.Size([8])
    """
    kept = trace.keeping("attention", "values")
    scores, lengths, without = [], [], []
    for site in kept.sites:
        weight = kept.output_weight(site.index)
        if weight is None:
            without.append(site.index)
        products = along_output(kept.attention[site.index], kept.values[site.index], weight)
        scores.append(products[0])
        lengths.append(products[1])
    checks: dict[str, object] = {}
    if without:
        checks["sites whose output projection was not found"] = tuple(without)
        checks["there"] = "the values count as they are, before any projection"
    return build_result(
        ContributionWeights,
        trace,
        "contribution_weights",
        checks=checks,
        scores=tuple(scores),
        lengths=tuple(lengths),
    )


def along_output(
    attention: Float[Tensor, "head query key"],
    values: Float[Tensor, "head key d_head"],
    weight: Float[Tensor, "head d_head d_model"] | None,
) -> tuple[Float[Tensor, "head query key"], Float[Tensor, "head query"]]:
    """aᵢⱼ (fⱼ · oᵢ) / ‖oᵢ‖, and ‖oᵢ‖; without a projection, f is the value itself."""
    wide = torch.promote_types(attention.dtype, torch.float32)
    attention, values = attention.to(wide), values.to(wide)
    context = attention @ values
    seen = context if weight is None else context @ (weight.to(wide) @ weight.to(wide).mT)
    lengths = (seen * context).sum(-1).clamp_min(0).sqrt()
    products = attention * (seen @ values.mT)
    return products / lengths.clamp_min(torch.finfo(wide).tiny).unsqueeze(-1), lengths
