"""The columns of the table of every result, from its annotations, for docs/tables.md."""

import ast
import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from typing import get_type_hints

from fields import comment_on
from page_tables import table

import exhibit_a as xa
from exhibit_a.report.latex import LONGEST as LONGEST
from exhibit_a.results.result import Result
from exhibit_a.results.tables import axes_of

SAID = {"word": "the verdict", "reason": "why, in a sentence", "head": "its number in the layer"}
Lines = Iterable[tuple[str, ...]]


def says(names: str, lines: Lines) -> str:
    """A table of names, and what each says."""
    return table([*names.split(" | "), "what it says"], lines)


def told(kind: type, without: tuple[str, ...] = (), **other: str) -> Lines:
    """The columns that the fields of a class become, and what each says."""
    said = comments(kind) | other
    names = (field.name for field in dataclasses.fields(kind) if field.name not in without)
    return [(f"`{name}`", said[name]) for name in names]


def kinds() -> list[type[Result]]:
    """Every public kind of result, by name."""
    public = [getattr(xa, name) for name in sorted(xa.__all__)]
    results = [kind for kind in public if inspect.isclass(kind) and issubclass(kind, Result)]
    return [kind for kind in results if kind is not Result]


def fields() -> str:
    """The fields of every result that have axes."""
    return says("result | field | axes", (line for kind in kinds() for line in with_axes(kind)))


def with_axes(kind: type[Result]) -> Iterator[tuple[str, ...]]:
    """The fields of a result that have axes."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if axes := axes_of(hints[field.name], field.metadata.get("over")):
            said = comments(kind)[field.name]
            yield f"`{kind.__name__}`", f"`{field.name}`", ", ".join(axes), said


def comments(kind: type) -> dict[str, str]:
    """What is written beside or above each field of a class and of those it extends."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("exhibit_a."):
            source = inspect.getsource(base)
            for line in ast.parse(source).body[0].body:
                if isinstance(line, ast.AnnAssign):
                    name = line.target.id
                    said = comment_on(source.splitlines(), line.lineno - 1) or SAID.get(name, "")
                    found[name] = said.replace("|", "\\|")
    return found
