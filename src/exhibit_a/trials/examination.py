"""Runs all methods on one pass.

Each method is a stage: what does not apply is left out with its reason, what needs another stage
is left out with that one, and no stage stops the others. Between stages no maps but the model's own
stay in memory: those of a result wait in a file until they are read.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.reliance import SETTINGS, GameRows, Reliance, game_rows, reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution, self_attribution
from exhibit_a.methods.attribution.tree import AttributionTree, attribution_tree
from exhibit_a.methods.explanation.heat_maps import HeatMapLimits, HeatMaps, heat_maps_knowing
from exhibit_a.methods.identifiability.alternative_maps import AlternativeMaps, alternative_maps
from exhibit_a.methods.identifiability.counts import (
    AttentionIdentifiability,
    attention_identifiability,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention, effective_attention
from exhibit_a.methods.mixing.head_mixing import HeadMixing, hidden_and_heads
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.numerics.spilling import spilled
from exhibit_a.shapes import Options, SiteRows
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, margin_of
from exhibit_a.trials.allowance import Allowance, allowance
from exhibit_a.trials.carriers import MinimalHeadSet, smallest_set
from exhibit_a.trials.stages import Stages, affordable_probes
from exhibit_a.trials.trained_weights import weights_look_trained

CARRYING = 20.0  # times as much is a row worth if its head carries the answer

Needed = TypeVar("Needed")
Made = TypeVar("Made", Reliance, AlternativeMaps, SelfAttribution, EffectiveAttention)


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
    reliance: Reliance | None
    carriers: MinimalHeadSet | None
    learned: dict[str, bool] | None
    hidden: HiddenAttribution | None
    mixing: HeadMixing | None
    heat_maps: HeatMaps | None
    passes: float | None = None  # forward passes, where they are counted


@dataclass(frozen=True)
class TrialOptions:
    """How a text is to be examined."""

    probes: int | None  # as many as there is time for, if none
    seed: int
    carries: float  # share of the margin from which a head carries
    heat_maps: bool


def examine(trace: Trace, target: Target | None, stages: Stages, how: TrialOptions) -> Examination:
    """Run every method that applies, one stage after the other."""
    with allowance(trace) as allowed:
        examined = _examined(trace, target, stages, how, allowed)
        spent = allowed.spent
        return examined if spent is None else replace(examined, passes=1 + spent.forwards)


def _examined(
    trace: Trace, target: Target | None, stages: Stages, how: TrialOptions, allowed: Allowance
) -> Examination:
    """Every stage, with the passes that are allowed."""

    def needed(result: Needed | None, stage: str) -> Needed:
        if result is None:
            raise NotComputableError(f"It needs {stage}: {stages.skipped[stage]}")
        return result

    def requested() -> Target:
        if target is None:
            raise NotComputableError(stages.skipped["target"])
        return target

    attempt, seed = stages.attempt, how.seed
    relied = attempt(
        "reliance",
        lambda: _spill_to_disk(
            reliance(trace, target=requested(), rows=_rows(trace), seed=seed), "edges"
        ),
    )
    carriers = attempt(
        "heads", lambda: _carriers(requested(), needed(relied, "reliance"), how, allowed)
    )
    counts = attempt("identifiability", lambda: attention_identifiability(trace))
    alternatives = attempt(
        "alternatives",
        lambda: _spill_to_disk(
            _alternatives(trace, needed(counts, "identifiability"), relied, how.carries), "maps"
        ),
    )
    attribution = attempt(
        "attribution", lambda: _spill_to_disk(_attribution(requested(), allowed), "scores")
    )
    effective = attempt(
        "effective", lambda: _spill_to_disk(effective_attention(trace), "effective")
    )
    tree = attempt("tree", lambda: attribution_tree(needed(attribution, "attribution")))
    taught = attempt("weights", lambda: weights_look_trained(trace.subject))
    mixed = attempt(
        "mixing",
        lambda: hidden_and_heads(trace, probes=affordable_probes(trace, how.probes), seed=seed),
    )
    return Examination(
        trace=trace,
        target=target,
        effective=effective,
        identifiability=counts,
        attribution=attribution,
        tree=tree,
        alternatives=alternatives,
        reliance=relied,
        carriers=carriers,
        learned=taught,
        hidden=None if mixed is None else mixed[0],
        mixing=None if mixed is None else mixed[1],
        heat_maps=attempt(
            "heat_maps", lambda: _heat_maps(requested(), how, allowed, (relied, attribution))
        ),
    )


def _spill_to_disk(result: Made, maps: str) -> Made:
    """A result whose maps wait in a file."""
    in_file: Options = {maps: spilled(getattr(result, maps))}
    return replace(result, **in_file)


def _attribution(target: Target, allowed: Allowance) -> SelfAttribution:
    """Self-attribution, if there are passes for it."""
    allowed.require_paths()
    return self_attribution(allowed.trace, target=target)


def _heat_maps(
    target: Target,
    how: TrialOptions,
    allowed: Allowance,
    results: tuple[Reliance | None, SelfAttribution | None],
) -> HeatMaps:
    """The heat maps of the text, drawn from what is known already."""
    if not how.heat_maps:
        raise NotComputableError("They were not requested (heat_maps=False).")
    named = zip(("reliance", "self_attribution"), results, strict=True)
    known = {name: result for name, result in named if result is not None}
    if allowed.heat_maps is None:
        return heat_maps_knowing(known, allowed.trace, target, seed=how.seed)
    limits = HeatMapLimits(allowed.heat_maps, ("reliance", "self_attribution"))
    return heat_maps_knowing(known, allowed.trace, target, seed=how.seed, limits=limits)


def _rows(trace: Trace) -> GameRows | None:
    """All rows where every set of heads can be tried, else those that are usual for the model."""
    return "all" if sum(site.heads for site in trace.sites) <= SETTINGS.few else None


def _carriers(
    target: Target, relied: Reliance, how: TrialOptions, allowed: Allowance
) -> MinimalHeadSet:
    """The smallest set that carries the answer."""
    game = HeadGame(game_rows(allowed.trace, target, _rows(allowed.trace)), margin_of(target))
    return smallest_set(game, relied, how.seed, finely=allowed.steps)


def _alternatives(
    trace: Trace, counts: AttentionIdentifiability, relied: Reliance | None, carries: float
) -> AlternativeMaps:
    """Other valid maps, searched first in the rows that contribute most to heads that carry."""
    free = tuple(rows > 0 for rows in counts.same_sum)
    return alternative_maps(trace, free, first=_row_worth(relied, carries))


def _row_worth(relied: Reliance | None, carries: float) -> tuple[SiteRows, ...] | None:
    """The part of every row in what its head contributes; more for heads that carry the answer."""
    if relied is None:
        return None
    parts, line = [], carries * relied.size
    for site, (share, alone) in enumerate(zip(relied.heads, relied.one_head, strict=True)):
        rows = relied.whole_edges(site).sum(-1).abs()
        part = rows / rows.sum(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
        carrying = (share.abs() >= line) | (alone.abs() >= line)
        parts.append(part * torch.where(carrying, CARRYING, 1.0).to(part)[:, None])
    return tuple(parts)
