"""What the cog blocks in README.md and docs/*.md call: tables and numbers of the pages.

A page is written by hand; between ``[[[cog`` and ``[[[end]]]`` stand what the data in docs/data,
the registry and the package give. ``make pages`` writes all of them, ``make check`` (cog --check)
sees that they are what the data give. Besides these, a block may call all of page_tables.py.

    <!-- [[[cog put("sizes", "length") ]]] -->      what length() of sizes.py makes
    <!-- [[[cog measured("heads-whole") ]]] -->     a table of docs/data/tables.jsonl
    <!-- [[[cog
    say("speed", "… {probes} … {start[runs]} …")    a paragraph with numbers: names of speed.py,
    ]]] -->                                         or fields of a file, here docs/data/start.json
"""

from importlib import import_module
from typing import Any

import cog
from page_tables import *  # noqa: F403 - for the blocks
from page_tables import columns, read


def put(name: str, part: str, *given: Any) -> None:
    """What a function of a script makes."""
    show(getattr(import_module(name), part)(*given))


def say(name: str, text: str) -> None:
    """A paragraph with numbers where their names stand in braces."""

    class Numbers(dict[str, Any]):
        def __missing__(self, field: str) -> Any:
            found = getattr(import_module(name), field, None)
            found = read(f"{field}.json") if found is None else found
            return found() if callable(found) else found

    show(text.format_map(Numbers()))


def measured(name: str) -> None:
    """A table that a study kept, with the command that measured it."""
    from study import kept_tables, markdown

    found = kept_tables()[name]
    show(f"{markdown(found)}\n\n*`{found['command']}`, version {found['versions']['exhibit-a']}*")


def glossary() -> None:
    """Every word that the page of a result explains, with its meaning."""
    from exhibit_a.report.glossary import WORDS

    words = [{"word": word, "meaning": meaning} for word, meaning in sorted(WORDS.items())]
    show(columns(words, {"word": "**{word}**", "meaning": "{meaning}"}))


def show(text: str) -> None:
    """A part between blank lines, so that Markdown sees it begin and end."""
    cog.outl(f"\n{text.strip()}\n")
