"""What do the methods say about each head, in numbers?

Before any word is drawn (``verdict.py``), the results of all methods are read head by head: how
much of it is unique, how much reaches the output, how much the answer depends on it, and whether
it points where the answer comes from. Attention has no sign, so it is compared with how much an
edge contributed, for or against the answer.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.numerics.correlation import spearman

if TYPE_CHECKING:
    from exhibit_a.trials.examination import Examination


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


def head_numbers(examined: "Examination") -> list[HeadNumbers]:
    """The answers to the four questions, head by head."""
    numbers = []
    for site in examined.trace.sites:
        columns = _columns(examined, site.index)
        numbers += [
            HeadNumbers(
                site.index, head, **{name: column[head] for name, column in columns.items()}
            )
            for head in range(site.heads)
        ]
    return numbers


def _columns(examined: "Examination", site: int) -> dict[str, list[float]]:
    """What was measured about the heads of one site, by name."""
    columns: dict[str, list[float]] = {}
    if examined.identifiability is not None:
        free = examined.identifiability.same_sum[site]
        columns["unique"] = ((free == 0).sum(1) / (free >= 0).sum(1)).tolist()
    if examined.alternatives is not None:
        columns["distance"] = examined.alternatives.distance[site].amax(1).tolist()
    if examined.effective is not None:
        columns["null_fraction"] = examined.effective.null_fraction[site].nanmean(1).tolist()
    if examined.permutation is not None:
        change = examined.permutation.change[site]
        half = examined.permutation.half * examined.permutation.error[site]
        columns["change"] = change.tolist()
        columns["change_low"] = (change - half).clamp_min(0).tolist()
        columns["change_high"] = (change + half).clamp_max(1).tolist()
    if examined.attribution is not None:
        trace, scores = examined.trace, examined.attribution.scores
        total = sum(float(part.abs().sum()) for part in scores) or 1.0
        sizes = scores[site].abs()
        columns["share"] = (sizes.sum((1, 2)) / total).tolist()
        agreement = rank_agreement(trace.attention[site], sizes, trace.visible[site])
        columns["agreement"] = agreement.tolist()
    return columns


def rank_agreement(
    attention: Float[Tensor, "head query key"],
    contribution: Float[Tensor, "head query key"],
    visible: Bool[Tensor, "query key"],
) -> Float[Tensor, " head"]:
    """Spearman's correlation of two maps along visible keys; rows count by their contribution."""

    rows = spearman(attention.double(), contribution.double(), visible)
    weight = contribution.sum(-1).double()
    return (rows * weight).sum(-1) / weight.sum(-1).clamp_min(torch.finfo(torch.double).tiny)


def doubts(examined: "Examination") -> dict[str, Any]:
    """The doubts about the numbers behind the words."""
    checks: dict[str, Any] = {"parity": examined.trace.subject.anatomy.parity}
    if examined.effective is not None:
        checks["largest change of a head's output, effective"] = examined.effective.checks[
            "largest change of a head's output"
        ]
    if examined.alternatives is not None:
        others = examined.alternatives
        checks |= {
            "rows with other valid attention": others.free,
            "rows searched for the farthest": others.searched,
            "largest change of a head's output, alternatives": others.residual,
            "change of the answer with all alternatives in place": others.answer_change,
            "rounding of the answer": others.allowed,
        }
    if examined.attribution is not None:
        known = examined.attribution.checks
        always = ("largest gap", "largest gap as a share of the change", "most points")
        failed = [name for name in ("incomplete sites", "completeness") if name in known]
        checks |= {f"attribution, {name}": known[name] for name in (*always, *failed)}
    if examined.permutation is not None:
        checks |= {
            "permutations of every head": examined.permutation.repeats,
            "change of the answer with all heads permuted": examined.permutation.together,
            "its standard error": examined.permutation.together_error,
        }
    if examined.hidden is not None:
        checks["mixing, probes"] = examined.hidden.checks["probes"]
        checks["mixing, largest standard error"] = examined.hidden.checks["largest_standard_error"]
    return checks
