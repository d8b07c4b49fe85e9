"""The columns of the table of every result, from its annotations, for docs/tables.md."""

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import exhibit_a as xa
from exhibit_a.methods.explanation.pictures import Picture
from exhibit_a.report.latex import LONGEST
from exhibit_a.results.result import Result
from exhibit_a.results.tables import axes_of
from exhibit_a.trials import comparison

sys.path.insert(0, str(Path(__file__).parent))

from fields import comment_on

SAID = {"word": "the verdict", "reason": "why, in a sentence", "head": "its number in the layer"}
NOT_IN_ROWS = {xa.HeadVerdict: ("site", "head"), Picture: ("scores",)}


def parts() -> dict[str, str]:
    """The tables of docs/tables.md."""
    tables = get_args(comparison.ComparisonTable)
    changes = {name: _record(get_type_hints(xa.Comparison)[name]) for name in tables}
    place = "| `stack`, `layer`, `kind`, `head` | where the head stands; kind is self or cross |"
    words = {"words": "of the text, the most important first"}
    return {
        "longest": str(LONGEST),
        "heads": _table("column", place, _rows(_told(xa.HeadVerdict))),
        "pictures": _table("column", _rows(_told(Picture) | words)),
        "compared": _table(
            "what | column", *(_rows(_told(kind), f"`{what}`") for what, kind in changes.items())
        ),
        "lists": _table(
            "result | column",
            *(_rows(kind.columns, f"`{kind.__name__}`") for kind in _kinds() if kind.columns),
        ),
        "fields": _table(
            "result | field | axes", *(row for kind in _kinds() for row in _fields(kind))
        ),
    }


def _table(columns: str, *rows: str) -> str:
    rule = "|---" * (columns.count("|") + 2) + "|"
    return "\n".join([f"| {columns} | what it says |", rule, *rows])


def _kinds() -> list[type[Result]]:
    """Every public kind of result, by name."""
    public = [getattr(xa, name) for name in xa.__all__]
    kinds = [kind for kind in public if inspect.isclass(kind) and issubclass(kind, Result)]
    return sorted((kind for kind in kinds if kind is not Result), key=lambda kind: kind.__name__)


def _record(hint: object) -> type:
    """What a tuple holds."""
    kind = get_args(hint)[0]
    assert inspect.isclass(kind)
    return kind


def _fields(kind: type[Result]) -> list[str]:
    hints, told = get_type_hints(kind), _comments(kind)
    rows = []
    for field in dataclasses.fields(kind):
        axes = axes_of(hints[field.name], field.metadata.get("over"))
        if axes:
            cells = f"`{kind.__name__}`", f"`{field.name}`", ", ".join(axes), told[field.name]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def _rows(told: dict[str, str], before: str = "") -> str:
    start = f"| {before} " if before else ""
    return "\n".join(f"{start}| `{name}` | {text} |" for name, text in told.items())


def _told(kind: type) -> dict[str, str]:
    """The columns that the fields of a class become, and what each says."""
    told = _comments(kind)
    left_out = NOT_IN_ROWS.get(kind, ())
    return {
        field.name: told[field.name]
        for field in dataclasses.fields(kind)
        if field.name not in left_out
    }


def _comments(kind: type) -> dict[str, str]:
    """What is written beside or above each field of a class and of those it extends."""
    told: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("exhibit_a."):
            source = inspect.getsource(base)
            lines = source.splitlines()
            (definition,) = ast.parse(source).body
            assert isinstance(definition, ast.ClassDef)
            for line in definition.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    name = line.target.id
                    told[name] = comment_on(lines, line.lineno - 1) or SAID.get(name, "")
    return {name: text.replace("|", "\\|") for name, text in told.items()}
