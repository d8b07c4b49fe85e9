"""Which title and which rows does the command line print for a result?

``summary_rows(result)`` finds the function registered for the result's class, or for the nearest
class it extends. To summarise a new kind of result, register one function with
``@summary_rows.register``; results without one get the numbers of their largest tensors
(``any_rows.py``).

``top`` limits the rows where a result ranks them: attention edges, heads, patterns, tokens.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import singledispatch

import torch
from torch import Tensor

from exhibit_a.methods.attribution.context import ContextAttribution
from exhibit_a.methods.attribution.contribution import ContributionWeights
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.methods.explanation.adversarial import AdversarialAttention
from exhibit_a.methods.explanation.adversarial_keys import AdversarialKeys
from exhibit_a.methods.explanation.faithfulness import Faithfulness
from exhibit_a.methods.explanation.permutation import PermutationTest
from exhibit_a.methods.explanation.pictures import Pictures
from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.methods.heads.importance import HeadImportance, HeadSimilarity
from exhibit_a.methods.heads.patching import HeadPatching
from exhibit_a.methods.heads.removal import Pruning
from exhibit_a.methods.heads.sinks import SinkDiagnosis
from exhibit_a.methods.identifiability.alternatives import AlternativeAttention
from exhibit_a.methods.identifiability.counts import (
    AttentionIdentifiability,
    IdentifiabilityByLength,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.methods.mixing.head_mixing import HeadMixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.mixing.token_identifiability import TokenIdentifiability
from exhibit_a.methods.own import TokenAttribution
from exhibit_a.methods.triggers.triggers import Attack, Triggers
from exhibit_a.report.any_rows import any_rows
from exhibit_a.report.sentences import (
    MARKS,
    most_important,
    of_margin,
    ranked_pictures,
    reliance_sentences,
)
from exhibit_a.report.table import Rows
from exhibit_a.results.result import Result
from exhibit_a.shapes import SiteHeads
from exhibit_a.subject.site_names import layer_number, place_name
from exhibit_a.trials.comparison import Comparison, HeadChange
from exhibit_a.trials.trial import Trial

TOP = 12  # edges and heads
PATTERNS = 3  # triggers of each class
FIRST_WORDS = 3  # of a picture
BEGINNING = 36  # characters of a passage
DEMANDS = ("same_output", "same_sum", "not_negative", "as_keys_allow")


@dataclass(frozen=True)
class Summary:
    """What stands above a table, and its rows: a value for every column."""

    title: str
    rows: Rows


@singledispatch
def summary_rows(result: Result, top: int | None = None) -> Summary:
    """The title and the rows that the command line prints for a result."""
    rows, total = any_rows(result, top)
    title = f"{result.provenance.method.replace('_', ' ')} of {result.provenance.model}"
    return Summary(title if len(rows) == total else f"{title}, {len(rows)} of {total} rows", rows)


@summary_rows.register
def _(result: Comparison, top: int | None = None) -> Summary:
    """The heads that changed most, or the tensors that differ most."""

    def change(head: HeadChange) -> float:
        return abs((head.second_share or 0.0) - (head.first_share or 0.0))

    if result.heads:
        heads = sorted(result.heads, key=lambda head: -change(head))[: TOP if top is None else top]
        rows: Rows = [
            {
                "head": head.name,
                "first": head.first,
                "second": head.second,
                "first_share": head.first_share,
                "second_share": head.second_share,
                "moved": head.moved,
            }
            for head in heads
        ]
        return Summary(result.sentence, rows)
    if result.tensors:
        ranked = sorted(result.tensors, key=lambda tensor: -tensor.largest)[:top]
        return Summary(result.sentence, [asdict(tensor) for tensor in ranked])
    return Summary(result.sentence, [asdict(answer) for answer in result.answers])


@summary_rows.register
def _(result: Trial, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[head.site], result.sites),
            "head": head.head,
            "verdict": head.word,
            "of_margin": of_margin(result, head.reliance),
            "alone": of_margin(result, head.one_head),
            "shared": head.shared,
            "determined": head.determined,
            "points": head.points,
            "distance": head.distance,
        }
        for head in most_important(result)[: TOP if top is None else top]
    ]
    return Summary(result.advice or result.verdict, rows)


@summary_rows.register
def _(result: Reliance, top: int | None = None) -> Summary:
    by_size = torch.cat(result.heads).abs().argsort(descending=True, stable=True).tolist()
    places = [(site, head) for site, heads in enumerate(result.heads) for head in range(len(heads))]
    chosen = [places[place] for place in by_size[: TOP if top is None else top]]
    rows: Rows = [
        {
            "layer": layer_number(result.sites[site], result.sites),
            "head": head,
            "share": float(result.heads[site][head]),
            "of_margin": float(result.heads[site][head]) / (result.size or 1.0),
            "alone": float(result.one_head[site][head]),
            "error": float(result.standard_error[site][head]),
            "by_chance": float(result.null[site][head]),
            "points": float(result.pointing[site][head]),
            "coherence": float(result.coherence[site][head]),
        }
        for site, head in chosen
    ]
    doubt = "" if result.determined else f" Not determined: {result.reason}."
    return Summary(" ".join(reliance_sentences(result, {})) + doubt, rows)


@summary_rows.register
def _(result: EffectiveAttention, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "layer": layer_number(site, result.sites),
            "not_unique": float((result.verdict[i] == 2).double().mean()),
            "nullity": int(result.nullity[i].amax()),
            "pearson": float(result.pearson[i].mean()),
            "null_fraction": float(result.null_fraction[i].nanmean()),
            "moved": float(result.moved[i].nanmean()),
            "special_raw": float(result.special_raw[i].mean()),
            "special_effective": float(result.special_effective[i].mean()),
            "first_raw": float(result.first_raw[i].mean()),
            "first_effective": float(result.first_effective[i].mean()),
        }
        for i, site in enumerate(result.sites)
    ]
    count = len(result.tokens or ())
    return Summary(f"raw and effective attention, {count} tokens, means over heads and rows", rows)


@summary_rows.register
def _(result: IdentifiabilityByLength, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "tokens": length,
            "pearson": float(result.pearson[i].mean()),
            "null_fraction": float(result.null_fraction[i].mean()),
            "nullity": float(result.nullity[i].mean()),
            "special_raw": float(result.special_raw[i].mean()),
            "special_effective": float(result.special_effective[i].mean()),
        }
        for i, length in enumerate(result.lengths)
    ]
    widths = ", ".join(map(str, sorted(set(result.d_head))))
    return Summary(f"by length; heads are {widths} wide", rows)


@summary_rows.register
def _(result: AttentionIdentifiability, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = []
    for site in result.sites:
        shares: list[float | None] = result.unique(site.index).tolist()
        shares += [None] * (len(DEMANDS) - len(shares))
        rows.append(
            {"layer": layer_number(site, result.sites), **dict(zip(DEMANDS, shares, strict=True))}
        )
    return Summary("share of rows that are unique, under more and more demands", rows)


@summary_rows.register
def _(result: AlternativeAttention, top: int | None = None) -> Summary:
    columns = {"weight": result.row, "low": result.low, "high": result.high}
    columns["farthest"] = result.farthest
    widest = (result.high - result.low).argsort(descending=True, stable=True).tolist()
    keys = range(len(widest)) if top is None else widest[:top]
    rows: Rows = [
        {"key": key, "token": result.key_tokens[key]}
        | {name: float(weights[key]) for name, weights in columns.items()}
        for key in keys
    ]
    place = f"site {result.site}, head {result.head}, query {result.query}"
    unique = "unique" if result.identifiable else f"{result.freedom} directions are free"
    return Summary(f"{place}: {unique}; farthest alternative {result.distance:.3f} away", rows)


@summary_rows.register
def _(result: HiddenAttribution, top: int | None = None) -> Summary:
    if result.stack != result.source:
        return summary_rows.dispatch(Result)(result, top)
    shares, displaced, tokens = result.self_contribution, result.not_own_top, result.tokens or ()
    rows = Rows()
    for layer in range(len(shares)):
        least = int(shares[layer].argmin())
        rows.append(
            {
                "layer": layer,
                "own_share": float(shares[layer].median()),
                "not_own_top": float(displaced[layer]),
                "least_of_itself": f"{tokens[least]} ({float(shares[layer, least]):.2f})",
            }
        )
    return Summary("what is left of a token", rows)


@summary_rows.register
def _(result: HeadMixing, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "layer": place_name(stack, layer, kind, set(result.stack)).replace("layer ", ""),
            "pearson": float(result.pearson[i].nanmean()),
            "spearman": float(result.spearman[i].nanmean()),
            "jensen_shannon": float(result.jensen_shannon[i].nanmean()),
            "total_variation": float(result.total_variation[i].nanmean()),
        }
        for i, (stack, layer, kind) in enumerate(
            zip(result.stack, result.layer, result.kind, strict=True)
        )
    ]
    return Summary("attention and input contribution, means over heads", rows)


@summary_rows.register
def _(result: TokenIdentifiability, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "map": name,
            "layer": layer,
            "found": float(rate[layer]),
            "interval": tuple(result.interval[name][layer].tolist()),
            "control": _at(result.control, name, layer),
            "selectivity": _at(result.selectivity, name, layer),
            "memorised by the control": _at(result.memorised, name, layer),
            "chance": result.chance,
        }
        for name, rate in result.rate.items()
        for layer in range(len(rate))
    ]
    return Summary(f"tokens found again ({result.metric})", rows)


def _at(by_map: Mapping[str, Tensor], name: str, layer: int) -> float | None:
    """The number of a map at a layer, for maps that have one."""
    return float(by_map[name][layer]) if name in by_map else None


@summary_rows.register
def _(result: SelfAttribution, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[edge.site], result.sites),
            "head": edge.head,
            "query": edge.query_token,
            "key": edge.key_token,
            "contribution": edge.score,
        }
        for edge in result.strongest(TOP if top is None else top)
    ]
    return Summary(f"strongest attention edges for the {result.target}", rows)


@summary_rows.register
def _(result: AttributionTree, top: int | None = None) -> Summary:  # noqa: ARG001
    tokens = result.tokens or ()
    rows: Rows = [
        {
            "layer": edge.layer,
            "parent": tokens[edge.parent],
            "child": tokens[edge.child],
            "score": edge.score,
        }
        for edge in result.edges
    ]
    return Summary(f"tree for the {result.target}", rows)


@summary_rows.register
def _(result: HeadImportance, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[site], result.sites),
            "head": head,
            "importance": float(result.scores[site, head]),
            "standard_error": float(result.standard_error[site, head]),
        }
        for site, head in result.ranking[::-1][: TOP if top is None else top]
    ]
    return Summary(f"most important heads by {result.by}, {result.examples} examples", rows)


@summary_rows.register
def _(result: HeadSimilarity, top: int | None = None) -> Summary:
    first, second = result.names
    heads = [tuple(place) for place in result.first.isfinite().nonzero().tolist()]
    ranked = sorted(heads, key=lambda place: float(result.first[place]))[::-1]
    rows: Rows = [
        {"layer": place[0], "head": place[1], first: float(result.first[place])}
        | {second: float(result.second[place])}
        for place in ranked[: TOP if top is None else top]
    ]
    low, high = result.interval
    measures = result.provenance.parameters.get("by", ["unknown measures"])
    by = " and ".join(dict.fromkeys(map(str, measures)))
    title = (
        f"importance by {by}: Pearson {result.pearson:.2f} ({low:.2f} to {high:.2f}), "
        f"Spearman {result.spearman:.2f}"
    )
    return Summary(title, rows)


@summary_rows.register
def _(result: PruningCurve, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "heads_gone": int(result.removed[point]),
            "share": float(result.fraction[point]),
            "accuracy": float(result.accuracy[point]),
            "interval": tuple(result.interval[point].tolist()),
            "loss": float(result.loss[point]),
        }
        for point in range(len(result.fraction))
    ]
    title = f"{result.order} important heads first, by {result.by}"
    return Summary(f"{title}; mean accuracy {result.area:.3f}", rows)


@summary_rows.register
def _(result: HeadPatching, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[site], result.sites),
            "head": head,
            "effect": float(result.effects[site][head]),
            "patched": _known(result.patched[site][head]),
        }
        for site, head in _strongest_heads(result.effects, top)
    ]
    change = result.counterfactual_value - result.value
    title = (
        f"heads that carry the difference of two prompts ({change:+.3g} in the {result.target}); "
        f"correlation with true patching {result.correlation:.2f}"
    )
    return Summary(title, rows)


@summary_rows.register
def _(result: SinkDiagnosis, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[site], result.sites),
            "head": head,
            "token": result.tokens_of(site)[1][int(result.key[site][head])],
            "weight": float(result.weight[site][head]),
            "kind": result.kind_of(site, head),
            "length": float(result.length[site][head]),
            "of_output": float(result.output_share[site][head]),
            "unseen": _known(result.null_share[site][head]),
        }
        for site, head in _strongest_heads(result.weight, top)
    ]
    return Summary("the token that each head looks at most, and what that does", rows)


@summary_rows.register
def _(result: ContributionWeights, top: int | None = None) -> Summary:
    lengths = tuple(site.sum(1) for site in result.lengths)
    rows: Rows = []
    for site, head in _strongest_heads(lengths, top):
        scores, (queries, keys) = result.scores[site][head], result.tokens_of(site)
        query, key = divmod(int(scores.abs().argmax()), scores.shape[1])
        rows.append(
            {
                "layer": layer_number(result.sites[site], result.sites),
                "head": head,
                "query": queries[query],
                "key": keys[key],
                "contribution": float(scores[query, key]),
                "of_output": float(result.shares[site][head, query, key]),
            }
        )
    return Summary("the strongest contribution in the heads with the longest outputs", rows)


def _strongest_heads(numbers: tuple[SiteHeads, ...], top: int | None) -> list[tuple[int, int]]:
    """The heads (site, head) with the largest numbers, the largest first."""
    places = [(site, head) for site, heads in enumerate(numbers) for head in range(len(heads))]
    size = torch.cat([heads.double().nan_to_num().abs() for heads in numbers])
    ranked = size.argsort(descending=True, stable=True).tolist()
    return [places[place] for place in ranked[: TOP if top is None else top]]


def _known(number: Tensor) -> float | None:
    """A number, or nothing where it was not measured."""
    return None if bool(number.isnan()) else float(number)


@summary_rows.register
def _(result: Pruning, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "heads_gone": len(result.heads),
            "parameters": result.parameters[1],
            "of": result.parameters[0],
            "times_faster": result.speed_up,
            "answers_differ_by": result.difference,
            "can_be_saved": result.saves,
        }
    ]
    return Summary(f"without {len(result.heads)} heads", rows)


@summary_rows.register
def _(result: Triggers, top: int | None = None) -> Summary:
    count = PATTERNS * len(result.labels) if top is None else top
    rows: Rows = [
        {
            "pattern": pattern.text,
            "speaks_for": result.labels[pattern.predicted],
            "score": sum(pattern.scores),
            "layer": pattern.site,
            "head": pattern.head,
        }
        for pattern in result.patterns[:count]
    ]
    return Summary("patterns that answers rest on", rows)


@summary_rows.register
def _(result: Attack, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "pattern": pattern.text,
            "speaks_for": result.labels[pattern.predicted],
            "class": label,
            "before": float(result.before[place]),
            "after": float(result.after[number, place]),
            "interval": tuple(result.interval[number, place].tolist()),
            "random": float(result.random[number, place]),
            "attention": float(result.attention[number, place]),
        }
        for number, pattern in enumerate(result.patterns)
        for place, label in enumerate(result.labels)
        if result.counts[place]
    ]
    return Summary("accuracy of each class", rows)


@summary_rows.register
def _(result: PermutationTest, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "shuffled": condition,
            "accuracy": float(result.accuracy[i]),
            "interval": tuple(result.accuracy_interval[i].tolist()),
            "drop": float(result.drop[i]),
            "p": float(result.p_value[i]),
            "change": float(result.mean_change[i]),
            "flips": float(result.flip_rate[i]),
            "uniform": float(result.uniform_accuracy[i]),
        }
        for i, condition in enumerate(result.conditions)
    ]
    title = f"{result.what} permuted by {result.scope}; own accuracy {result.own_accuracy:.3f}"
    return Summary(title, rows)


@summary_rows.register
def _(result: AdversarialAttention, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "where": condition,
            "divergence": float(result.divergence[i]),
            "most_possible": float(result.bound[i]),
            "at_the_answer": float(result.at_answer[i]),
            "same_outputs": float(result.free[i]),
            "answer_moved": float(result.change[i]),
            "exact": bool(result.exact[i]),
        }
        for i, condition in enumerate(result.conditions)
    ]
    if bool(result.free.isnan().all()):
        for row in rows:
            del row["same_outputs"]  # was not asked for
    return Summary(f"farthest attention found (Jensen–Shannon) for the {result.target}", rows)


@summary_rows.register
def _(result: AdversarialKeys, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "keys": condition,
            "accuracy": float(result.accuracy[i]),
            "interval": tuple(result.accuracy_interval[i].tolist()),
            "same_answer": float(result.agreement[i]),
            "distance": float(result.key_distance[i].mean()),
            "without_shift": float(result.shift_free_distance[i].mean()),
            "divergence": float(result.divergence[i].mean()),
        }
        for i, condition in enumerate(result.conditions)
    ]
    return Summary("adversarial keys", rows)


@summary_rows.register
def _(result: TokenAttribution, top: int | None = None) -> Summary:
    ranked = result.scores.abs().argsort(descending=True, stable=True).tolist()
    tokens = result.tokens or ()
    rows: Rows = [
        {"position": place, "token": tokens[place], "score": float(result.scores[place])}
        for place in (range(len(ranked)) if top is None else ranked[:top])
    ]
    return Summary(f"tokens by {result.method} for the {result.target}", rows)


@summary_rows.register
def _(result: Pictures, top: int | None = None) -> Summary:
    shown = FIRST_WORDS if top is None else top
    rows: Rows = [
        {
            "picture": picture.label,
            "advice": f"{MARKS[picture.advice]} {picture.advice}",
            "p": picture.p_value,
            "adjusted": picture.adjusted,
            "percentile": picture.percentile,
            "loss": picture.loss,
            "probability_loss": picture.probability_loss,
            "first_words": ", ".join(picture.words[place] for place in picture.ranking[:shown]),
        }
        for picture in ranked_pictures(result)
    ]
    return Summary(result.advice, rows)


@summary_rows.register
def _(result: ContextAttribution, top: int | None = None) -> Summary:
    shown = result.ranking()[: len(result.passages) if top is None else top]
    rows: Rows = [
        {
            "passage": place + 1,
            "begins": shortened(result.passages[place]),
            "needed": place in result.rests_on,
            "without_it": float(result.leave_one_out[place]),
            **({} if result.regression is None else {"adds": float(result.regression[place])}),
            **{name: float(scores[place]) for name, scores in result.scores.items()},
        }
        for place in shown
    ]
    return Summary(f"{result.verdict} The answer: {result.answer.strip()!r}", rows)


@summary_rows.register
def _(result: Faithfulness, top: int | None = None) -> Summary:  # noqa: ARG001
    return Summary("faithfulness", result.table())


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= BEGINNING else f"{line[:BEGINNING]}…"
