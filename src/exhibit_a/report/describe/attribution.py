"""Describes what an answer rests on: edges, heads, the tree, contributions and passages."""

import math

import numpy as np
import torch
from jaxtyping import Float

from exhibit_a.methods.attribution.context import ContextAttribution
from exhibit_a.methods.attribution.contribution import ContributionWeights
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.methods.custom_methods import HeadMaps
from exhibit_a.methods.explanation.drawing import label_of
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.blocks import (
    AnswerSummary,
    Blocks,
    Cell,
    Chart,
    Column,
    Figure,
    Grid,
    Maps,
    Mode,
    Passage,
    Passages,
    Rows,
    Series,
    ShadedSentence,
    SiteMaps,
    Table,
    Texts,
    Tree,
)
from exhibit_a.report.describe.parts import (
    TOP,
    by_layer,
    column,
    from_columns,
    from_rows,
    head_numbers,
    layers,
    of_heads,
    points,
    sites_of,
    strongest_heads,
)
from exhibit_a.report.describe.registry import describe
from exhibit_a.report.sentences import game_sentences, reliance_sentences
from exhibit_a.subject.anatomy import layer_name, layer_number, main_stack

NOISE = 2.0  # standard deviations; a share that is not beyond chance is left white
MOST_EDGES = 4000  # of a tree
LOWEST = 0.02  # threshold of the tree below which no edge is offered
BEGINNING = 36  # characters of a passage

SHARE = Column("share", "share", "Its part in what the answer loses when all heads are levelled.")
OF_MARGIN = Column(
    "of_margin", "of margin", "The share as a part of the answer's margin; below zero it speaks "
    "against the answer.",
)  # fmt: skip
STEERING = Column(
    "steering", "steering", "What the head adds by moving where other heads look; empty if unknown."
)
ALONE = Column("alone", "alone", "What the answer loses when this head alone is levelled.")
POINTS = Column("points", "points", "Cosine of weights and contributions, row by row.")
COHERENCE = Column(
    "coherence",
    "coherence",
    "How far its rows speak for the same side: 1 means all of them, 0 as many against as for.",
)


def attribution_mode(maps: SiteMaps) -> Mode:
    """What each weight contributed to the answer."""
    return Mode(
        "attribution",
        "Attribution",
        maps,
        "Attribution: what each weight contributed to the answer, for (orange) or against it "
        "(blue).",
    )


def reliance_mode(maps: SiteMaps) -> Mode:
    """What each weight added, in place of levelled attention."""
    return Mode(
        "reliance",
        "Reliance",
        maps,
        "Reliance: what this weight, in place of levelled attention, added to the answer (orange) "
        "or took from it (blue), while all heads go from levelled attention to their own.",
    )


@describe.register
def _(result: Reliance) -> Blocks:
    scale = result.size or 1.0
    columns = {
        SHARE: result.heads,
        OF_MARGIN: [to_float64(heads) / scale for heads in result.heads],
        STEERING: result.steering,
        ALONE: result.one_head,
        Column(
            "error", "error", "Standard error of the share; 0 where nothing was sampled."
        ): result.standard_error,
        Column(
            "by_chance", "by chance", "Spread of the share, had the rows been permuted."
        ): result.null,
        Column(
            "alignment", "alignment", "Correlation of weights and gradients along rows."
        ): result.alignment,
    }
    sentences = [*reliance_sentences(result, {}), *game_sentences(result)]
    unknown = "" if result.determined else f" Not determined: {result.reason}."
    table = of_heads(" ".join(sentences) + unknown, result.sites, columns, result.heads)
    headline = sentences.pop(1) if result.determined else unknown.strip()
    summary = AnswerSummary(
        advice=headline,
        answer=[],
        target=result.target,
        word="",
        verdict="",
        reliance=sentences,
        carriers="",
        sequence=main_stack(result.sites),
        shares=result.token_scores.tolist(),
        caption="Shaded by what looking at each word, in place of levelled attention, added to the "
        "answer (orange) or took from it (blue), all heads and layers together.",
        skipped=[],
    )
    maps = Maps((reliance_mode(result.edges),), sites_of(result, result.edges), table)
    return Texts(result.sequences), summary, maps, _share_grids(result)


def _share_grids(result: Reliance) -> Figure:
    """The share of every head and its effect alone; what chance could have given is left white."""
    share, alone, *spreads = (
        by_layer(numbers, result.sites) / (result.size or 1.0)
        for numbers in (result.heads, result.one_head, result.standard_error, result.null)
    )
    noise = NOISE * torch.hypot(*spreads)
    share = torch.where((share.abs() <= noise) & (noise > 0), 0.0, share)
    limit = float(torch.cat([share, alone]).nan_to_num().abs().amax())
    unknown = "" if result.determined else ", not determined"
    label = f"part of the margin, white if like chance{unknown}"
    names = layers(result.sites), head_numbers(result.sites)
    grids = (
        Grid(*names, numbers, name, label, "head", limit=limit)
        for numbers, name in ((share, "share"), (alone, "alone"))
    )
    heads, sites = len(names[1]), len(names[0])
    size = (3.4 + min(0.5 * heads, 8.0), 1.7 + min(0.35 * sites, 7.0))
    return Figure(tuple(grids), size, shared=True)


@describe.register
def _(result: SelfAttribution) -> Blocks:
    total = sum(float(scores.abs().sum()) for scores in result.scores) or 1.0
    sums = tuple(scores.abs().sum((1, 2)) for scores in result.scores)
    columns = {
        Column("share", "attribution", "The head’s share of all absolute attribution."): [
            heads / total for heads in sums
        ],
        Column("largest", "largest", "Largest entry, by which heads are ranked."): [
            scores.amax((1, 2)) for scores in result.scores
        ],
    }

    def strongest(top: int) -> Rows:
        return [
            {
                "layer": layer_number(result.sites[edge.site], result.sites),
                "head": edge.head,
                "query": edge.query_token,
                "key": edge.key_token,
                "contribution": edge.score,
            }
            for edge in result.strongest(top)
        ]

    edges = Table(
        f"strongest attention edges for the {result.target}",
        tuple(map(column, ("layer", "head", "query", "key", "contribution"))),
        strongest,
        shown=TOP,
    )
    changes = from_columns(
        "What every layer changed",
        {
            "layer": [layer_name(site, result.sites) for site in result.sites],
            "change": result.change,
            "gap": result.gap,
        },
        f"Of the {result.target}: what silencing the whole layer takes away, and how far the "
        "entries of its maps miss it.",
    )
    maps = Maps(
        (attribution_mode(result.scores),),
        sites_of(result, result.scores),
        of_heads("heads", result.sites, columns, sums),
        weights=sums,
        label=f"contribution to {result.target}",
        additive=True,
    )
    return Texts(result.sequences), edges, maps, changes


@describe.register
def _(result: AttributionTree) -> Blocks:
    tokens, tree = result.tokens or (), tree_of(result, None)
    rows: Rows = [
        {
            "layer": edge.layer,
            "parent": tokens[edge.parent],
            "child": tokens[edge.child],
            "score": edge.score,
        }
        for edge in result.edges
    ]
    return Texts({tree.sequence: tokens}), from_rows(f"tree for the {result.target}", rows), tree


Edges = Float[np.ndarray, "edge number"]  # layer, parent, child, score, share of the largest


def tree_of(
    result: AttributionTree, attribution: SelfAttribution | None, *, stacks: int = 1
) -> Tree:
    """The tree, with every edge that a slider could let in."""
    parameters = result.provenance.parameters
    stack = str(parameters.get("stack", "tokens"))
    if attribution is None:
        rows = [[edge.layer, edge.parent, edge.child, edge.score, 1.0] for edge in result.edges]
        edges, lowest = np.array(rows or [[]], dtype="<f8"), float(parameters.get("threshold", 0))
    else:
        edges, lowest = _offered_edges(result, attribution, stack)
    note = f"The {len(edges)} edges above a threshold of {lowest:.3g} are in this page. "
    note += "The tree is the greedy one of the paper"
    if parameters.get("algorithm") == "exact":
        note += ", drawn again here, while the result holds the exact one"
    return Tree(
        sequence=stack,
        tokens=result.tokens or (),
        root=result.root,
        reader=result.reader,
        layers=result.layers,
        threshold=float(parameters.get("threshold", 0.4)),
        penalty=float(parameters.get("penalty", 0.0)),
        lowest=lowest,
        edges=edges,
        target=result.target,
        note=note + ".",
        text=result.text(layer=f"{stack} layer" if stacks > 1 else "layer"),
        drawn=tuple((e.parent, e.child, result.thickness(e)) for e in result.edges),
        levels=result.levels(),
    )


def _offered_edges(
    result: AttributionTree, attribution: SelfAttribution, stack: str
) -> tuple[Edges, float]:
    """Edges from the top layer down, then in reading order, with their share of the largest."""
    sites = [
        site.index for site in attribution.sites if site.stack == stack and site.kind == "self"
    ]
    maps = [attribution.scores[site].sum(0) for site in sites]
    tables = []
    for layer in reversed(range(len(maps) if result.reader is None else len(maps) - 1)):
        scores = maps[layer].clone()
        if result.reader is not None:
            scores[result.reader] = 0
        shares = scores / scores.max().abs().clamp_min(1e-30)
        shares.fill_diagonal_(0)
        parent, child = (shares > LOWEST).nonzero(as_tuple=True)
        places = (torch.full_like(parent, layer), parent, child)
        numbers = (scores[parent, child], shares[parent, child])
        tables.append(torch.stack([to_float64(values) for values in (*places, *numbers)], -1))
    edges = torch.cat(tables).numpy().astype("<f8")
    if len(edges) <= MOST_EDGES:
        return edges, LOWEST
    lowest = float(np.partition(edges[:, 4], -MOST_EDGES)[-MOST_EDGES])
    return edges[edges[:, 4] > lowest], lowest


@describe.register
def _(result: ContributionWeights) -> Blocks:
    lengths = tuple(site.sum(1) for site in result.lengths)

    def longest(top: int) -> Rows:
        rows: Rows = []
        for site, head in strongest_heads(lengths)[:top]:
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
        return rows

    names = ("layer", "head", "query", "key", "contribution", "of_output")
    title = "the strongest contribution in the heads with the longest outputs"
    table = Table(title, tuple(map(column, names)), longest, shown=TOP)
    columns = {
        Column("length", "length", "Length of the head's outputs, summed over rows."): lengths
    }
    maps = Maps(
        (Mode("scores", "contribution", result.scores), Mode("shares", "of output", result.shares)),
        sites_of(result, result.scores),
        of_heads("heads", result.sites, columns, lengths),
        weights=lengths,
        label="contribution to the head's output",
    )
    return Texts(result.sequences), table, maps


@describe.register
def _(result: HeadMaps) -> Blocks:
    weights = tuple(heads.abs().sum((1, 2)) for heads in result.maps)
    columns = {Column("size", "size", "Sum of the absolute entries of its map."): weights}
    maps = Maps(
        (Mode("maps", result.method.replace("_", " "), result.maps),),
        sites_of(result, result.maps),
        of_heads(f"heads by {result.method}", result.sites, columns, weights),
        weights=weights,
        label=result.method,
    )
    return Texts(result.sequences), maps


@describe.register
def _(result: ContextAttribution) -> Blocks:
    numbers = {label_of(name): scores for name, scores in result.scores.items()}
    referees = {"leave one out": result.leave_one_out}
    if result.regression is not None:
        referees["regression"] = result.regression
    summary = AnswerSummary(
        advice=result.verdict,
        answer=[(result.answer, math.exp(result.log_probability))],
        target="",
        word="",
        verdict="",
        reliance=[
            (
                f"Its log-probability is {result.log_probability:.2f} with all passages and "
                f"{result.without_passages:.2f} without any."
            )
        ],
        carriers="",
        sequence="tokens",
        shares=[],
        caption="",
        skipped=list(dict(result.checks.get("left out", {})).items()),
    )
    largest = max(float(values.abs().amax()) for values in referees.values()) or 1.0
    bars = [Series(name, points(values), mark="bars") for name, values in referees.items()]
    dots = [
        Series(name, points(scores / (scores.abs().amax() or 1.0) * largest), mark="dots")
        for name, scores in numbers.items()
    ]
    chart = Chart(
        "",
        "log-probability that the answer loses; methods on a scale of their own",
        (*bars, *dots),
        "What the answer loses without each passage",
        names=tuple(f"{n + 1}  {passage}" for n, passage in enumerate(result.passages)),
        upright=False,
        on_page=False,
    )
    return (
        Texts({"tokens": result.tokens or ()}),
        summary,
        _by_passage(result),
        _passages(result),
        _agreement(result),
        chart,
    )


def _by_passage(result: ContextAttribution) -> Table:
    """Every passage by every method and referee, the passages that count most first."""
    rows: Rows = [
        {
            "passage": place + 1,
            "begins": _beginning(result.passages[place]),
            "needed": place in result.rests_on,
            "without_it": float(result.leave_one_out[place]),
            **({} if result.regression is None else {"adds": float(result.regression[place])}),
            **{name: float(scores[place]) for name, scores in result.scores.items()},
        }
        for place in result.ranking()
    ]
    title = (
        f"{result.verdict} The answer: “{' '.join(result.answer.split())}”; without it is what "
        "its log-probability loses without the passage."
    )
    labels = {name: Column(name, label_of(name)) for name in result.scores}
    return from_rows(title, rows, "Methods are scores; the others are log-probability.", **labels)


def _passages(result: ContextAttribution) -> Passages:
    """Every passage with its sentences."""
    sentences: list[list[ShadedSentence]] = [[] for _ in result.passages]
    for number, (text, place) in enumerate(zip(result.sentences, result.passage_of, strict=True)):
        scores = [float(by_method[number]) for by_method in result.sentence_scores.values()]
        sentences[place].append(ShadedSentence(text, scores))
    needed = set(result.rests_on)
    return Passages(
        result.question,
        result.answer,
        [label_of(name) for name in result.sentence_scores],
        [
            Passage(loss, place in needed, sentences[place])
            for place, loss in enumerate(result.leave_one_out.tolist())
        ],
        "The number in front of a passage is what the answer loses without it, in log-probability: "
        "0.7 is half as likely. A line marks what the answer needs. Sentences are shaded by what a "
        "method credits them with, for the answer (orange) or against it (blue).",
    )


def _agreement(result: ContextAttribution) -> Table:
    """How far every method agrees with the referees, and what it cost."""
    rows: Rows = []
    for name, referees in result.agreement.items():
        forwards, backwards = result.passes.get(name, (0, 0))
        alone, other = referees["leave_one_out"], referees.get("regression")
        cells: tuple[Cell, ...] = (
            label_of(name),
            alone.spearman,
            alone.same_first,
            None if other is None else other.spearman,
            result.predicts.get(name),
            forwards,
            backwards,
        )
        rows.append(dict(zip((each.key for each in _AGREEMENT), cells, strict=True)))
    return Table(
        "Do the methods agree with leaving passages out?",
        _AGREEMENT,
        rows,
        "ρ is the rank correlation over the passages, or over the random halves.",
    )


_AGREEMENT = (
    Column("method", "method"),
    Column("leave_one_out", "with leave one out, ρ"),
    Column("same_first", "same first"),
    Column("regression", "with regression, ρ"),
    Column("predicts", "predicts, ρ"),
    Column("forwards", "forwards"),
    Column("backwards", "backwards"),
)


def _beginning(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= BEGINNING else f"{line[:BEGINNING]}…"
