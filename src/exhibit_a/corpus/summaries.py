"""What a result says about its text, in a few numbers.

``summary_of`` turns a result into numbers of the text, short lists, numbers of each head and whole
maps. Token scores, maps, a reliance and a trial have a summary of their own; of any other result,
numbers of heads are kept as they are, numbers of rows as their mean, and numbers of layers as a
list. A word is also counted: 1 where it was given and 0 where not, so that its mean
over a corpus is how often.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import singledispatch
from types import NoneType
from typing import get_args

import torch
from torch import Tensor

from exhibit_a.corpus.tasks import Findings, listed
from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.custom_methods import HeadMaps, TokenAttribution, result_of
from exhibit_a.methods.explanation.drawing import USUAL
from exhibit_a.methods.identifiability.counts import AttentionIdentifiability
from exhibit_a.methods.identifiability.effective import VERDICTS, EffectiveAttention
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.registry import Method, find
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.shapes import HasLogits, Options
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import answered
from exhibit_a.trace.batches import stand_alone
from exhibit_a.trace.capture import capture, capture_alike
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS

WRITTEN = {"input_ids", "attention_mask", "token_type_ids"}  # what a text alone is encoded as

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
) -> list[tuple[Result, HasLogits | None]]:
    """What a method says about each of some texts of one length, and the model's outputs."""
    inputs = {name for prompt in prompts for name in prompt.inputs}
    together = len(prompts) > 1 and inputs <= WRITTEN and not stand_alone(subject)
    if method.takes_several and together:
        traces = capture_alike(subject, prompts)
        results: list[Result] = method.function(traces, **options)
        return list(zip(results, (trace.output for trace in traces), strict=True))
    return [_result_of_text(method, subject, prompt, options) for prompt in prompts]


def _result_of_text(
    method: Method, subject: Subject, prompt: Prompt, options: Options
) -> tuple[Result, HasLogits | None]:
    """What a method says about one encoded text, and the model's output where that is known."""
    requested = answered(prompt)
    if method.takes == ("subject", "text"):
        if twice := [name for name in requested if options.get(name) is not None]:
            raise BadRequestError(
                f"{twice[0]} was set for all texts, and the data have an answer for each; leave "
                "one of them out."
            )
        answer: Result = method.function(subject, requested.pop("text"), **options | requested)
        return answer, None
    trace = capture(subject, **requested)
    if method.gives != "result":
        return result_of(method, trace, **options), trace.output
    about = find("self_attribution").function(trace) if method.takes == ("attribution",) else trace
    made: Result = method.function(about, **options)
    return made, trace.output


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
def _(result: EffectiveAttention) -> TextSummary:
    """Means over the rows of every head, and shares of rows by verdict."""
    heads = {
        name: [_rows(numbers) for numbers in getattr(result, name)]
        for name in ("rank", "nullity", "null_fraction", "moved")
    }
    for code, verdict in enumerate(VERDICTS[:2]):
        heads[verdict] = [_rows(codes == code) for codes in result.verdict]
    names = ("pearson", "special_raw", "first_raw", "special_effective", "first_effective")
    heads |= {name: list(getattr(result, name)) for name in names}
    shown = ("null_fraction", "pearson", "identifiable")
    numbers: Numbers = {f"mean_{name}": _over_heads(heads[name]) for name in shown}
    dense = {f"effective/{site}": maps for site, maps in enumerate(result.effective)}
    return TextSummary(numbers, heads=heads, dense=dense)


@summary_of.register
def _(result: AttentionIdentifiability) -> TextSummary:
    """Means over the rows of every head, and the share of rows that are unique."""
    names = ("same_output", "same_sum", "not_negative", "generated", "reach")
    counts = {name: getattr(result, name) for name in names}
    known = {name: sites for name, sites in counts.items() if None not in sites}
    heads = {name: [_rows(rows) for rows in sites] for name, sites in known.items()}
    unique = {
        f"unique_{name}": [_rows(rows == 0) for rows in sites]
        for name, sites in known.items()
        if name != "reach"
    }
    numbers: Numbers = {f"mean_{name}": _over_heads(sites) for name, sites in unique.items()}
    if movable := [rows for rows in result.movable if rows is not None]:
        heads["movable"] = [to_float64(rows).nanmean(-1) for rows in movable]
        numbers["mean_movable"] = _over_heads(heads["movable"])
    return TextSummary(numbers, heads=heads | unique)


@summary_of.register
def _(result: HiddenAttribution) -> TextSummary:
    """Layer by layer behind the input: what tokens keep of themselves, on average."""
    lists = {
        "own_contribution": result.self_contribution.mean(-1),
        "not_own_top": result.not_own_top,
        "standard_error": result.standard_error.mean((-2, -1)),
    }
    return TextSummary(
        {"adjoint_gap": float(result.checks["adjoint_gap"])},
        {name: listed(layers[1:]) for name, layers in lists.items()},
        dense={"contribution/0": result.contribution[1:]},
    )


@summary_of.register
def _(result: SelfAttribution) -> TextSummary:
    """The largest entry and the sum of every head, and how complete each site is."""
    heads = {
        "largest": list(result.head_maxima),
        "sum": [scores.sum((1, 2)) for scores in result.scores],
    }
    numbers: Numbers = {
        "largest_gap": float(result.gap.amax()),
        "unsure_sites": float(result.complete.count(False)),
    }
    lists = {name: listed(getattr(result, name)) for name in ("change", "gap", "points")}
    dense = {f"scores/{site}": scores for site, scores in enumerate(result.scores)}
    return TextSummary(numbers, lists, heads, dense)


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
    reliance, carriers, heat_maps = result.reliance, result.carriers, result.heat_maps
    # What the answer of a trial rests on, and what was advised: always the same columns.
    margins = {
        name: _number(None if reliance is None else getattr(reliance, name))
        for name in ("margin", "baseline_margin", "permuted_margin")
    }
    judged = {} if heat_maps is None else dict(zip(heat_maps.names, heat_maps.advices, strict=True))
    return TextSummary(
        {
            "word": result.word,
            **words,
            "advice": result.advice,
            **margins,
            "carriers": _number(None if carriers is None else len(carriers.heads)),
            **{f"heat map {name}": judged.get(name, "") for name in USUAL},
            **{f"show {name}": _number(_shown(judged.get(name))) for name in USUAL},
        },
        heads=heads,
    )


def _shown(advice: str | None) -> float | None:
    """Whether a heat map may be shown, where it was judged."""
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


def _rows(numbers: Tensor) -> Tensor:
    """The mean over rows of every head."""
    return to_float64(numbers).mean(-1)


def _over_heads(sites: Sequence[Tensor]) -> float:
    """The mean over the heads of all sites."""
    return float(torch.cat([to_float64(site) for site in sites]).nanmean())


def _mean(leaf: Leaf, keep: int) -> Tensor:
    """The tensor with all axes after the first ``keep`` averaged."""
    numbers = to_float64(leaf.tensor)
    return numbers.flatten(keep).nanmean(-1) if numbers.ndim > keep else numbers


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
