"""What do the methods say about each head, in numbers?

Before any word is drawn (``verdict.py``), the results of all methods are read head by head: how
much of it is unique, how much reaches the output, how much the answer depends on it, and whether
it points where the answer comes from. Attention has no sign, so it is compared with how much an
edge contributed, for or against the answer.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.explanation.head_permutation import HeadPermutation
from exhibit_a.methods.identifiability.alternative_maps import AlternativeMaps
from exhibit_a.methods.identifiability.counts import AttentionIdentifiability
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.numerics.correlation import spearman
from exhibit_a.trace.capture import Trace


@dataclass(frozen=True)
class HeadNumbers:
    """What was measured about one head, before any word."""

    site: int
    head: int
    unique: float | None = None
    distance: float | None = None
    null_fraction: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    share: float | None = None
    agreement: float | None = None


def head_numbers(
    trace: Trace,
    effective: EffectiveAttention | None,
    counted: AttentionIdentifiability | None,
    others: AlternativeMaps | None,
    moved: HeadPermutation | None,
    attribution: SelfAttribution | None,
) -> list[HeadNumbers]:
    """The answers to the four questions, head by head."""
    total = sum(float(one.abs().sum()) for one in attribution.scores) if attribution else 0.0
    found = []
    for site in trace.sites:
        i, columns = site.index, dict[str, list[float]]()
        if counted is not None:
            free = counted.same_sum[i]
            columns["unique"] = ((free == 0).sum(1) / (free >= 0).sum(1)).tolist()
        if others is not None:
            columns["distance"] = others.distance[i].amax(1).tolist()
        if effective is not None:
            columns["null_fraction"] = effective.null_fraction[i].nanmean(1).tolist()
        if moved is not None:
            half = moved.half * moved.error[i]
            columns["change"] = moved.change[i].tolist()
            columns["change_low"] = (moved.change[i] - half).clamp_min(0).tolist()
            columns["change_high"] = (moved.change[i] + half).clamp_max(1).tolist()
        if attribution is not None:
            scores = attribution.scores[i].abs()
            columns["share"] = (scores.sum((1, 2)) / (total or 1.0)).tolist()
            columns["agreement"] = rank_agreement(
                trace.attention[i], scores, trace.visible[i]
            ).tolist()
        found += [
            HeadNumbers(i, head, **{name: column[head] for name, column in columns.items()})
            for head in range(site.heads)
        ]
    return found


def rank_agreement(
    attention: Float[Tensor, "head query key"],
    contribution: Float[Tensor, "head query key"],
    visible: Bool[Tensor, "query key"],
) -> Float[Tensor, " head"]:
    """Spearman's correlation of two maps along visible keys; rows count by their contribution."""

    rows = spearman(attention.double(), contribution.double(), visible)
    weight = contribution.sum(-1).double()
    return (rows * weight).sum(-1) / weight.sum(-1).clamp_min(torch.finfo(torch.double).tiny)


def doubts(
    trace: Trace,
    effective: EffectiveAttention | None,
    attribution: SelfAttribution | None,
    others: AlternativeMaps | None,
    moved: HeadPermutation | None,
    hidden: HiddenAttribution | None,
) -> dict[str, Any]:
    """The doubts about the numbers behind the words."""
    checks: dict[str, Any] = {"parity": trace.subject.anatomy.parity}
    if effective is not None:
        checks["largest change of a head's output, effective"] = effective.checks[
            "largest change of a head's output"
        ]
    if others is not None:
        checks |= {
            "rows with other valid attention": others.free,
            "rows searched for the farthest": others.searched,
            "largest change of a head's output, alternatives": others.residual,
            "change of the answer with all alternatives in place": others.answer_change,
            "rounding of the answer": others.allowed,
        }
    if attribution is not None:
        for name in ("largest gap", "largest gap as a share of the change", "most points"):
            checks[f"attribution, {name}"] = attribution.checks[name]
        for name in ("incomplete sites", "completeness"):
            if name in attribution.checks:
                checks[f"attribution, {name}"] = attribution.checks[name]
    if moved is not None:
        checks |= {
            "permutations of every head": moved.repeats,
            "change of the answer with all heads permuted": moved.together,
            "its standard error": moved.together_error,
        }
    if hidden is not None:
        checks["mixing, probes"] = hidden.checks["probes"]
        checks["mixing, largest standard error"] = hidden.checks["largest_standard_error"]
    return checks
