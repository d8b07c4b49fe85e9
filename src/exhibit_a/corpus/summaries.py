"""What does a result say about its text, in a few numbers?

``summary_of`` turns a result into numbers of the text, short lists, numbers of each head and whole
maps. Token scores, maps, a reliance and a trial have a summary of their own; of any other result,
numbers of heads are kept as they are, numbers of rows as their mean, and numbers of layers as a
list. What is said in a word is also counted: 1 where it was said and 0 where not, so that its mean
over a corpus is how often.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import singledispatch
from types import NoneType
from typing import get_args

import torch
from torch import Tensor

from exhibit_a.corpus.findings import Findings, listed
from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.custom_methods import HeadMaps, TokenAttribution, result_of
from exhibit_a.methods.explanation.heat_maps import USUAL
from exhibit_a.methods.registry import Method, find
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.shapes import Options
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import capture
from exhibit_a.trace.gold import answered
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS

Numbers = dict[str, str | float]


@dataclass(frozen=True, eq=False)
class TextSummary:
    """What one result says about its text."""

    numbers: Numbers = field(default_factory=dict)
    lists: dict[str, list[float]] = field(default_factory=dict)
    heads: dict[str, list[Tensor]] = field(default_factory=dict)  # by site: (head,)
    dense: dict[str, Tensor] = field(default_factory=dict)


def results_of_texts(
    method: Method, subject: Subject, prompts: Sequence[Prompt], options: Options
) -> list[Result]:
    """What a method says about each of some encoded texts; together, where it says how."""
    if method.together is None or len(prompts) == 1:
        return [_result_of_text(method, subject, prompt, options) for prompt in prompts]
    traces = [capture(subject, **answered(prompt)) for prompt in prompts]
    together: list[Result] = method.together(traces, **options)
    return together


def _result_of_text(method: Method, subject: Subject, prompt: Prompt, options: Options) -> Result:
    """What a method says about one encoded text, and its answer where it has one."""
    asked = answered(prompt)
    if method.takes == ("subject", "text"):
        if twice := [name for name in asked if options.get(name) is not None]:
            raise BadRequestError(
                f"{twice[0]} was set for all texts, and the data have an answer for each; leave "
                "one of them out."
            )
        answer: Result = method.function(subject, asked.pop("text"), **options | asked)
        return answer
    trace = capture(subject, **asked)
    if method.gives != "result":
        return result_of(method, trace, **options)
    about = find("self_attribution").function(trace) if method.takes == ("attribution",) else trace
    made: Result = method.function(about, **options)
    return made


@singledispatch
def summary_of(result: Result) -> TextSummary:
    """The numbers of any result."""
    # A number that only some texts have is NaN for the others: every text has the same columns.
    perhaps = {
        entry.name
        for entry in fields(result)
        if set(get_args(entry.type)) in ({int, NoneType}, {float, NoneType})
    }
    numbers: Numbers = {
        name: _number(value)
        for name, value in vars(result).items()
        if (isinstance(value, int | float) and not isinstance(value, bool))
        or (value is None and name in perhaps)
    }
    lists: dict[str, list[float]] = {}
    heads: dict[str, list[Tensor]] = {}
    for leaf in leaves(result):
        if "site" in leaf.where and leaf.dims[:1] == ("head",):
            heads.setdefault(leaf.field, []).append(_mean(leaf, keep=1))
        elif leaf.dims[:1] in (("layer",), ("site",), ("condition",)) and not leaf.where:
            lists[leaf.field] = listed(_mean(leaf, keep=1))
    return TextSummary(numbers, lists, heads)


@summary_of.register
def _(result: Reliance) -> TextSummary:
    """The shares of the heads, and whether they are to be relied upon."""
    summary = summary_of.dispatch(Result)(result)
    whole: Numbers = {"whole": result.whole, "determined": float(result.determined)}
    words: Numbers = {"way": result.way, "reason": result.reason}
    return replace(summary, numbers=summary.numbers | whole | words)


@summary_of.register
def _(result: TokenAttribution) -> TextSummary:
    """The scores, and which token has most of them."""
    scores, tokens = to_float64(result.scores), result.tokens or ()
    strongest = int(scores.abs().argmax())
    numbers: Numbers = {
        "sum": float(scores.sum()),
        "largest": float(scores[strongest]),
        "largest_token": tokens[strongest],
    }
    return TextSummary(numbers, {"token_scores": listed(scores)}, dense={"scores": result.scores})


@summary_of.register
def _(result: HeadMaps) -> TextSummary:
    """The mean and the largest entry of every head."""
    heads = {
        "mean": [to_float64(maps).mean((1, 2)) for maps in result.maps],
        "largest": [to_float64(maps).abs().amax((1, 2)) for maps in result.maps],
    }
    dense = {f"maps/{site}": maps for site, maps in enumerate(result.maps)}
    return TextSummary(heads=heads, dense=dense)


@summary_of.register
def _(result: Trial) -> TextSummary:
    """The word for the text, and the numbers behind each head's word."""
    verdicts = result.verdicts
    measured = (
        "reliance",
        "error",
        "one_head",
        "chance",
        "pointing",
        "coherence",
        "unique",
        "distance",
        "null_fraction",
    )
    heads = {
        name: [
            torch.tensor([_number(getattr(v, name)) for v in verdicts if v.site == site.index])
            for site in result.sites
        ]
        for name in measured
    }
    words = {f"text {word}": float(result.word == word) for word in WORDS} | {
        f"heads {word}": float(sum(v.word == word for v in verdicts)) for word in WORDS
    }
    return TextSummary({"word": result.word, **words, **_rests(result)}, heads=heads)


def _rests(result: Trial) -> Numbers:
    """What the answer of a trial rests on, and what was advised: always the same columns."""
    reliance, carriers, pictures = result.reliance, result.carriers, result.pictures
    margins = {
        name: _number(None if reliance is None else getattr(reliance, name))
        for name in ("margin", "even_margin", "permuted_margin")
    }
    judged = {} if pictures is None else dict(zip(pictures.names, pictures.advices, strict=True))
    return {
        "advice": result.advice,
        **margins,
        "carriers": _number(None if carriers is None else len(carriers.heads)),
        **{f"picture {name}": judged.get(name, "") for name in USUAL},
        **{f"show {name}": _number(_shown(judged.get(name))) for name in USUAL},
    }


def _shown(advice: str | None) -> float | None:
    """Whether a picture may be shown, where it was judged."""
    return None if advice is None else float(advice == "show")


def joined(summaries: Sequence[TextSummary], *, dense: bool) -> Findings:
    """The summaries of several texts as the findings of a batch; what only some have is NaN."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.numbers))
    return Findings(
        numbers={name: [s.numbers.get(name, float("nan")) for s in summaries] for name in names},
        lists={name: [s.lists[name] for s in summaries] for name in summaries[0].lists},
        heads={
            name: [
                torch.stack(sites)
                for sites in zip(*(s.heads[name] for s in summaries), strict=True)
            ]
            for name in summaries[0].heads
        },
        dense=[summary.dense for summary in summaries] if dense else [],
    )


def _mean(leaf: Leaf, keep: int) -> Tensor:
    """The tensor with all axes after the first ``keep`` averaged."""
    numbers = to_float64(leaf.tensor)
    return numbers.flatten(keep).nanmean(-1) if numbers.ndim > keep else numbers


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
