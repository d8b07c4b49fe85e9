"""What does a page need to know? A header in plain values, and blocks of packed numbers.

``view`` makes both from any result. Results with a shape of their own (a trial, attention maps, a
token's story, a tree, a curve) get the panels made for them in ``views/``; every other result gets
its largest maps, and tables of the rest. The page, the notebook and the server all show a ``View``.
"""

import json
from dataclasses import dataclass

from exhibit_a.report.glossary import plain_sentences
from exhibit_a.report.header import Header
from exhibit_a.report.overlay import scene_panel
from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import sequence
from exhibit_a.report.views import panels_of
from exhibit_a.report.views.comparison import comparison_panel
from exhibit_a.report.written import with_words
from exhibit_a.results.plain import plain
from exhibit_a.results.result import Result
from exhibit_a.trials.comparison import Comparison
from exhibit_a.trials.trial import Trial

SCHEMA = 1
DIGITS = 9  # of the floats in a header: enough for any float32


@dataclass(frozen=True)
class View:
    """A result as a page knows it."""

    header: Header
    blocks: str

    def header_json(self) -> str:
        """The header as JSON that can stand inside a script element."""
        text = json.dumps(plain(self.header, DIGITS), ensure_ascii=False, separators=(",", ":"))
        return (
            text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        )


def view(result: Result, share: float = 1.0) -> View:
    """Everything a page shows about a result; ``share`` is its part of the page's bytes."""
    blocks = Blocks(share)
    header: Header = {
        "schema": SCHEMA,
        "kind": type(result).__name__,
        "title": _title(result),
        "sequences": {"tokens": sequence(result.tokens or ())},
        "charts": [],
        "tables": [],
        "about": _about(result),
        "checks": [(name, _words(value)) for name, value in result.checks.items()],
        **panels_of(result, blocks),
        "glossary": plain_sentences(),
        "blocks": blocks.places,
    }
    header["sequences"] = with_words(header["sequences"], result)
    if result.scene is not None:
        header["scene"] = scene_panel(result.scene, header["sequences"])
    if isinstance(result, Comparison):
        return _beside(result, header)
    return View(header, blocks.text())


def _beside(result: Comparison, header: Header) -> View:
    """The views of both results in one; blocks of the second stand behind those of the first."""
    first, second = (view(part, 0.5) for part in (result.first, result.second))
    start = len(first.blocks)
    moved = {
        name: (place + start, length) for name, (place, length) in second.header["blocks"].items()
    }
    parts: list[Header] = [{**first.header}, {**second.header, "blocks": moved}]
    for part in parts:
        part.pop("glossary", None)  # the page has it once
    return View(
        {**header, "comparison": comparison_panel(result, *parts)}, first.blocks + second.blocks
    )


def _title(result: Result) -> str:
    origin = result.provenance
    if isinstance(result, Trial):
        return f"One text, every method: {origin.model}"
    return f"{origin.method.replace('_', ' ').capitalize()} of {origin.model}"


def _about(result: Result) -> list[tuple[str, str]]:
    origin = result.provenance
    rows = [("model", origin.model), ("method", origin.method)]
    if origin.revision:
        rows.append(("revision", origin.revision))
    if origin.seed is not None:
        rows.append(("seed", str(origin.seed)))
    given = {name: value for name, value in origin.parameters.items() if value is not None}
    return [
        *rows,
        *((name, _words(value)) for name, value in given.items()),
        *origin.versions.items(),
    ]


def _words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    return str(value)
