"""Write docs/tables.md: which columns the table of every result has, from its annotations.

``make map`` runs it; a test sees that the page is what the classes say.
"""

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import exhibit_a as xa
from exhibit_a.methods.explanation.pictures import Picture
from exhibit_a.results.result import Result
from exhibit_a.results.tables import axes_of
from exhibit_a.trials import comparison

sys.path.insert(0, str(Path(__file__).parent))

from fields import comment_on

PAGE = Path(__file__).parents[2] / "docs/tables.md"
HEAD = """# Results as tables

*Written by `make map` from the classes themselves; do not edit it by hand.*

```python
result.to_pandas()  # a table; which columns it has is said below, result by result
result.to_xarray()  # one labelled array for each field
result.to_latex(top=6)  # the short table that the command line prints, for a paper (booktabs)
trial.to_pandas()  # one row for each head: where it stands, its verdict, every number behind it
trial.to_pandas(what="pictures")  # one row for each picture, with its advice
trial.to_pandas(what="long")  # every tensor, as for other results
compared.to_pandas(what="words")  # of xa.compare: heads, words, answers or tensors
run.to_pandas()  # of a run over a data set, one row for each text
```

`to_latex` gives the same rows as the command line, at most {longest} of them; a longer table is refused with the advice to
ask for the first ones (`top=`). The tables of a run over a data set have a page of their own:
[a million texts](corpus.md).

## One row for each head: `trial.to_pandas()`

| column | what it says |
|---|---|
| `stack`, `layer`, `kind`, `head` | where the head stands; kind is self or cross |
{heads}

## One row for each picture: `trial.to_pandas(what="pictures")`

| column | what it says |
|---|---|
{pictures}

## Two results side by side: `xa.compare(…).to_pandas(what=…)`

Without `what`, the first of these that is known.

| what | column | what it says |
|---|---|---|
{compared}

## Results that are lists

| result | column | what it says |
|---|---|---|
{lists}

## The long table

Every other result is made of tensors, and its table is long: a row is one number. `field` says which, a column for each
axis says where, and `value` is the number. Where the places on an axis have names (tokens, words, pictures), a second column
has them, such as `key_token`. An axis that a field does not have is empty in its rows.

| result | field | axes | what it says |
|---|---|---|---|
{fields}
"""
SAID = {"word": "the verdict", "reason": "why, in a sentence", "head": "its number in the layer"}
NOT_IN_ROWS = {xa.HeadVerdict: ("site", "head"), Picture: ("scores",)}


def page() -> str:
    """The whole page."""
    from exhibit_a.report.latex import LONGEST

    tables = get_args(comparison.ComparisonTable)
    changes = {name: _record(get_type_hints(xa.Comparison)[name]) for name in tables}
    return HEAD.format(
        longest=LONGEST,
        heads=_rows(_told(xa.HeadVerdict)),
        pictures=_rows(_told(Picture) | {"words": "of the text, the most important first"}),
        compared="\n".join(_rows(_told(kind), f"`{what}`") for what, kind in changes.items()),
        lists="\n".join(
            _rows(kind.columns, f"`{kind.__name__}`") for kind in _kinds() if kind.columns
        ),
        fields="\n".join(row for kind in _kinds() for row in _fields(kind)),
    )


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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
