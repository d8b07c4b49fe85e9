"""What does a page need to know? A header in plain values, and blocks of packed numbers.

``view`` makes both from any result. Results with a shape of their own (a trial, attention maps, a
token's story, a tree, a curve) get the panels made for them; every other result gets its largest
maps, and tables of the rest. The page, the notebook and the server all show a ``View``.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.methods.identifiability.counts import (
    AttentionIdentifiability,
    IdentifiabilityByLength,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.report import panels
from exhibit_a.report.pack import Blocks, SiteMaps
from exhibit_a.report.plain import plain_panels
from exhibit_a.report.slider import MOST, slider
from exhibit_a.results.result import Result
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS

SCHEMA = 1
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
    "null_fraction": (
        "null fraction",
        (
            "Length of the part of a row that cannot reach the output, over the length of the row; "
            "mean over rows."
        ),
    ),
    "change": (
        "change",
        (
            "How far the answer moves when the rows of this head are permuted (total variation, "
            "mean over permutations)."
        ),
    ),
    "change_low": ("from", "Lower end of the 95 % interval of the change."),
    "change_high": ("to", "Upper end of the 95 % interval of the change."),
    "share": ("attribution", "The head’s share of all absolute attribution."),
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


@dataclass(frozen=True)
class View:
    """A result as a page knows it."""

    header: dict[str, Any]
    blocks: str

    def header_json(self) -> str:
        """The header as JSON that can stand inside a script element."""
        text = json.dumps(plain(self.header), ensure_ascii=False, separators=(",", ":"))
        return (
            text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        )


def view(result: Result) -> View:
    """Everything a page shows about a result."""
    blocks = Blocks()
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": type(result).__name__,
        "title": _title(result),
        "sequences": {"tokens": _sequence(result.tokens or ())},
        "charts": [],
        "tables": [],
        "about": _about(result),
        "checks": [[name, _said(value)] for name, value in result.checks.items()],
    }
    if isinstance(result, Trial):
        header |= _trial(blocks, result)
    elif isinstance(result, EffectiveAttention):
        header |= _effective(blocks, result)
    elif isinstance(result, SelfAttribution):
        header |= _attribution(blocks, result)
    elif isinstance(result, HiddenAttribution):
        header |= _hidden(blocks, result)
    elif isinstance(result, AttributionTree):
        stack = str(result.provenance.parameters.get("stack", "tokens"))
        header["sequences"] = {stack: _sequence(result.tokens or ())}
        header["tree"] = panels.tree(blocks, result, None)
    elif isinstance(result, IdentifiabilityByLength):
        header["charts"] = panels.length_charts(result)
    elif isinstance(result, PruningCurve):
        header["charts"] = [panels.pruning_chart(result)]
        header["tables"] = plain_panels(blocks, result)["tables"]
    else:
        header |= plain_panels(blocks, result)
    header["blocks"] = blocks.places
    return View(header, blocks.text())


def plain(value: Any) -> Any:
    """A value that JSON can say; what is not a number there is null."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def _trial(blocks: Blocks, trial: Trial) -> dict[str, Any]:
    modes: dict[str, SiteMaps] = {"raw": trial.attention}
    if trial.effective is not None:
        modes["effective"] = trial.effective.effective
    if trial.attribution is not None:
        modes["attribution"] = trial.attribution.scores
    sites = [_site(trial, place) for place in range(len(trial.sites))]
    numbers = [asdict(one) for one in trial.verdicts]
    known = [key for key in _COLUMNS if any(one[key] is not None for one in numbers)]
    columns = [{"key": k, "name": _COLUMNS[k][0], "help": _COLUMNS[k][1]} for k in known]
    maps = panels.attention_maps(blocks, modes, sites, columns)
    for head, one in zip(maps["heads"], numbers, strict=True):
        head["numbers"] = {key: one[key] for key in known}
        head |= {"word": one["word"], "reason": one["reason"]}
    maps["words"] = [{"word": word, "meaning": _MEANINGS[word]} for word in WORDS]
    special = tuple(trial.special.tolist())
    found: dict[str, Any] = {
        "sequences": {
            name: _sequence(tokens, special if tokens == trial.tokens else ())
            for name, tokens in trial.sequences.items()
        },
        "summary": _summary(trial),
        "maps": maps,
        "tables": [] if trial.identifiability is None else [_demands(trial, trial.identifiability)],
    }
    if trial.hidden is not None:
        found["story"] = panels.story(blocks, trial.hidden)
    if trial.tree is not None:
        found["tree"] = panels.tree(blocks, trial.tree, trial.attribution)
    left = BUDGET - blocks.length * 3 // 4
    if (sliding := slider(blocks, trial, min(left, MOST))) is not None:
        found["slider"] = sliding
    if trial.effective is not None:
        found["charts"] = [panels.freedom_chart(trial.effective)]
    return found


def _summary(trial: Trial) -> dict[str, Any]:
    scores = trial.token_scores
    shares = [] if scores is None else scores.tolist()
    stack = trial.sites[0].stack
    if scores is None:
        caption = "Attribution did not apply, so the words are not shaded."
    else:
        caption = (
            "Shaded by what the answer took from each position through attention, all heads and "
            f"layers together: orange for, blue against; the strongest is "
            f"{max(shares, key=abs):+.3g}. Choose a word to follow it."
        )
    return {
        "answer": [[label, share] for label, share in trial.answer.items()],
        "target": trial.target,
        "verdict": trial.verdict,
        "sequence": stack,
        "shares": shares,
        "caption": caption,
        "skipped": [[name, reason] for name, reason in trial.skipped.items()],
    }


def _demands(trial: Trial, counted: AttentionIdentifiability) -> dict[str, Any]:
    names = ("same output", "and the same sum", "and none negative", "and as the keys allow")
    rows = []
    for place in range(len(trial.sites)):
        shares: list[float | None] = [float(one) for one in counted.unique(place)]
        rows.append([_place_name(trial, place), *shares, *[None] * (len(names) - len(shares))])
    return {
        "title": "Was this attention the only one possible?",
        "columns": ["site", *names],
        "rows": rows,
        "caption": "Share of rows that are unique when more and more is demanded of an "
        "alternative. The last demand is local: small moves that the model’s own keys could make.",
    }


def _effective(blocks: Blocks, result: EffectiveAttention) -> dict[str, Any]:
    sites = [_site(result, place) for place in range(len(result.sites))]
    columns = [
        {"key": "pearson", "name": "Pearson", "help": "Correlation of raw and effective weights."},
        {"key": "null_fraction", "name": "null fraction", "help": _COLUMNS["null_fraction"][1]},
        {"key": "moved", "name": "moved", "help": "Half the sum of absolute differences."},
    ]
    modes: dict[str, SiteMaps] = {"raw": result.raw, "effective": result.effective}
    maps = panels.attention_maps(blocks, modes, sites, columns)
    for head in maps["heads"]:
        site, which = head["site"], head["head"]
        head["numbers"] = {
            "pearson": float(result.pearson[site][which]),
            "null_fraction": float(result.null_fraction[site][which].nanmean()),
            "moved": float(result.moved[site][which].nanmean()),
        }
    return {
        "sequences": {name: _sequence(tokens) for name, tokens in result.sequences.items()},
        "maps": maps,
        "charts": [panels.freedom_chart(result)],
    }


def _attribution(blocks: Blocks, result: SelfAttribution) -> dict[str, Any]:
    sites = [_site(result, place) for place in range(len(result.sites))]
    columns = [
        {"key": "share", "name": "attribution", "help": _COLUMNS["share"][1]},
        {"key": "largest", "name": "largest", "help": "Largest entry, by which heads are ranked."},
    ]
    maps = panels.attention_maps(blocks, {"attribution": result.scores}, sites, columns)
    total = sum(float(one.abs().sum()) for one in result.scores) or 1.0
    for head in maps["heads"]:
        scores = result.scores[head["site"]][head["head"]]
        head["numbers"] = {
            "share": float(scores.abs().sum()) / total,
            "largest": float(scores.amax()),
        }
    rows = [
        [_place_name(result, place), float(result.change[place]), float(result.gap[place])]
        for place in range(len(result.sites))
    ]
    changes = {
        "title": "What every site changed",
        "columns": ["site", "change", "gap"],
        "rows": rows,
        "caption": f"Of the {result.target}: what silencing the whole site takes away, and how far "
        "the entries of its maps miss it.",
    }
    sequences = {name: _sequence(tokens) for name, tokens in result.sequences.items()}
    return {"sequences": sequences, "maps": maps, "tables": [changes]}


def _hidden(blocks: Blocks, result: HiddenAttribution) -> dict[str, Any]:
    special = tuple(result.special.tolist())
    sequences = {result.source: _sequence(result.source_tokens)}
    sequences[result.stack] = _sequence(result.tokens or (), special)
    return {"sequences": sequences, "story": panels.story(blocks, result)}


def _site(result: Any, place: int) -> panels.Panel:
    here = result.sites[place]
    others = (name for name in result.sequences if name != here.stack)
    keys = here.stack if here.kind == "self" else next(others, here.stack)
    maps = getattr(result, "attention", None) or getattr(result, "raw", None) or result.scores
    short = f"L{here.layer}" if len(result.sequences) == 1 else f"{here.stack[:3]} {here.layer}"
    short += "×" * (here.kind == "cross")
    return panels.site_panel(_place_name(result, place), short, here.stack, keys, maps[place].shape)


def _place_name(result: Any, place: int) -> str:
    here = result.sites[place]
    name = f"Layer {here.layer}" if len(result.sequences) == 1 else f"{here.stack} {here.layer}"
    return f"{name}, cross-attention" if here.kind == "cross" else name


def _sequence(tokens: tuple[str, ...], special: tuple[bool, ...] = ()) -> dict[str, Any]:
    return {"tokens": list(tokens), "special": list(special)}


def _title(result: Result) -> str:
    source = result.provenance
    return f"{source.method.replace('_', ' ').capitalize()} of {source.model}"


def _about(result: Result) -> list[list[str]]:
    source = result.provenance
    rows = [["model", source.model], ["method", source.method]]
    if source.revision:
        rows.append(["revision", source.revision])
    if source.seed is not None:
        rows.append(["seed", str(source.seed)])
    rows += [[name, _said(value)] for name, value in source.parameters.items() if value is not None]
    return rows + [[name, number] for name, number in source.versions.items()]


def _said(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value)) or "none"
    return str(value)
