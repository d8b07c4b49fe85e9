"""What do all methods say about one pass?

Each method is a stage: what does not apply is left out with its reason, what needs another stage
is left out with that one, and no stage stops the others.
"""

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.attribution.self_attribution import SelfAttribution, self_attribution
from exhibit_a.methods.attribution.tree import AttributionTree, attribution_tree
from exhibit_a.methods.explanation.head_permutation import HeadPermutation, head_permutation
from exhibit_a.methods.identifiability.alternative_maps import AlternativeMaps, alternative_maps
from exhibit_a.methods.identifiability.counts import (
    AttentionIdentifiability,
    attention_identifiability,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention, effective_attention
from exhibit_a.methods.mixing.head_mixing import HeadMixing, head_mixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution, hidden_attribution
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target
from exhibit_a.trials.stages import Stages, affordable_probes, affordable_repeats

Needed = TypeVar("Needed")


@dataclass(frozen=True, eq=False)
class Examination:
    """The results of all methods on one pass; None where a method does not apply."""

    trace: Trace
    target: Target | None
    effective: EffectiveAttention | None
    identifiability: AttentionIdentifiability | None
    attribution: SelfAttribution | None
    tree: AttributionTree | None
    alternatives: AlternativeMaps | None
    permutation: HeadPermutation | None
    hidden: HiddenAttribution | None
    mixing: HeadMixing | None


def examine(
    trace: Trace, target: Target | None, stages: Stages, *, probes: int, seed: int
) -> Examination:
    """Run every method that applies, one stage after the other."""

    def needed(result: Needed | None, stage: str) -> Needed:
        if result is None:
            raise NotComputableError(f"It needs {stage}: {stages.skipped[stage]}")
        return result

    def asked() -> Target:
        if target is None:
            raise NotComputableError(stages.skipped["target"])
        return target

    attempt = stages.attempt
    effective = attempt("effective", lambda: effective_attention(trace))
    counts = attempt("identifiability", lambda: attention_identifiability(trace))
    attribution = attempt("attribution", lambda: self_attribution(trace, target=asked()))
    tree = attempt("tree", lambda: attribution_tree(needed(attribution, "attribution")))
    alternatives = attempt(
        "alternatives", lambda: _alternatives(trace, needed(counts, "identifiability"), attribution)
    )
    permutation = attempt(
        "permutation",
        lambda: head_permutation(trace, asked(), repeats=affordable_repeats(trace), seed=seed),
    )
    hidden = attempt(
        "hidden",
        lambda: hidden_attribution(trace, probes=affordable_probes(trace, probes), seed=seed),
    )
    mixing = attempt(
        "mixing", lambda: head_mixing(trace, probes=affordable_probes(trace, probes), seed=seed)
    )
    return Examination(
        trace,
        target,
        effective,
        counts,
        attribution,
        tree,
        alternatives,
        permutation,
        hidden,
        mixing,
    )


def _alternatives(
    trace: Trace, counts: AttentionIdentifiability, attribution: SelfAttribution | None
) -> AlternativeMaps:
    """Other valid maps, searched first in the rows that contribute most."""
    free = tuple(rows > 0 for rows in counts.same_sum)
    return alternative_maps(trace, free, first=_row_weights(attribution))


def _row_weights(attribution: SelfAttribution | None) -> tuple[Tensor, ...] | None:
    """The absolute attribution of every row."""
    if attribution is None:
        return None
    return tuple(scores.abs().sum(-1).float() for scores in attribution.scores)
