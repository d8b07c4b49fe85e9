"""What do all methods say about one text? The page of a trial."""

from exhibit_a.methods.identifiability.counts import AttentionIdentifiability
from exhibit_a.report.header import Column, Maps, Panels, Summary, Table
from exhibit_a.report.pack import Blocks, SiteMaps
from exhibit_a.report.panels import attention_maps, sequence, site_entries
from exhibit_a.report.sentences import (
    carriers_sentence,
    carrying_heads,
    foretells,
    of_margin,
    reliance_sentences,
    unshaded,
)
from exhibit_a.report.slider import MOST, slider
from exhibit_a.report.views.attribution import tree
from exhibit_a.report.views.dispatch import panels_of
from exhibit_a.report.views.identifiability import NULL_FRACTION, freedom_chart
from exhibit_a.report.views.mixing import story
from exhibit_a.report.views.pictures import judged_pictures
from exhibit_a.subject.anatomy import main_stack
from exhibit_a.subject.site_names import layer_name
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS, HeadVerdict

BUDGET = 3_550_000  # bytes of all blocks, before base64: with the rest, a page of 5 MB

_COLUMNS = {
    "share": (
        "share of the margin",
        (
            "The head’s part in what the answer loses when all heads look evenly, by the size of "
            "its margin; below zero it speaks against the answer."
        ),
    ),
    "alone": (
        "alone",
        "What the answer loses when this head alone looks evenly, as a part of its margin.",
    ),
    "distance": (
        "can stand elsewhere",
        (
            "Part of the weights that can stand elsewhere while the head gives the same output "
            "(total variation to the farthest alternative found; a lower bound)."
        ),
    ),
    "pointing": (
        "agreement",
        "Cosine of weights and contributions: 1 means it looks where its contribution comes from.",
    ),
    "coherence": (
        "coherence",
        "How far its rows speak for the same side: 1 means all of them, 0 as many against as for.",
    ),
    "chance": ("p", "Chance of a share as large, had its rows been permuted."),
    "unique": ("unique", "Share of rows whose weights are the only valid ones for the output."),
    "null_fraction": ("null fraction", NULL_FRACTION),
}
_MEANINGS = {
    "evidence": "the answer rests on where it looks, and on no other weights or words",
    "contested": "the answer rests on it, but other weights would have given the same",
    "misleading": "the answer rests on it, but its weights lie on other words than what counts",
    "no effect": "the answer does not depend on where it looks",
    "undetermined": "not known: a check failed, or its map alone cannot tell",
}


@panels_of.register
def trial_panels(trial: Trial, blocks: Blocks) -> Panels:
    """Summary, pictures, maps with a verdict for every head, story, tree, slider and freedom."""
    special = tuple(trial.special.tolist())
    panels: Panels = {
        "sequences": {
            stack: sequence(tokens, special if tokens == trial.tokens else ())
            for stack, tokens in trial.sequences.items()
        },
        "summary": _summary(trial),
        "maps": _maps(trial, blocks),
        "tables": [] if trial.identifiability is None else [_demands(trial, trial.identifiability)],
    }
    if trial.pictures is not None:
        panels["pictures"] = judged_pictures(trial.pictures)
    if trial.hidden is not None:
        panels["story"] = story(trial.hidden, blocks)
    if trial.tree is not None:
        panels["tree"] = tree(trial.tree, trial.attribution, blocks)
    left = int(BUDGET * blocks.share) - blocks.length * 3 // 4
    if (heads := slider(trial, blocks, min(left, MOST))) is not None:
        panels["slider"] = heads
    if trial.effective is not None:
        panels["charts"] = [freedom_chart(trial.effective)]
    return panels


def _maps(trial: Trial, blocks: Blocks) -> Maps:
    modes: dict[str, SiteMaps] = {"raw": trial.attention}
    if trial.effective is not None:
        modes["effective"] = trial.effective.effective
    if trial.attribution is not None:
        modes["attribution"] = trial.attribution.scores
    if trial.reliance is not None:
        modes["reliance"] = trial.reliance.edges
    numbers = [_numbers(trial, verdict) for verdict in trial.verdicts]
    known = [key for key in _COLUMNS if any(head[key] is not None for head in numbers)]
    columns: list[Column] = [
        {"key": key, "name": _COLUMNS[key][0], "help": _COLUMNS[key][1]} for key in known
    ]
    entries = site_entries(trial, trial.attention)
    for place, site in zip(entries, trial.sites, strict=True):
        if foretells(trial, site):
            place["foretells"] = True
    maps = attention_maps(blocks, modes, entries, columns)
    for entry, verdict, head in zip(maps["heads"], trial.verdicts, numbers, strict=True):
        entry["numbers"] = {key: head[key] for key in known}
        entry["word"], entry["reason"] = verdict.word, verdict.reason
        entry["answers"] = {
            "shared with others": verdict.shared,
            "weights determined": verdict.determined,
            "points at what counts": verdict.points,
        }
    maps["words"] = [{"word": word, "meaning": _MEANINGS[word]} for word in WORDS]
    return maps


def _numbers(trial: Trial, head: HeadVerdict) -> dict[str, float | None]:
    """The numbers of one head; shares as parts of the margin."""
    return {
        "share": of_margin(trial, head.reliance),
        "alone": of_margin(trial, head.one_head),
        "distance": head.distance,
        "pointing": head.pointing,
        "coherence": head.coherence,
        "chance": head.chance,
        "unique": head.unique,
        "null_fraction": head.null_fraction,
    }


def _summary(trial: Trial) -> Summary:
    scores, caption = trial.token_scores, unshaded(trial)
    shares: list[float] = [] if scores is None or caption else scores.tolist()
    if not caption:
        caption = (
            "Shaded by what the answer took from each position through attention, all heads and "
            f"layers together: orange for, blue against; the strongest is "
            f"{max(shares, key=abs):+.3g}. Choose a word to follow it."
        )
    reliance, main = trial.reliance, main_stack(trial.sites)
    written: Summary = {
        "advice": trial.advice,
        "answer": list(trial.answer.items()),
        "target": trial.target,
        "word": trial.word,
        "verdict": trial.verdict,
        "reliance": [] if reliance is None else reliance_sentences(reliance, trial.answer),
        "carriers": carriers_sentence(trial),
        "sequence": main,
        "shares": shares,
        "caption": caption,
        "skipped": list(trial.skipped.items()),
        "carrying": carrying_heads(trial),
        "texts": [
            ("The text" if stack == main else "What the model says", stack)
            for stack in _texts(trial, main)
        ],
    }
    if trial.label:
        written["truth"] = trial.label
    return written


def _texts(trial: Trial, main: str) -> list[str]:
    """The stacks whose text is read: the input, and what a decoder beside it says."""
    crossed = {site.stack for site in trial.sites if site.kind == "cross"}
    return [main, *(stack for stack in trial.sequences if stack in crossed and stack != main)]


def _demands(trial: Trial, counted: AttentionIdentifiability) -> Table:
    names = ("same output", "and the same sum", "and none negative", "and as the keys allow")
    rows = list[list[str | float | None]]()
    for site in trial.sites:
        shares = counted.unique(site.index).tolist()
        rows.append([layer_name(site, trial.sites), *shares, *[None] * (len(names) - len(shares))])
    return {
        "title": "Was this attention the only one possible?",
        "columns": ["layer", *names],
        "rows": rows,
        "caption": "Share of rows that are unique when more and more is demanded of an "
        "alternative. The last demand is local: small moves that the model’s own keys could make.",
    }
