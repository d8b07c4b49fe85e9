"""What does a page need to know? A header in plain values, and blocks of packed numbers.

``view`` makes both from any result. Results with a shape of their own (a trial, attention maps, a
token's story, a tree, a curve) get the panels made for them in ``views/``; every other result gets
its largest maps, and tables of the rest. The page, the notebook and the server all show a ``View``.

The panels are over the words of the text (``display_units.py``). Where these are not its tokens one
by one, the panels over tokens stand beside them (``tokens`` in the header) if both fit into a page.
"""

import json
from dataclasses import dataclass
from typing import cast

from exhibit_a.report.display_units import TOKEN, reading, unit_of
from exhibit_a.report.glossary import plain_sentences
from exhibit_a.report.header import Header, Panels
from exhibit_a.report.original_text import with_words
from exhibit_a.report.overlay import scene_panel
from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import sequence
from exhibit_a.report.views import panels_of
from exhibit_a.report.views.comparison import comparison_panel
from exhibit_a.results.plain import plain
from exhibit_a.results.result import Result
from exhibit_a.trace.units import Asked
from exhibit_a.trials.comparison import Comparison
from exhibit_a.trials.trial import Trial

SCHEMA = 1
BUDGET = 4_700_000  # characters of all blocks; with the rest, a page of 5 MB
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


def view(result: Result, by: Asked | None = None) -> View:
    """Everything a page shows about a result, over words or over the units asked for."""
    if isinstance(result, Comparison):
        return _beside(result, by)
    shown, blocks = reading(result, by), Blocks()
    header = _header(result, shown, blocks)
    if by is None and _differ(shown, result):
        apart = Blocks(prefix=f"{TOKEN} ")
        by_token = _panels(result, apart)
        if blocks.length + apart.length <= BUDGET:
            header["tokens"] = by_token
            blocks.extend(apart)
    return View(header, blocks.text())


def _header(result: Result, shown: Result, blocks: Blocks) -> Header:
    """The header of a result, with panels over the units that are shown."""
    header = {
        "schema": SCHEMA,
        "kind": type(result).__name__,
        "title": _title(result),
        "unit": unit_of(shown),
        **_panels(shown, blocks),
        "about": _about(result),
        "checks": [(name, _words(value)) for name, value in shown.checks.items()],
        "glossary": plain_sentences(),
        "blocks": blocks.places,
    }
    return cast("Header", header)  # the panels always have what a header must


def _panels(result: Result, blocks: Blocks) -> Panels:
    """The panels of a result as it is, with the picture that was looked at."""
    panels: Panels = {
        "sequences": {"tokens": sequence(result.tokens or ())},
        "charts": [],
        "tables": [],
        **panels_of(result, blocks),
    }
    panels["sequences"] = with_words(panels["sequences"], result)
    if result.scene is not None:
        panels["scene"] = scene_panel(result.scene, panels["sequences"])
    return panels


def _differ(shown: Result, result: Result) -> bool:
    """Whether some unit is more than one token; other names alone are no other view."""
    sizes = ([len(layout) for layout in each.layouts.values()] for each in (shown, result))
    return shown is not result and len(set(map(tuple, sizes))) > 1


def _beside(result: Comparison, by: Asked | None) -> View:
    """Both results in one view: each has half the bytes, and blocks with a prefix of its own."""
    blocks = Blocks()
    parts = list[Header]()
    for name, part in (("first", result.first), ("second", result.second)):
        apart = Blocks(prefix=f"{name} ", share=0.5)
        parts.append(_header(part, reading(part, by), apart))
        blocks.extend(apart)
    for header in parts:
        header["blocks"] = blocks.places
        del header["glossary"]  # the page has it once
    header = _header(result, result, blocks)
    return View({**header, "comparison": comparison_panel(result, *parts)}, blocks.text())


def _title(result: Result) -> str:
    origin = result.provenance
    if isinstance(result, Trial):
        what = "text" if result.scene is None else "picture"
        return f"One {what}, every method: {origin.model}"
    if isinstance(result, Comparison):
        return f"Two results side by side: {origin.model}"
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
