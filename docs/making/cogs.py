"""What the cog blocks in README.md and docs/*.md call: tables and numbers of the pages.

A page is written by hand; between ``[[[cog`` and ``[[[end]]]`` stand what scripts beside this one
make of docs/data, of the registry and of the package itself. ``make pages`` writes all of them,
``make check`` (cog --check) sees that they are what the data give.

    <!-- [[[cog put("sizes", "LENGTH") ]]] -->      the part LENGTH of sizes.py
    <!-- [[[cog measured("heads-whole") ]]] -->     a table of docs/data/tables.jsonl
    <!-- [[[cog
    say("speed", "… {probes} …")                   a paragraph with numbers of speed.py
    ]]] -->
"""

import importlib
from functools import cache

import cog


@cache
def parts(name: str) -> dict[str, str]:
    """The parts of a page that its script makes, by their names."""
    made: dict[str, str] = importlib.import_module(name).parts()
    return made


def put(name: str, part: str) -> None:
    """One part of a page."""
    show(parts(name)[part])


def say(name: str, text: str) -> None:
    """A paragraph with parts of a page where their names stand in braces."""
    show(text.format(**parts(name)))


def measured(name: str) -> None:
    """A table that a study kept, with the command that measured it."""
    from study import kept_tables, markdown

    table = kept_tables()[name]
    show(f"{markdown(table)}\n\n*`{table['command']}`, version {table['versions']['exhibit-a']}*")


def glossary() -> None:
    """Every word that the page of a result explains, with its meaning."""
    from exhibit_a.report.glossary import WORDS

    rows = [f"| **{word}** | {meaning} |" for word, meaning in sorted(WORDS.items())]
    show("\n".join(["| word | meaning |", "|---|---|", *rows]))


def show(text: str) -> None:
    """A part between blank lines, so that Markdown sees it begin and end."""
    cog.outl(f"\n{text.strip()}\n")
