"""What does the user hold? Labelled or unlabelled text, alone or in pairs, from a file or a list.

Whatever the source, one ``Example`` at a time comes out, so that a file never has to fit in memory
twice. Columns are found by their usual names or named by the caller.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Number
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.files import (
    ABSENT,
    Row,
    Unusable,
    one_after_another,
    paths_of,
    usable,
)

TEXT_NAMES = ("sentence", "text", "sentence1", "premise", "question1", "question", "#1 String")
PAIR_NAMES = ("sentence2", "pair", "hypothesis", "question2", "#2 String")
LABEL_NAMES = ("label", "labels", "gold_label", "class", "target", "Quality")
ID_NAMES = ("id", "idx", "index")
EMPTY = "has an empty text. Fill or remove it."

Columns = tuple[str | None, str | None, str | None]  # of the text, the pair and the label
LABEL = 2


@dataclass(frozen=True)
class Example:
    """One text, or one pair of texts, with its label if it has one."""

    id: str
    text: str
    pair: str | None = None
    label: str | None = None


def read_examples(
    source: str | Path | Iterable[Any],
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    labelled: bool = False,
) -> list[Example]:
    """Read every example of a file (TSV, CSV, JSONL, Parquet) or of a list.

    A list may hold strings, pairs of strings, dictionaries or Examples; a pandas table is read as
    its rows. ``text``, ``pair`` and ``label`` name columns; without a name the usual ones are
    looked for. ``labelled`` demands that every example has a label.
    """
    examples = list(iterate_examples(source, text=text, pair=pair, label=label))
    if not examples:
        raise BadRequestError(f"{_name(source)} holds no examples. Give at least one text.")
    if labelled:
        require_labels(examples, _name(source))
    return examples


def iterate_examples(
    source: str | Path | Iterable[Any],
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
) -> Iterator[Example]:
    """Yield the examples of a source one by one; the first row that cannot be used is an error."""
    if isinstance(source, str | Path):
        rows = usable(one_after_another(paths_of(source)))
        yield from _must(examples_of_rows(rows, Path(source).name, (text, pair, label)))
        return
    items = enumerate(items_of(source))
    yield from _must(example_of_item(item, number, (text, pair, label)) for number, item in items)


def require_labels(examples: Iterable[Example], name: str) -> None:
    """Refuse examples without a label, naming the first one."""
    for number, example in enumerate(examples):
        if not example.label:
            raise BadRequestError(
                f"{name}, row {number + 1}: example {example.id} has no label, and labels are "
                f"needed here. Fill it in, or name the column that holds them (--label, label=)."
            )


def label_names(examples: Iterable[Example]) -> list[str]:
    """The labels that occur, in an order that does not depend on the order of the examples.

    Whole numbers are sorted as numbers, everything else as text.
    """
    found = {example.label for example in examples if example.label is not None}
    if len(found) == 1:
        raise BadRequestError(
            f'Every example has the label "{found.pop()}", so there is nothing to tell apart. '
            f"Give examples of at least two labels."
        )
    try:
        return sorted(found, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(found)


def require_known_labels(examples: Iterable[Example], labels: Iterable[str]) -> None:
    """Refuse examples whose label is none of the given ones."""
    known = list(labels)
    for example in examples:
        if example.label is not None and example.label not in known:
            raise BadRequestError(
                f'Example {example.id} has the label "{example.label}", which the model does not '
                f"know. Its labels: {', '.join(known)}."
            )


def items_of(source: Iterable[Any]) -> Iterable[Any]:
    """The entries of a collection, where iterating alone would not give texts but column names."""
    if isinstance(source, Mapping):
        raise BadRequestError("A single dictionary is not a data set. Give a list of them.")
    if hasattr(source, "iterrows"):  # a pandas table, with its many words for nothing as None
        table: Any = source
        rows: list[Row] = table.astype(object).where(table.notna(), None).to_dict("records")
        return rows
    return source


def example_of_item(item: Any, number: int, columns: Columns) -> "Example | Unusable":
    """The example that an entry of a list stands for."""
    if isinstance(item, Example):
        return item
    where = f"item {number}"
    if isinstance(item, str):
        return Example(str(number), item) if item.strip() else Unusable(where, EMPTY)
    if isinstance(item, Mapping):
        found = next(examples_of_rows(iter([item]), where, columns))
        if isinstance(found, Unusable) or _first(item, ID_NAMES):
            return found
        return replace(found, id=str(number))
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(s, str) for s in item):
        whole = item[0].strip()
        return Example(str(number), item[0], item[1]) if whole else Unusable(where, EMPTY)
    raise BadRequestError(
        f"Item {number} of the list is a {type(item).__name__}. "
        f"Give strings, pairs of strings, dictionaries or Examples."
    )


def examples_of_rows(
    rows: Iterable[Row | Unusable], name: str, columns: Columns, identity: str | None = None
) -> "Iterator[Example | Unusable]":
    """Turn rows into examples; the columns are settled once, on the first row."""
    settled: Columns | None = None
    for number, row in enumerate(rows):
        if isinstance(row, Unusable):
            yield row
            continue
        if settled is None:
            settled = (
                _column(row, columns[0], TEXT_NAMES, "text", name),
                _column(row, columns[1], PAIR_NAMES, "pair", name),
                _column(row, columns[2], LABEL_NAMES, "label", name),
            )
            identity = _column(row, identity, ID_NAMES, "id", name)
        cells = [_cell(row, column) for column in settled]
        if fault := _fault(cells, settled):
            yield Unusable(f"{name}, row {number + 1}", fault)
            continue
        text, pair, label = (None if cell is None else str(cell) for cell in cells)
        own = str(number) if identity is None else str(row.get(identity, number))
        yield Example(own, str(text), pair, (label or "").strip() or None)


def _cell(row: Row, column: str | None) -> Any:
    """What a row has in a column. NaN is nothing: so tables of numbers write a gap."""
    cell = None if column is None else row.get(column, ABSENT)
    return None if isinstance(cell, Number) and cell != cell else cell


def _fault(cells: list[Any], columns: Columns) -> str | None:
    """Why these cells make no example, if they do not. Only a label may be left open."""
    for place, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        open_label = place == LABEL and cell is None
        if column is None or open_label or isinstance(cell, str | Number):
            continue
        if cell is None or cell is ABSENT:
            return f'has nothing in the column "{column}". Fill or remove it.'
        found = type(cell).__name__
        return f'has a {found} in the column "{column}". Put text or a number there.'
    return None if str(cells[0]).strip() else EMPTY


def _must(found: "Iterable[Example | Unusable]") -> "Iterator[Example]":
    for one in found:
        if isinstance(one, Unusable):
            raise BadRequestError(str(one))
        yield one


def _column(
    row: Row, asked: str | None, usual: tuple[str, ...], role: str, name: str
) -> str | None:
    """The column that plays a role: as asked, or by its usual name; only text is a must."""
    found = asked if asked in row else None if asked else _first(row, usual)
    if found is None and (asked or role == "text"):
        wanted = f'column "{asked}"' if asked else f"column for the {role}"
        keyword = "identity" if role == "id" else role
        raise BadRequestError(
            f"{name} has no {wanted}. Columns found: {', '.join(map(str, row))}. "
            f"Name the right one (--{role}, {keyword}=)."
        )
    return found


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in row), None)


def _name(source: object) -> str:
    return Path(source).name if isinstance(source, str | Path) else "The list"
