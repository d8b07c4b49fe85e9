"""May this heat map be shown?

People show a *heat map* of a text: some attention, or some attribution, as shades of its words
(``heat_maps.py``). A heat map says which words matter, and that can be tried. For the answer to one
text:

1. Every heat map ranks the words: the scores of a word are those of its sub-words, added up.
2. The first words of each ranking are hidden at a few cuts: no position may look at them. The loss
   is that of the margin, the log-odds of the answer, averaged over the cuts.
3. Random orders of the same words lose something too. A heat map is better than chance where few
   of them lose as much (``numerics/random_orders.py``, which says how many are run and why the
   p-values are valid).
4. The advice follows: *show* a heat map that is better than chance with the number of heat maps
   taken into account (Benjamini & Hochberg), and loses at least 80 % of what the best one does;
   *caution* where one of the two fails, where no random order does better although too many do as
   well (a single word decides a short text), or where nothing can be judged; else *do not show*.

All texts with words hidden are shared by all heat maps and run once: at most 250, fewer for long
texts. Where none of them moves the answer, no ranking can be judged, and that is the advice. Words
can also be deleted, or replaced by the mask token (``erasure.py``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.explanation.advice import Judged, sentence, word_for
from exhibit_a.methods.explanation.drawing import Drawing, drawn
from exhibit_a.methods.explanation.erased_texts import ErasedTexts
from exhibit_a.methods.explanation.erasure import Erase
from exhibit_a.methods.explanation.words import Words, words_of
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.numerics.intervals import discovery_rates
from exhibit_a.numerics.random_orders import OrderComparison, compare, plan_orders
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, chosen_target
from exhibit_a.trace.units import UnitSpec

Advice = Literal["show", "caution", "do not show"]

PASSES, FEWEST_PASSES = 250, 125  # of texts with words hidden: at most, and for long texts
TOKENS = 64_000  # in all texts with words hidden; fewer passes where they would be more
WITHIN_LIMITS = 60  # texts with words hidden, where passes are limited: fewer say nothing
FOR_ADVICE = 10  # passes kept back to find how few words turn the answer
UNMOVED = 0.95  # an answer that keeps this share of its probability has not moved
FIRST_LOOK = 60  # texts with words hidden, after which an answer that never moved is known not to


@dataclass(frozen=True, eq=False)
class HeatMap:
    """One heat map of a text, and whether it may be shown."""

    name: str  # of the method, in Python
    label: str  # the same for people
    words: tuple[str, ...]  # of the text
    scores: Float[Tensor, " word"]  # the shade of each word
    loss: float  # of the answer's margin without its first words, mean over the cuts
    probability_loss: float  # the same of the answer's probability
    percentile: float  # share of random orders that lose less
    p_value: float  # the chance that a random order loses as much
    adjusted: float  # the p-value with the number of heat maps taken into account
    rank: int  # among the heat_maps, by loss, from 1
    advice: str  # show, caution, do not show
    reason: str  # for the advice

    @property
    def ranking(self) -> list[int]:
        """The places of the words, the most important first; of equals the earlier first."""
        return ranking_of(self.scores)


@dataclass(frozen=True, kw_only=True, eq=False)
class HeatMaps(Result, Mapping[str, HeatMap]):
    """Heat maps of one text by name, judged by hiding words, against random orders of its words."""

    words: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    target: str
    sizes: tuple[int, ...]  # words taken away at each cut
    margin: float  # of the answer to the whole text
    probability: float
    scores: Float[Tensor, "heat_map word"]  # the shade of each word
    margins: Float[Tensor, "heat_map cut"]  # without the first words of each heat map
    probabilities: Float[Tensor, "heat_map cut"]  # of the answer, without the first words
    random_margins: Float[Tensor, "order cut"]  # without the first words of random orders
    loss: Float[Tensor, " heat_map"]  # of margin, mean over the cuts
    percentile: Float[Tensor, " heat_map"]  # share of random orders that lose less
    p_value: Float[Tensor, " heat_map"]  # the chance that a random order loses as much
    adjusted: Float[Tensor, " heat_map"]  # the p-value corrected for the number of heat maps
    advices: tuple[str, ...]
    reasons: tuple[str, ...]
    advice: str  # one sentence for the person who must decide
    passes: int  # of texts with words taken away
    orders: int  # random orders compared
    exact: bool  # all orders were
    erase: str  # how words were taken away: hide, delete, mask

    def by(self, units: UnitSpec = "word") -> "HeatMaps":
        """Heat maps are judged over words, and over nothing else."""
        if units == "word":
            return self
        raise NotComputableError(
            "Heat maps are judged by taking words away, and their numbers hold for words only."
        )

    def __getitem__(self, name: str) -> HeatMap:
        if name not in self.names:
            raise KeyError(name)
        place = self.names.index(name)
        lost = self.probability - self.probabilities[place]
        return HeatMap(
            name=name,
            label=self.labels[place],
            words=self.words,
            scores=self.scores[place],
            loss=float(self.loss[place]),
            probability_loss=float(lost.mean()),
            percentile=float(self.percentile[place]),
            p_value=float(self.p_value[place]),
            adjusted=float(self.adjusted[place]),
            rank=1 + int((self.loss > self.loss[place]).sum()),
            advice=self.advices[place],
            reason=self.reasons[place],
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """Words and heat maps have names, which are kept with their positions."""
        named = {"word": self.words, "heat_map": self.names}
        return {axis: named[axis] for axis in leaf.dims if axis in named}


@method(
    question="May this heat map be shown?",
    needs=rows_of("attention", "values", "hidden", "target", "text", "distribution"),
    cost=Cost(forwards=300, per_layer=10, maps=4),
    command="heat-maps",
)
def heat_maps(
    trace: Trace,
    *,
    target: Target | str | int | None = None,
    methods: Sequence[str] | Mapping[str, Float[Tensor, " token"]] | None = None,
    erase: Erase = "hide",
    seed: int = 0,
) -> HeatMaps:
    """Judge heat maps: does the answer lose more without their first words than by chance?

    >>> result = xa.heat_maps(trace, methods=["raw", "attention_gradient"])
    >>> list(result), result.sizes, result.exact
    (['raw', 'attention_gradient'], (1, 2, 3), True)
    >>> result["raw"].label, result["raw"].advice in ("show", "caution", "do not show")
    ('last-layer attention', True)
    >>> own = torch.zeros(len(trace.tokens))  # a heat map of your own: a score for each token
    >>> xa.heat_maps(trace, methods={"nothing": own})["nothing"].words[:2]
    ('a', 'gripping')

    Args:
        target: label or token to explain; without, what the model answers.
        methods: names of methods that score tokens, and one_head; in Python also scores for each
            token by the name of a heat_map. Without, the heat maps that people show most and those
            that cost little.
        erase: how words are taken away: hide, delete or mask.
        seed: of the random orders; same seed, same numbers.
    """
    chosen = chosen_target(trace, target)
    return heat_maps_knowing({}, trace, chosen, methods=methods, erase=erase, seed=seed)


def heat_maps_knowing(
    results: Mapping[str, Result],
    trace: Trace,
    chosen: Target,
    *,
    methods: Sequence[str] | Mapping[str, Float[Tensor, " token"]] | None = None,
    erase: Erase = "hide",
    seed: int = 0,
    limits: "HeatMapLimits | None" = None,
) -> HeatMaps:
    """The heat maps of a text, where the results of some methods, by name, are known already."""
    words = words_of(trace, chosen)
    texts = ErasedTexts(trace, chosen, words.places, erase)
    known_only = () if limits is None else limits.known_only
    maps = drawn(Drawing(trace, chosen, results, known_only, erase), methods)
    by_word = torch.stack([_summed(token_scores, words) for token_scores in maps.scores.values()])
    rankings = [ranking_of(row) for row in by_word]
    plan = plan_orders(len(words), len(rankings), _budget(trace, limits) - FOR_ADVICE)
    compared = compare(plan, rankings, texts.losses, seed=seed, enough=lambda: _unmoved(texts))
    judged = _judged(compared, texts, rankings, maps.labels, words)
    advices, reasons = zip(*(word_for(judged, place) for place in range(len(by_word))), strict=True)
    return build_result(
        HeatMaps,
        trace,
        "heat_maps",
        seed=seed,
        settings={"target": str(chosen), "methods": [*maps.scores], "erase": erase},
        checks=_checks(words, texts, compared, maps.left_out),
        words=words.names,
        names=tuple(maps.scores),
        labels=tuple(maps.labels.values()),
        target=str(chosen),
        sizes=plan.sizes,
        margin=texts.margin,
        probability=texts.probability,
        scores=by_word,
        margins=texts.margin - compared.losses,
        probabilities=texts.probabilities(rankings, plan.sizes),
        random_margins=texts.margin - compared.random,
        loss=judged.loss,
        percentile=compared.percentile,
        p_value=judged.p_value,
        adjusted=judged.adjusted,
        advices=advices,
        reasons=reasons,
        advice=sentence(judged, advices),
        passes=texts.passes,
        orders=plan.orders if plan.exact else len(compared.random),
        exact=plan.exact,
        erase=erase,
    )


def ranking_of(scores: Float[Tensor, " word"]) -> list[int]:
    """The places from the highest score down; of equals the earlier first."""
    ranking: list[int] = scores.argsort(descending=True, stable=True).tolist()
    return ranking


@dataclass(frozen=True)
class HeatMapLimits:
    """How many texts may be run, and which methods are drawn only if their result is known."""

    texts: int
    known_only: tuple[str, ...]


def _budget(trace: Trace, limits: HeatMapLimits | None) -> int:
    """How many texts with words hidden may be run."""
    usual = max(FEWEST_PASSES, min(PASSES, TOKENS // len(trace.tokens)))
    if limits is None:
        return usual
    if limits.texts < WITHIN_LIMITS:
        raise NotComputableError(
            f"{limits.texts} forward passes are left; to judge heat maps takes {WITHIN_LIMITS}. "
            "Call the method itself on a capture of the text."
        )
    return min(usual, limits.texts)


def _unmoved(texts: ErasedTexts) -> bool:
    """Whether enough texts were run that an answer which never moved is known not to move."""
    return texts.passes >= FIRST_LOOK and texts.least_kept >= UNMOVED


def _summed(scores: Float[Tensor, " token"], words: Words) -> Float[Tensor, " word"]:
    """The scores of words: those of their sub-words, added up."""
    return torch.stack([scores.cpu().double()[list(places)].sum() for places in words.places])


def _judged(
    compared: OrderComparison,
    texts: ErasedTexts,
    rankings: Sequence[Sequence[int]],
    labels: Mapping[str, str],
    words: Words,
) -> Judged:
    """Everything that advice follows from."""
    return Judged(
        texts=texts,
        words=words.names,
        labels=tuple(labels.values()),
        rankings=tuple(tuple(ranking) for ranking in rankings),
        sizes=compared.plan.sizes,
        loss=compared.losses.mean(-1),
        p_value=compared.p_value,
        adjusted=discovery_rates(compared.p_value),
        surpassed=compared.surpassed,
        finest=compared.plan.finest,
        moved=texts.least_kept < UNMOVED,
    )


def _checks(
    words: Words, texts: ErasedTexts, compared: OrderComparison, left_out: Mapping[str, str]
) -> dict[str, object]:
    plan = compared.plan
    checks: dict[str, object] = {
        "units": "words" if words.joined else "tokens: there is no tokenizer that knows words",
        "words are taken away by": texts.erase,
        "texts run": texts.passes,
        "random orders": f"all {plan.orders}" if plan.exact else len(compared.random),
        "p-values": "exact" if plan.exact else "by random orders",
        "ended early": len(compared.random) < plan.orders,
        "correction": "Benjamini–Hochberg over the heat maps",
        "ties": "the earlier word first",
    }
    return checks | ({"left out": dict(left_out)} if left_out else {})
