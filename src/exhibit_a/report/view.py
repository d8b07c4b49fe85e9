"""What a page knows: a header in plain values, and blocks of packed numbers.

``view`` makes both from the description of any result (``describe/``, ``panels.py``). The page, the
notebook and the server all show a ``View``.

The panels are over the words of the text (``display_units.py``). Where these are not its tokens one
by one, the panels over tokens are there, too (``tokens`` in the header), if both fit into a page.
"""

import json
from dataclasses import dataclass
from typing import cast

from exhibit_a.report.blocks import AnswerSummary, Blocks, Sides, of_kind
from exhibit_a.report.describe import describe
from exhibit_a.report.display_units import TOKEN, reading, unit_of
from exhibit_a.report.glossary import plain_sentences
from exhibit_a.report.header import Header
from exhibit_a.report.pack import PackedBlocks
from exhibit_a.report.panels import panels
from exhibit_a.results.plain import plain
from exhibit_a.results.result import Result
from exhibit_a.trace.units import UnitSpec

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
        text = json.dumps(self.header, ensure_ascii=False, separators=(",", ":"))
        return (
            text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        )


def view(result: Result, by: UnitSpec | None = None) -> View:
    """Everything a page shows about a result, over words or over the units requested."""
    shown, packed = reading(result, by), PackedBlocks()
    description = describe(shown)
    sides = next(iter(of_kind(description, Sides)), None)
    if sides is not None:
        return _two_results(sides, shown, description, by)
    header = _header(result, shown, description, packed)
    # Whether some unit is more than one token; other names alone are no other view.
    sizes = ([len(layout) for layout in each.layouts.values()] for each in (shown, result))
    differ = shown is not result and len(set(map(tuple, sizes))) > 1
    if by is None and differ:
        apart = PackedBlocks(prefix=f"{TOKEN} ")
        by_token = panels(describe(result), result, apart)
        if packed.length + apart.length <= BUDGET:
            header["tokens"] = by_token
            packed.extend(apart)
    return _view(header, packed)


def _view(header: Header, packed: PackedBlocks) -> View:
    return View(cast("Header", plain(header, DIGITS)), packed.text())


def _header(result: Result, shown: Result, description: Blocks, packed: PackedBlocks) -> Header:
    """The header of a result, with panels over the units that are shown."""
    origin = result.provenance
    if any(summary.word for summary in of_kind(description, AnswerSummary)):
        what = "text" if result.scene is None else "picture"
        title = f"One {what}, every method: {origin.model}"
    elif of_kind(description, Sides):
        title = f"Two results side by side: {origin.model}"
    else:
        title = f"{origin.method.replace('_', ' ').capitalize()} of {origin.model}"
    rows = [("model", origin.model), ("method", origin.method)]
    if origin.revision:
        rows.append(("revision", origin.revision))
    if origin.seed is not None:
        rows.append(("seed", str(origin.seed)))
    given = {name: value for name, value in origin.parameters.items() if value is not None}
    header = {
        "schema": SCHEMA,
        "kind": type(result).__name__,
        "title": title,
        "unit": unit_of(shown),
        **panels(description, shown, packed),
        "about": [
            *rows,
            *((name, _words(value)) for name, value in given.items()),
            *origin.versions.items(),
        ],
        "checks": [(name, _words(value)) for name, value in shown.checks.items()],
        "glossary": plain_sentences(),
        "blocks": packed.places,
    }
    return cast("Header", header)  # the panels always have what a header must


def _two_results(sides: Sides, result: Result, description: Blocks, by: UnitSpec | None) -> View:
    """Both results in one view: each has half the bytes, and blocks with a prefix of its own."""
    packed = PackedBlocks()
    parts = list[Header]()
    for name, part in (("first", sides.first), ("second", sides.second)):
        apart = PackedBlocks(prefix=f"{name} ", share=0.5)
        shown = reading(part, by)
        parts.append(_header(part, shown, describe(shown), apart))
        packed.extend(apart)
    for header in parts:
        header["blocks"] = packed.places
        del header["glossary"]  # the page has it once
    header = _header(result, result, description, packed)
    header["comparison"] = {
        "names": sides.names,
        "sentence": sides.sentence,
        "answers": sides.answers,
        "words": sides.words,
        "heads": sides.heads,
        "moved": sides.moved,
        "first": parts[0],
        "second": parts[1],
    }
    return _view(header, packed)


def _words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    return str(value)
