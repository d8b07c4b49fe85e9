"""What does all the evidence say about one text?

Every method that applies examines one and the same pass of the model, and every head gets a verdict
(``verdict.py`` has the four questions and the words). A method that does not apply is listed with
its reason and never stops the others.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, ExhibitError, NotComputableError
from exhibit_a.methods.attribution.self_attribution import SelfAttribution, self_attribution
from exhibit_a.trace.targets import chosen_target
from exhibit_a.methods.attribution.tree import AttributionTree, attribution_tree
from exhibit_a.methods.explanation.head_permutation import head_permutation
from exhibit_a.methods.identifiability.alternative_maps import alternative_maps
from exhibit_a.methods.identifiability.counts import (
    AttentionIdentifiability,
    attention_identifiability,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention, effective_attention
from exhibit_a.methods.mixing.head_mixing import HeadMixing, head_mixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution, hidden_attribution
from exhibit_a.methods.registry import Cost, method
from exhibit_a.results.providers import provider
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.shapes import SiteHeads, SiteMap, SiteValues
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import in_words
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.targets import Target
from exhibit_a.trials.head_numbers import doubts, head_numbers
from exhibit_a.trials.stages import Progress, Stages, affordable_probes, affordable_repeats
from exhibit_a.trials.verdict import (
    HeadVerdict,
    Thresholds,
    judge,
    judge_text,
)

if TYPE_CHECKING:
    pass

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trial(Result):
    """Everything about one text; a part that could not be had is None and its reason in skipped."""

    special: Bool[Tensor, " token"]
    sites: tuple[Site, ...]
    sequences: dict[str, tuple[str, ...]]  # the tokens of each stack
    target: str  # empty where the model answers with hidden states
    answer: dict[str, float]  # probability of each label, or of the likeliest next tokens
    attention: tuple[SiteMap, ...]
    values: tuple[SiteValues, ...]  # of the heads that own values; query heads share them in order
    effective: EffectiveAttention | None
    identifiability: AttentionIdentifiability | None
    hidden: HiddenAttribution | None
    mixing: HeadMixing | None
    attribution: SelfAttribution | None
    tree: AttributionTree | None
    alternative: tuple[SiteMap, ...]  # other valid maps, same output; rows that have none are raw
    permutation_change: tuple[SiteHeads, ...]  # of the answer, total variation; empty: not known
    permutation_error: tuple[SiteHeads, ...]
    thresholds: Thresholds
    verdicts: tuple[HeadVerdict, ...]  # by site, then by head
    word: str  # the verdict for the text
    verdict: str  # and the sentence with its numbers
    skipped: dict[str, str] = field(default_factory=dict)  # method: reason
    seconds: dict[str, float] = field(default_factory=dict)  # stage: time it took

    @property
    def token_scores(self) -> Float[Tensor, " token"] | None:
        """What the answer took from each position of the input, over all heads and layers."""
        if self.attribution is None:
            return None
        stack = self.sites[0].stack
        own = [one for one in self.sites if self._key_stack(one) == stack]
        return torch.stack([self.attribution.scores[one.index].sum((0, 1)) for one in own]).sum(0)

    def _repr_html_(self) -> str:
        return str(provider("notebook")(self))

    def of(self, site: int, head: int) -> HeadVerdict:
        """The verdict on one head."""
        return next(one for one in self.verdicts if (one.site, one.head) == (site, head))

    def tokens_of(self, site: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens along the queries and along the keys of a site."""
        here = self.sites[site]
        return self.sequences[here.stack], self.sequences[self._key_stack(here)]

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """Queries and keys of a site may be tokens of different stacks."""
        if "site" not in leaf.where:
            return super().tokens_along(leaf)
        queries, keys = self.tokens_of(leaf.where["site"])
        named = {"query": queries, "key": keys}
        return {axis: named[axis] for axis in leaf.dims if axis in named}

    def _key_stack(self, site: Site) -> str:
        others = (name for name in self.sequences if name != site.stack)
        return site.stack if site.kind == "self" else next(others, site.stack)


@method(
    question="Is the attention on this text evidence of what the model did?",
    room="trials",
    cost=Cost(forwards=20, per_layer=58, algebra_per_token=20, maps=7, states=34),
    command="explain",
)
def trial(
    subject: Subject,
    text: Any,
    *,
    pair: str | None = None,
    target_text: str | None = None,
    target: Target | str | int | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 (frozen)
    seed: int = 0,
    probes: int = 8,
    truncate: bool = False,
    progress: Progress | None = None,
) -> Trial:
    """Examine one text with every method that applies, and give a verdict on every head.

    ``target`` is what the model itself answers, unless a label, a token or a ``Target`` is given.
    ``probes`` are the random directions per token with which mixing is estimated. ``progress`` is
    told when a stage begins; what it raises ends the trial.
    """
    if probes < 2:
        raise BadRequestError(f"An error needs at least 2 probes, {probes} were asked for.")
    stages = Stages(progress)
    trace = stages.run(
        "capture",
        lambda: capture(
            subject,
            text,
            pair=pair,
            target_text=target_text,
            keep=("attention", "values", "hidden", "keys"),
            truncate=truncate,
        ),
    )
    asked = _asked(trace, target, stages.skipped)
    effective = stages.attempt("effective", lambda: effective_attention(trace))
    counted = stages.attempt("identifiability", lambda: attention_identifiability(trace))
    attribution = stages.attempt(
        "attribution", lambda: self_attribution(trace, target=_given(asked, stages))
    )
    tree = stages.attempt(
        "tree", lambda: attribution_tree(_needed(attribution, "attribution", stages))
    )
    others = stages.attempt(
        "alternatives",
        lambda: alternative_maps(
            trace,
            tuple(part > 0 for part in _needed(counted, "identifiability", stages).same_sum),
            first=None if attribution is None else tuple(_rows(attribution)),
        ),
    )
    moved = stages.attempt(
        "permutation",
        lambda: head_permutation(
            trace, _given(asked, stages), repeats=affordable_repeats(trace), seed=seed
        ),
    )
    hidden = stages.attempt(
        "hidden",
        lambda: hidden_attribution(trace, probes=affordable_probes(trace, probes), seed=seed),
    )
    mixing = stages.attempt(
        "mixing", lambda: head_mixing(trace, probes=affordable_probes(trace, probes), seed=seed)
    )
    numbers = head_numbers(trace, effective, counted, others, moved, attribution)
    verdicts = tuple(judge(one, len(numbers), thresholds) for one in numbers)
    word, sentence = judge_text(verdicts, thresholds, None if moved is None else moved.together)
    return Trial(
        tokens=trace.tokens,
        provenance=provenance(
            subject.name,
            "trial",
            subject.revision,
            seed,
            target=None if asked is None else str(asked),
            probes=probes,
        ),
        checks=doubts(trace, effective, attribution, others, moved, hidden),
        special=trace.special,
        sites=trace.sites,
        sequences={name: sequence.tokens for name, sequence in trace.sequences.items()},
        target="" if asked is None else str(asked),
        answer={} if asked is None else in_words(subject, trace.output, asked.position),
        attention=trace.attention,
        values=tuple(_own(trace, site) for site in trace.sites),
        effective=effective,
        identifiability=counted,
        hidden=hidden,
        mixing=mixing,
        attribution=attribution,
        tree=tree,
        alternative=trace.attention if others is None else others.maps,
        permutation_change=() if moved is None else moved.change,
        permutation_error=() if moved is None else moved.error,
        thresholds=thresholds,
        verdicts=verdicts,
        word=word,
        verdict=sentence,
        skipped=stages.skipped,
        seconds=stages.seconds,
    )


def _asked(
    trace: Trace, target: Target | str | int | None, skipped: dict[str, str]
) -> Target | None:
    """The number to explain; a model that has none is no mistake unless one was asked for."""
    try:
        return chosen_target(trace, target)
    except ExhibitError as reason:
        if target is not None:
            raise
        skipped["target"] = str(reason)
        return None


def _given(asked: Target | None, stages: Stages) -> Target:
    if asked is None:
        raise NotComputableError(stages.skipped["target"])
    return asked


def _needed(part: Found | None, name: str, stages: Stages) -> Found:
    if part is None:
        raise NotComputableError(f"It needs {name}: {stages.skipped[name]}")
    return part


def _rows(attribution: SelfAttribution) -> list[Tensor]:
    """The absolute attribution of every row."""
    return [one.abs().sum(-1).float() for one in attribution.scores]


def _own(trace: Trace, site: Site) -> SiteValues:
    """The values once for every head that owns some."""
    return trace.values[site.index][:: site.heads // site.kv_heads]
