"""What do all methods say about one text? The page of a trial."""

from dataclasses import asdict

from exhibit_a.methods.identifiability.counts import AttentionIdentifiability
from exhibit_a.report.header import Column, Maps, Panels, Summary, Table
from exhibit_a.report.pack import Blocks, SiteMaps
from exhibit_a.report.panels import attention_maps, sequence, site_entries, site_name
from exhibit_a.report.slider import MOST, slider
from exhibit_a.report.views.attribution import SHARE, tree
from exhibit_a.report.views.dispatch import panels_of
from exhibit_a.report.views.identifiability import NULL_FRACTION, freedom_chart
from exhibit_a.report.views.mixing import story
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS

BUDGET = 3_550_000  # bytes of all blocks, before base64: with the rest, a page of 5 MB

_COLUMNS = {
    "unique": ("unique", "Share of rows whose weights are the only valid ones for the output."),
    "distance": (
        "distance",
        (
            "Total variation between the weights and the farthest valid alternative found; a lower "
            "bound of what is possible."
        ),
    ),
    "null_fraction": ("null fraction", NULL_FRACTION),
    "change": (
        "change",
        (
            "How far the answer moves when the rows of this head are permuted (total variation, "
            "mean over permutations)."
        ),
    ),
    "change_low": ("from", "Lower end of the 95 % interval of the change."),
    "change_high": ("to", "Upper end of the 95 % interval of the change."),
    "share": ("attribution", SHARE),
    "agreement": (
        "agreement",
        (
            "Rank correlation between its attention and its attribution: 1 means it looks where "
            "the answer comes from."
        ),
    ),
}
_MEANINGS = {
    "evidence": (
        "no distant alternative found; reaches the output, matters, points where the answer comes "
        "from"
    ),
    "partial": "something of that is missing; the head’s page names it",
    "contested": "a distant alternative: other valid attention gives the same output",
    "no effect": "the answer does not depend on where it looks",
}


@panels_of.register
def trial_panels(trial: Trial, blocks: Blocks) -> Panels:
    """Summary, maps with a verdict for every head, story, tree, slider and freedom."""
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
    if trial.hidden is not None:
        panels["story"] = story(trial.hidden, blocks)
    if trial.tree is not None:
        panels["tree"] = tree(trial.tree, trial.attribution, blocks)
    left = BUDGET - blocks.length * 3 // 4
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
    verdicts = [asdict(verdict) for verdict in trial.verdicts]
    known = [key for key in _COLUMNS if any(numbers[key] is not None for numbers in verdicts)]
    columns: list[Column] = [
        {"key": key, "name": _COLUMNS[key][0], "help": _COLUMNS[key][1]} for key in known
    ]
    maps = attention_maps(blocks, modes, site_entries(trial, trial.attention), columns)
    for entry, numbers in zip(maps["heads"], verdicts, strict=True):
        entry["numbers"] = {key: numbers[key] for key in known}
        entry["word"], entry["reason"] = numbers["word"], numbers["reason"]
    maps["words"] = [{"word": word, "meaning": _MEANINGS[word]} for word in WORDS]
    return maps


def _summary(trial: Trial) -> Summary:
    scores = trial.token_scores
    shares: list[float] = [] if scores is None else scores.tolist()
    if scores is None:
        caption = "Attribution did not apply, so the words are not shaded."
    else:
        caption = (
            "Shaded by what the answer took from each position through attention, all heads and "
            f"layers together: orange for, blue against; the strongest is "
            f"{max(shares, key=abs):+.3g}. Choose a word to follow it."
        )
    return {
        "answer": list(trial.answer.items()),
        "target": trial.target,
        "verdict": trial.verdict,
        "sequence": trial.sites[0].stack,
        "shares": shares,
        "caption": caption,
        "skipped": list(trial.skipped.items()),
    }


def _demands(trial: Trial, counted: AttentionIdentifiability) -> Table:
    names = ("same output", "and the same sum", "and none negative", "and as the keys allow")
    rows = list[list[str | float | None]]()
    for site in trial.sites:
        shares = counted.unique(site.index).tolist()
        rows.append([site_name(trial, site), *shares, *[None] * (len(names) - len(shares))])
    return {
        "title": "Was this attention the only one possible?",
        "columns": ["site", *names],
        "rows": rows,
        "caption": "Share of rows that are unique when more and more is demanded of an "
        "alternative. The last demand is local: small moves that the model’s own keys could make.",
    }
