"""Compares two texts, two models or two checkpoints.

Two results of one kind are put side by side. Of two trials:

1. the answers, label by label;
2. the words: those that both texts share in their order, and those that only one of them has, each
   with what its answer took from it;
3. the heads, where both models have the same: the verdicts, the shares of the margin, and how far
   the attention moved where both read the same tokens (total variation, mean over rows).

Of any two results: every tensor of the same shape, with its largest and its mean difference.
"""

from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.result import Result
from exhibit_a.results.tables import leaves, record_table
from exhibit_a.shapes import Options
from exhibit_a.subject.anatomy import head_name, main_stack
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.units import units_of
from exhibit_a.trials.sentences import percent_text
from exhibit_a.trials.trial import Trial, trial

if TYPE_CHECKING:
    import pandas

ComparisonTable = Literal["heads", "words", "answers", "tensors"]


@dataclass(frozen=True)
class AnswerChange:
    """A label, and its share in both answers; None where one does not name it."""

    label: str  # a class, or a token of the answer
    first: float | None  # its probability in the first
    second: float | None  # and in the second


@dataclass(frozen=True)
class WordChange:
    """A word of both texts, or of one of them, and what each answer took from it."""

    first: str | None  # the word in the first text
    second: str | None  # the word in the second
    first_score: float | None  # what the first answer took from it
    second_score: float | None  # what the second took


@dataclass(frozen=True)
class HeadChange:
    """A head of both models: its verdicts, its shares of the margin, how far its map moved."""

    site: int  # attention layer, counted through the model
    head: int
    name: str  # as people read it
    first: str  # verdict in the first
    second: str  # verdict in the second
    first_share: float | None  # of the margin, in the first
    second_share: float | None  # of the margin, in the second
    moved: float | None  # weight that lies elsewhere in the second; nothing for other tokens


@dataclass(frozen=True)
class TensorChange:
    """A tensor of both results, and how far its entries differ."""

    field: str  # of both results
    place: str  # of the tensor in the field
    entries: int  # how many numbers
    largest: float  # absolute difference
    mean: float  # absolute difference


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Result):
    """Two results of one kind, and what differs."""

    first: Result
    second: Result
    names: tuple[str, str]
    sentence: str  # what differs, for a person
    answers: tuple[AnswerChange, ...] = ()
    words: tuple[WordChange, ...] = ()
    heads: tuple[HeadChange, ...] = ()
    tensors: tuple[TensorChange, ...] = ()

    def to_pandas(self, *, what: str = "") -> "pandas.DataFrame":
        """One row for each head, word, answer or tensor; without a name, the first that is known.

        ``what``: heads, words, answers, tensors.
        """
        tables = {name: getattr(self, name) for name in get_args(ComparisonTable)}
        if what:
            require_choice("table", what, get_args(ComparisonTable))
        rows = tables[what] if what else next(filter(None, tables.values()), ())
        return record_table(asdict(row) for row in rows)

    def summary(self) -> str:
        """What differs, in a paragraph."""
        return f"{self.names[0]} compared with {self.names[1]}. {self.sentence}"


Compared = Result | Subject | str


def compare(
    first: Compared,
    second: Compared,
    *,
    subject: Subject | None = None,
    text: str | None = None,
    names: tuple[str, str] | None = None,
    **options: Any,
) -> Comparison:
    """Put two results, two texts or two models side by side, and say what differs.

    >>> trials = [xa.trial(subject, text, probes=2) for text in ("a fine film", "a dull film")]
    >>> compared = xa.compare(*trials)
    >>> [(word.first, word.second) for word in compared.words][1:4]
    [('a', 'a'), ('fine', 'dull'), ('film', 'film')]
    >>> compared.to_pandas().columns[:4].tolist()
    ['site', 'head', 'name', 'first']

    Any two results of one kind can be compared; texts and models are examined first:

    >>> xa.compare(xa.effective_attention(trace), xa.effective_attention(trace)).tensors[0].largest
    0.0
    >>> xa.compare("a fine film", "a dull film", subject=subject, probes=2).names
    ('a fine film', 'a dull film')

    Args:
        first: a result, a text (with ``subject``) or a model (with ``text``).
        second: another of the same.
        subject: the model that reads both texts.
        text: the text that both models read.
        names: what the two are called; without, what tells them apart.
        options: what `trial` takes, where texts or models are given.
    """
    first_result, second_result = _examined(first, second, subject, text, options)
    if type(first_result) is not type(second_result):
        kinds = " and a ".join(type(result).__name__ for result in (first_result, second_result))
        raise BadRequestError(f"Only results of one kind can be compared; these are a {kinds}.")
    called = names or _names(first_result, second_result)
    common: Options = {
        "first": first_result,
        "second": second_result,
        "names": called,
        "provenance": provenance(
            _model(first_result, second_result), "compare", first=called[0], second=called[1]
        ),
        "checks": _checks(first_result, second_result),
    }
    if isinstance(first_result, Trial) and isinstance(second_result, Trial):
        trials = first_result, second_result
        answers, words, heads = _answers(*trials), _words(*trials), _heads(*trials)
        sentence = _sentence(answers, heads)
        return Comparison(**common, sentence=sentence, answers=answers, words=words, heads=heads)
    tensors = _tensors(first_result, second_result)
    largest = max(tensors, key=lambda change: change.largest, default=None)
    sentence = (
        "No tensor of the two has the same shape."
        if largest is None
        else f"The largest difference is {largest.largest:.3g}, in {largest.field}."
    )
    return Comparison(**common, sentence=sentence, tensors=tensors)


def _examined(
    first: Compared,
    second: Compared,
    subject: Subject | None,
    text: str | None,
    options: Options,
) -> tuple[Result, Result]:
    """Both as results: texts and models are examined."""
    if isinstance(first, Result) and isinstance(second, Result):
        if subject is not None or text is not None or options:
            raise BadRequestError("Two results are compared as they are: give nothing else.")
        return first, second
    if isinstance(first, str) and isinstance(second, str):
        if subject is None or text is not None:
            raise BadRequestError("Two texts need one model: compare(first, second, subject=…).")
        return trial(subject, first, **options), trial(subject, second, **options)
    if isinstance(first, Subject) and isinstance(second, Subject):
        if text is None or subject is not None:
            raise BadRequestError("Two models need one text: compare(first, second, text=…).")
        return trial(first, text, **options), trial(second, text, **options)
    raise BadRequestError("Compare two results, two texts or two models (from xa.load).")


def _model(first: Result, second: Result) -> str:
    models = dict.fromkeys((first.provenance.model, second.provenance.model))
    return " and ".join(models)


def _names(first: Result, second: Result) -> tuple[str, str]:
    """What tells two results apart: their models, else their texts, else their order."""
    models = first.provenance.model, second.provenance.model
    if models[0] != models[1]:
        return models
    texts = _text(first), _text(second)
    return texts if texts[0] != texts[1] and all(texts) else ("first", "second")


def _text(result: Result) -> str:
    layout = next(iter(result.layouts.values()), None)
    return " ".join(result.tokens or ()) if layout is None else " / ".join(layout.texts)


def _checks(first: Result, second: Result) -> Options:
    """Whether the two are about the same, and the checks of both."""
    return {
        "same model": first.provenance.model == second.provenance.model,
        "same tokens": first.tokens == second.tokens,
        **{f"first, {name}": value for name, value in first.checks.items()},
        **{f"second, {name}": value for name, value in second.checks.items()},
    }


def _answers(first: Trial, second: Trial) -> tuple[AnswerChange, ...]:
    labels = dict.fromkeys((*first.answer, *second.answer))
    return tuple(
        AnswerChange(label, first.answer.get(label), second.answer.get(label)) for label in labels
    )


def _words(first_trial: Trial, second_trial: Trial) -> tuple[WordChange, ...]:
    """Both texts word by word: what they share stands in one row."""
    first, second = _scored(first_trial), _scored(second_trial)
    matcher = SequenceMatcher(
        None, [word for word, _ in first], [word for word, _ in second], False
    )
    rows = list[WordChange]()
    for kind, a, b, c, d in matcher.get_opcodes():
        paired = max(b - a, d - c) if kind != "replace" or b - a == d - c else 0
        for step in range(paired):
            left = first[a + step] if a + step < b else (None, None)
            right = second[c + step] if c + step < d else (None, None)
            rows.append(WordChange(left[0], right[0], left[1], right[1]))
        if not paired:  # as many words as another number of words: one after the other
            rows += [WordChange(word, None, score, None) for word, score in first[a:b]]
            rows += [WordChange(None, word, None, score) for word, score in second[c:d]]
    return tuple(rows)


def _scored(examined: Trial) -> list[tuple[str, float | None]]:
    """The words of the input, each with what the answer took from its tokens."""
    scores = examined.token_scores
    stack = main_stack(examined.sites)
    layout = examined.layouts.get(stack)
    names, members = examined.sequences[stack], None
    if layout is not None and len(layout) == len(names):
        units = units_of(layout)
        names, members = units.layout.names, units.members
    places = members or tuple((place,) for place in range(len(names)))
    return [
        (name, None if scores is None else float(scores[list(of)].sum()))
        for name, of in zip(names, places, strict=True)
    ]


def _heads(first: Trial, second: Trial) -> tuple[HeadChange, ...]:
    """The heads, where both models have the same; and how far each moved over the same tokens."""
    shape = [
        [(site.stack, site.layer, site.kind, site.heads) for site in t.sites]
        for t in (first, second)
    ]
    if shape[0] != shape[1]:
        return ()
    rows = list[HeadChange]()
    for head in first.verdicts:
        other = second.of(head.site, head.head)
        maps = first.attention[head.site][head.head], second.attention[head.site][head.head]
        same = first.sequences == second.sequences
        moved = float((maps[0] - maps[1]).abs().sum(-1).mean() / 2) if same else None
        shares = _share(first, head.reliance), _share(second, other.reliance)
        name = head_name(first.sites, head.site, head.head)
        place = (head.site, head.head, name)
        rows.append(HeadChange(*place, head.word, other.word, *shares, moved))
    return tuple(rows)


def _share(examined: Trial, reliance: float | None) -> float | None:
    """A head's share as a part of the margin."""
    if reliance is None or examined.reliance is None:
        return None
    return reliance / (examined.reliance.size or 1.0)


def _tensors(first: Result, second: Result) -> tuple[TensorChange, ...]:
    others = {(leaf.field, tuple(leaf.where.items())): leaf.tensor for leaf in leaves(second)}
    rows = list[TensorChange]()
    for leaf in leaves(first):
        other = others.get((leaf.field, tuple(leaf.where.items())))
        if other is None or other.shape != leaf.tensor.shape or not leaf.tensor.numel():
            continue
        gap = (to_float64(leaf.tensor) - to_float64(other)).abs().nan_to_num(torch.inf)
        gap = torch.where(to_float64(leaf.tensor).isnan() & to_float64(other).isnan(), 0.0, gap)
        place = ", ".join(f"{axis} {label}" for axis, label in leaf.where.items())
        rows.append(
            TensorChange(leaf.field, place, gap.numel(), float(gap.max()), float(gap.mean()))
        )
    return tuple(rows)


def _sentence(answers: tuple[AnswerChange, ...], heads: tuple[HeadChange, ...]) -> str:
    """What differs, in two sentences: the answers, and the heads."""
    tops = [
        max(answers, key=lambda answer: getattr(answer, side) or 0.0, default=None)
        for side in ("first", "second")
    ]
    claims = [
        f"the {side} says {top.label} ({getattr(top, side):.2f})"
        for side, top in zip(("first", "second"), tops, strict=True)
        if top is not None and getattr(top, side) is not None
    ]
    agree = "The answers agree" if tops[0] == tops[1] else "The answers differ"
    sentences = [f"{agree}: {', '.join(claims)}."] if claims else []
    if not heads:
        return " ".join((*sentences, "The models have different heads, so heads are not compared."))
    other = [head for head in heads if head.first != head.second]
    sentences.append(f"{len(other)} of {len(heads)} heads have another verdict.")
    shares = [
        (head.first_share, head.second_share, head.name)
        for head in heads
        if head.first_share is not None and head.second_share is not None
    ]
    if shares:
        before, after, name = max(shares, key=lambda share: abs(share[1] - share[0]))
        sentences.append(
            f"The share of the margin changes most in {name}: "
            f"from {percent_text(before)} to {percent_text(after)}."
        )
    return " ".join(sentences)
