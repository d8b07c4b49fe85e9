"""Write docs/tables.md: which columns the table of every result has, from its annotations.

``make map`` runs it; a test sees that the page is what the classes say.
"""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import get_type_hints

import exhibit_a as xa
from exhibit_a.results.result import Result
from exhibit_a.results.tables import axes_of

PAGE = Path(__file__).parents[2] / "docs/tables.md"
HEAD = """# Results as tables

*Written by `make map` from the classes themselves; do not edit it by hand.*

```python
result.to_pandas()  # one long table: field, a column for each axis, <axis>_token, value
result.to_xarray()  # one labelled array for each field
result.to_latex()  # the short table that the command line prints, for a paper (booktabs)
trial.to_pandas()  # one row for each head: where it stands, its verdict, every number behind it
trial.to_pandas(what="pictures")  # one row for each picture, with its advice
trial.to_pandas(what="long")  # every tensor, as for other results
```

In the long table a row is one number: `field` says which, and a column for each axis says where. Axes that count tokens
have a second column with the token. An axis that a field does not have is empty in its rows.

## One row for each head: `trial.to_pandas()`

| column | what it says |
|---|---|
| `stack`, `layer`, `kind`, `head` | where the head stands; kind is self or cross |
{heads}

## The long table, result by result

| result | field | axes |
|---|---|---|
{fields}
"""
SAID = {"word": "the verdict", "reason": "why, in a sentence"}
COMMENT = re.compile(r"^    (\w+): .*?#\s*(.+)$", re.M)


def page() -> str:
    """The whole page."""
    heads = [
        f"| `{name}` | {told} |"
        for name, told in _comments(xa.HeadVerdict).items()
        if name not in ("site", "head")
    ]
    rows = [row for kind in _kinds() for row in _fields(kind)]
    return HEAD.format(heads="\n".join(heads), fields="\n".join(rows))


def _kinds() -> list[type[Result]]:
    """Every public kind of result, by name."""
    public = [getattr(xa, name) for name in xa.__all__]
    kinds = [kind for kind in public if inspect.isclass(kind) and issubclass(kind, Result)]
    return sorted((kind for kind in kinds if kind is not Result), key=lambda kind: kind.__name__)


def _fields(kind: type[Result]) -> list[str]:
    hints = get_type_hints(kind)
    rows = []
    for field in dataclasses.fields(kind):
        axes = axes_of(hints[field.name], field.metadata.get("over"))
        if axes:
            rows.append(f"| `{kind.__name__}` | `{field.name}` | {', '.join(axes)} |")
    return rows


def _comments(kind: type) -> dict[str, str]:
    """What is written beside each field of a class and of those it extends."""
    told: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        told |= dict(COMMENT.findall(inspect.getsource(base)))
    return {
        field.name: told.get(field.name, SAID.get(field.name, "")).replace("|", "\\|")
        for field in dataclasses.fields(kind)
    }


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
