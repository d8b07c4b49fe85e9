"""Describes a trial, and two results next to each other."""

from dataclasses import asdict, replace

import torch
from torch import Tensor

from exhibit_a.report.blocks import (
    AnswerSummary,
    Block,
    Blocks,
    Chart,
    Column,
    Figure,
    Grid,
    Head,
    Maps,
    Row,
    Rows,
    Section,
    Series,
    Sides,
    Slide,
    Slider,
    Table,
    Texts,
)
from exhibit_a.report.describe.attribution import (
    COHERENCE,
    attribution_mode,
    reliance_mode,
    tree_of,
)
from exhibit_a.report.describe.explanation import heat_map_panel, heat_map_table
from exhibit_a.report.describe.identifiability import (
    NULL_FRACTION,
    demands,
    effective_modes,
    freedom_chart,
    raw_mode,
)
from exhibit_a.report.describe.mixing import story_of
from exhibit_a.report.describe.parts import (
    TOP,
    column,
    from_rows,
    head_numbers,
    layers,
    points,
    sites_of,
)
from exhibit_a.report.describe.registry import describe
from exhibit_a.report.sentences import (
    alignment,
    carriers_sentence,
    carrying_heads,
    foretells,
    most_important,
    of_margin,
    reliance_sentences,
    unshaded,
)
from exhibit_a.subject.anatomy import head_name, layer_number, main_stack
from exhibit_a.trials.comparison import Comparison, HeadChange
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS, HeadVerdict

SHOWN_HEADS = 5
MOVED = 1e-3  # total variation from which a row is worth sliding
NAMED = 3  # heads of a comparison: those whose shares differ most

HEAD_COLUMNS = (
    Column("name", "head", brief=True),
    Column("verdict", "verdict", brief=True),
    Column(
        "share",
        "share",
        "What the head adds to the answer, in parts of the margin; below 0 it is against it.",
        "percent",
        brief=True,
    ),
    Column(
        "alone",
        "alone",
        "What is lost when it alone is levelled, in parts of the margin.",
        "percent",
        brief=True,
    ),
    Column(
        "distance",
        "elsewhere",
        "Weight that could stand on other words with the same output, at least.",
        ".0%",
        brief=True,
    ),
    Column("pointing", "agreement", "Cosine of its weights and contributions.", ".2f", brief=True),
    Column("shared", "shared", "Other heads do its work then.", brief=True),
    COHERENCE,
    Column("chance", "p", "Chance of a share as large, had its rows been permuted."),
    Column("unique", "unique", "Share of rows whose weights are the only valid ones."),
    NULL_FRACTION,
    Column("determined", "determined", "Its weights are the only valid ones, or nearly."),
    Column("points", "points", "Its weights lie where its contribution comes from."),
)
MEANINGS = {
    "evidence": "the answer rests on where it looks, and on no other weights or words",
    "contested": "the answer rests on it, but other weights would have given the same",
    "misleading": "the answer rests on it, but its weights lie on other words than what counts",
    "no effect": "the answer does not depend on where it looks",
    "undetermined": "not known: a check failed, or its map alone cannot tell",
}


@describe.register
def _(trial: Trial) -> Blocks:
    modes = [raw_mode(trial.attention)]
    blocks = list[Block]()
    if trial.effective is not None:
        modes += effective_modes(trial.effective.effective)
        blocks.append(freedom_chart(trial.effective))
    if trial.attribution is not None:
        modes.append(attribution_mode(trial.attribution.scores))
    if trial.reliance is not None:
        edges = tuple(trial.reliance.whole_edges(site.index) for site in trial.sites)
        modes.append(reliance_mode(edges))
    if trial.heat_maps is not None:
        judged = replace(heat_map_table(trial.heat_maps), title="heat maps of the text")
        blocks += [heat_map_panel(trial.heat_maps), judged]
    if trial.hidden is not None:
        blocks.append(story_of(trial.hidden))
    if trial.tree is not None:
        stacks = len({site.stack for site in trial.sites})
        blocks.append(tree_of(trial.tree, trial.attribution, stacks=stacks))
    if trial.identifiability is not None:
        blocks.append(demands(trial.identifiability))
    aligned = alignment(trial)
    if aligned is not None:
        links = (f"{target} ← {source} {weight:.2f}" for target, source, weight in aligned.links)
        blocks.append(Section(f"alignment by {aligned.head}", ("   ".join(links),)))
    maps = Maps(
        tuple(sorted(modes, key=lambda mode: mode.minus is not None)),  # the difference last
        tuple(
            replace(place, foretells=foretells(trial, site))
            for place, site in zip(sites_of(trial, trial.attention), trial.sites, strict=True)
        ),
        _head_table(trial),
        {(head.site, head.head): (head.word, head.reason) for head in trial.verdicts},
        tuple((word, MEANINGS[word]) for word in WORDS),
    )
    special = tuple(trial.special.tolist())
    texts = Texts(trial.sequences, special)
    return (texts, _summary(trial), maps, *blocks, *_slider(trial), _figure(trial))


def _head_table(trial: Trial) -> Table:
    """Every head, those that carry most first."""
    ranked = most_important(trial)
    rows: Rows = [_row(trial, head) for head in ranked]
    known = tuple(c for c in HEAD_COLUMNS if any(row[c.key] is not None for row in rows))
    title = f"the {SHOWN_HEADS} heads that carry most, in parts of the margin"
    if trial.reliance is None:
        title = f"the {SHOWN_HEADS} heads with the farthest alternatives"
    return Table(
        title,
        known,
        rows,
        shown=SHOWN_HEADS,
        heads=tuple((head.site, head.head) for head in ranked),
    )


def _row(trial: Trial, head: HeadVerdict) -> Row:
    numbers: Row = {each.key: getattr(head, each.key, None) for each in HEAD_COLUMNS}
    shares: Row = {
        "layer": layer_number(trial.sites[head.site], trial.sites),
        "head": head.head,
        "name": head_name(trial.sites, head.site, head.head),
        "verdict": head.word,
        "share": of_margin(trial, head.reliance),
        "alone": of_margin(trial, head.one_head),
    }
    return shares | numbers | shares


def _summary(trial: Trial) -> AnswerSummary:
    scores, caption = trial.token_scores, unshaded(trial)
    shares: list[float] = [] if scores is None or caption else scores.tolist()
    if not caption:
        caption = (
            "Shaded by what the answer took from each position through attention, all heads and "
            f"layers together: orange for, blue against; the strongest is "
            f"{max(shares, key=abs):+.3g}. Choose a word to follow it."
        )
    reliance, main = trial.reliance, main_stack(trial.sites)
    crossed = {site.stack for site in trial.sites if site.kind == "cross"}
    texts = [main, *(stack for stack in trial.sequences if stack in crossed and stack != main)]
    return AnswerSummary(
        advice=trial.advice,
        answer=list(trial.answer.items()),
        target=trial.target,
        word=trial.word,
        verdict=trial.verdict,
        reliance=[] if reliance is None else reliance_sentences(reliance, trial.answer),
        carriers=carriers_sentence(trial),
        sequence=main,
        shares=shares,
        caption=caption,
        skipped=list(trial.skipped.items()),
        truth=trial.label or None,
        carrying=carrying_heads(trial),
        texts=[("The text" if stack == main else "What the model says", stack) for stack in texts],
    )


def _slider(trial: Trial) -> tuple[Slider, ...]:
    """The heads with rows that can move while the output stays, those that carry most first."""

    def importance(head: HeadVerdict) -> tuple[float, float]:
        return abs(head.reliance or 0.0) * (head.distance or 0.0), head.distance or 0.0

    ranked = sorted(trial.verdicts, key=importance, reverse=True)
    movable = {
        (head.site, head.head): rows
        for head in ranked
        if len(rows := _movable_rows(trial, head.site, head.head))
    }
    if not movable:
        return ()
    if not trial.values:
        return (Slider((), "Weights slide token by token: choose tokens at the top of the page."),)
    return (Slider(tuple(_slide(trial, place, rows) for place, rows in movable.items())),)


def _movable_rows(trial: Trial, site: int, head: int) -> Tensor:
    """The rows that can move: where the answer is read, then those that contributed most."""
    raw, alternative = trial.attention[site][head], trial.alternative[site][head]
    moved = (raw - alternative).abs().sum(-1) / 2
    rows = (moved > MOVED).nonzero().flatten()
    weight = moved[rows]
    if trial.attribution is not None:
        weight = trial.attribution.scores[site][head].abs().sum(-1)[rows] * moved[rows]
    if trial.tree is not None and trial.tree.reader is not None:
        weight[rows == trial.tree.reader] = torch.inf
    return rows[weight.argsort(descending=True, stable=True)].cpu()


def _slide(trial: Trial, place: Head, rows: Tensor) -> Slide:
    site, head = place
    shared = trial.attention[site].shape[0] // trial.values[site].shape[0]
    values = trial.values[site][head // shared]
    return Slide(
        site, head, rows, trial.attention[site][head], trial.alternative[site][head], values
    )


def _figure(trial: Trial) -> Figure:
    """The heads, coloured by verdict and as large as their share, above the tokens."""
    names = head_numbers(trial.sites)
    numbers = torch.full((len(trial.sites), len(names)), torch.nan)
    words = [[""] * len(names) for _ in trial.sites]
    for head in trial.verdicts:
        numbers[head.site, head.head] = abs(head.reliance or 0.0)
        words[head.site][head.head] = head.word
    largest = float(numbers.nan_to_num().amax())
    whole = None if trial.reliance is None else trial.reliance.size
    grid = Grid(
        layers(trial.sites),
        names,
        numbers,
        f"{trial.target or trial.provenance.model}: {trial.word}",
        f"size: share of the\nmargin, up to {largest / whole:.0%}" if whole else "",
        "head",
        words=tuple(map(tuple, words)),
    )
    height = 1.8 + min(0.3 * len(trial.sites), 5.0)
    if trial.token_scores is None:
        return Figure((grid,), (7.0, height), on_page=False)
    bars = Series("attribution", points(trial.token_scores), mark="bars", role="signed")
    tokens = Chart(
        "", "attribution", (bars,), names=trial.tokens or (), tokens=main_stack(trial.sites)
    )
    size = (7.0, height + 2.0)
    return Figure((grid, tokens), size, (height, 2.0), below=True, on_page=False)


@describe.register
def _(result: Comparison) -> Blocks:
    sides = Sides(
        result.names,
        result.sentence,
        [(change.label, change.first, change.second) for change in result.answers],
        [
            (change.first, change.second, change.first_score, change.second_score)
            for change in result.words
        ],
        [
            (change.name, change.first, change.second, change.first_share, change.second_share)
            for change in result.heads
        ],
        [change.moved for change in result.heads],
        result.first,
        result.second,
    )
    return sides, _differences(result), _comparison_chart(result)


def _differences(result: Comparison) -> Table:
    """The heads that changed most, the tensors that differ most, or the answers."""
    if result.heads:
        rows: Rows = [
            {
                "head": head.name,
                "first_verdict": head.first,
                "second_verdict": head.second,
                "first_share": head.first_share,
                "second_share": head.second_share,
                "moved": head.moved,
            }
            for head in sorted(result.heads, key=_change, reverse=True)
        ]
        names = tuple(map(column, rows[0]))
        return Table(result.sentence, names, rows, shown=TOP, on_page=False)
    if result.tensors:
        ranked = sorted(result.tensors, key=lambda tensor: -tensor.largest)
        caption = "Tensors that both results have, with the same shape."
        return from_rows(result.sentence, [asdict(tensor) for tensor in ranked], caption)
    answers = from_rows(result.sentence, [asdict(answer) for answer in result.answers])
    return replace(answers, on_page=False)


def _change(head: HeadChange) -> float:
    return abs((head.second_share or 0.0) - (head.first_share or 0.0))


def _comparison_chart(result: Comparison) -> Chart:
    """The shares of every head, or what both answers took from each word, or every tensor."""
    title = " and ".join(result.names)
    shares = [
        (head.first_share, head.second_share, head.name)
        for head in result.heads
        if head.first_share is not None and head.second_share is not None
    ]
    if shares:
        apart = sorted(shares, key=lambda share: -abs(share[0] - share[1]))
        ends = [end for share in shares for end in share[:2]]
        same = ((min(ends), min(ends)), (max(ends), max(ends)))
        return Chart(
            f"share, {result.names[0]}",
            f"share, {result.names[1]}",
            (
                Series("same share", same, role="reference"),
                Series("heads", tuple(share[:2] for share in shares), mark="dots"),
            ),
            title,
            notes=tuple(apart[:NAMED]),
            on_page=False,
        )
    if result.words:
        scores = (
            [word.first_score or 0.0 for word in result.words],
            [word.second_score or 0.0 for word in result.words],
        )
        return Chart(
            "",
            "attribution",
            tuple(
                Series(name, points(heights), mark="bars")
                for name, heights in zip(result.names, scores, strict=True)
            ),
            title,
            names=tuple(word.first or word.second or "" for word in result.words),
            on_page=False,
        )
    return Chart(
        "",
        "largest difference",
        (Series("tensors", points(t.largest for t in result.tensors), mark="bars"),),
        title,
        names=tuple(f"{tensor.field} {tensor.place}" for tensor in result.tensors),
        upright=False,
        on_page=False,
    )
