"""Makes examples of labelled or unlabelled texts or pairs, in a file or a list.

Whatever the source, one ``Example`` at a time is made, so that a file never has to fit in memory
twice. Columns are found by their usual names or named by the caller.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, cast

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.files import (
    ABSENT,
    Row,
    Unusable,
    one_after_another,
    paths_of,
    usable,
)

if TYPE_CHECKING:
    import pandas

TEXT_NAMES = ("sentence", "text", "sentence1", "premise", "question1", "question", "#1 String")
PAIR_NAMES = ("sentence2", "pair", "hypothesis", "question2", "#2 String")
LABEL_NAMES = ("label", "labels", "gold_label", "class", "target", "Quality")
ANSWER_NAMES = ("answer", "target_text")
ID_NAMES = ("id", "idx", "index")
HALF = "holds half a character (a lone surrogate) in its {name}. Write it anew as UTF-8."
EMPTY = "has an empty text. Fill or remove it."

Columns = tuple[str | None, str | None, str | None, str | None]  # text, pair, label, answer
USUAL: Columns = (None, None, None, None)  # those that are looked for where none is named
MISSABLE = (2, 3)  # columns in which a row may have nothing: the label, the answer

Source = str | Path | Iterable[object]  # of examples: a file, a folder, a hub id, or the items


@dataclass(frozen=True)
class Example:
    """One text, or one pair of texts, with its label if it has one.

    The answer is what a language model is to say after the text; other models do not read it.
    """

    id: str
    text: str
    pair: str | None = None
    label: str | None = None
    answer: str | None = None


def read_examples(
    source: Source,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    answer: str | None = None,
    labelled: bool = False,
) -> list[Example]:
    """Read every example of a file (TSV, CSV, JSONL, Parquet) or of a list.

    A list may hold strings, pairs of strings, dictionaries or Examples; a pandas table is read as
    its rows. ``text``, ``pair``, ``label`` and ``answer`` name columns; without a name the usual
    ones are looked for. ``labelled`` demands that every example has a label.

    >>> read_examples(["a fine film", ("a cat sleeps", "an animal sleeps")])
    [Example(id='0', text='a fine film', pair=None, label=None, answer=None),
     Example(id='1', text='a cat sleeps', pair='an animal sleeps', label=None, answer=None)]
    >>> path = tmp_path / "reviews.tsv"
    >>> written = path.write_text("review\\tlabel\\na fine film\\tpositive\\n")
    >>> read_examples(path, text="review", labelled=True)
    [Example(id='0', text='a fine film', pair=None, label='positive', answer=None)]
    >>> read_examples(path)
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: reviews.tsv has no column for the text. ...
    """
    examples = list(iterate_examples(source, (text, pair, label, answer)))
    if not examples:
        raise BadRequestError(f"{_name(source)} holds no examples. Give at least one text.")
    if labelled:
        require_labels(examples, _name(source))
    return examples


def iterate_examples(source: Source, columns: Columns = USUAL) -> Iterator[Example]:
    """Yield the examples of a source one by one; the first row that cannot be used is an error."""
    if isinstance(source, str | Path):
        rows = usable(one_after_another(paths_of(source)))
        yield from _all_usable(examples_of_rows(rows, Path(source).name, columns))
        return
    items = enumerate(items_of(source))
    yield from _all_usable(example_of_item(item, number, columns) for number, item in items)


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
    labels = {example.label for example in examples if example.label is not None}
    if len(labels) == 1:
        raise BadRequestError(
            f'Every example has the label "{labels.pop()}", so there is nothing to tell apart. '
            f"Give examples of at least two labels."
        )
    try:
        return sorted(labels, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(labels)


def require_known_labels(examples: Iterable[Example], labels: Iterable[str]) -> None:
    """Refuse examples whose label is none of the given ones."""
    allowed = list(labels)
    for example in examples:
        if example.label is not None and example.label not in allowed:
            raise BadRequestError(
                f'Example {example.id} has the label "{example.label}", which the model does not '
                f"know. Its labels: {', '.join(allowed)}."
            )


def items_of(source: Iterable[object]) -> Iterable[object]:
    """The entries of a collection, where iterating alone would not give texts but column names."""
    if isinstance(source, Mapping):
        raise BadRequestError("A single dictionary is not a data set. Give a list of them.")
    if hasattr(source, "iterrows"):  # a pandas table, whose missing values become None
        table = cast("pandas.DataFrame", source)
        return table.astype(object).where(table.notna(), None).to_dict("records")
    return source


def example_of_item(item: object, number: int, columns: Columns) -> "Example | Unusable":
    """The example made from an entry of a list."""
    where = f"item {number}"
    if isinstance(item, Example):
        return _writable(item, where)
    if isinstance(item, str):
        whole = _writable(Example(str(number), item), where)
        return whole if item.strip() else Unusable(where, EMPTY)
    if isinstance(item, Mapping):
        example = next(examples_of_rows(iter([item]), where, columns))
        if isinstance(example, Unusable) or _first(item, ID_NAMES):
            return example
        return replace(example, id=str(number))
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(s, str) for s in item):
        text, pair = item
        whole = _writable(Example(str(number), text, pair), where)
        return whole if text.strip() else Unusable(where, EMPTY)
    raise BadRequestError(
        f"Item {number} of the list is a {type(item).__name__}. "
        f"Give strings, pairs of strings, dictionaries or Examples."
    )


def examples_of_rows(
    rows: Iterable[Row | Unusable], name: str, columns: Columns, identity: str | None = None
) -> "Iterator[Example | Unusable]":
    """Turn rows into examples; the columns are chosen once, on the first row."""
    chosen: Columns | None = None
    for number, row in enumerate(rows):
        if isinstance(row, Unusable):
            yield row
            continue
        if chosen is None:
            chosen = (
                _column(row, columns[0], TEXT_NAMES, "text", name),
                _column(row, columns[1], PAIR_NAMES, "pair", name),
                _column(row, columns[2], LABEL_NAMES, "label", name),
                _column(row, columns[3], ANSWER_NAMES, "answer", name),
            )
            identity = _column(row, identity, ID_NAMES, "id", name)
        cells = [_cell(row, column) for column in chosen]
        if fault := _fault(cells, chosen):
            yield Unusable(f"{name}, row {number + 1}", fault)
            continue
        text, pair, label, answer = (None if cell is None else str(cell) for cell in cells)
        example_id = str(number) if identity is None else str(row.get(identity, number))
        # a blank in front of an answer is part of it
        reply = answer if answer and answer.strip() else None
        example = Example(example_id, str(text), pair, (label or "").strip() or None, reply)
        yield _writable(example, f"{name}, row {number + 1}")


def _writable(example: Example, where: str) -> "Example | Unusable":
    """The example, if all of it is text: half a character can be neither encoded nor stored."""
    for name, value in vars(example).items():
        if any("\ud800" <= character <= "\udfff" for character in value or ""):
            return Unusable(where, HALF.format(name=name))
    return example


def _cell(row: Row, column: str | None) -> object:
    """The value of a row in a column; NaN, which tables of numbers use for a gap, is None."""
    cell = None if column is None else row.get(column, ABSENT)
    return None if isinstance(cell, Number) and cell != cell else cell


def _fault(cells: list[object], columns: Columns) -> str | None:
    """Why these cells make no example, or None where they do. A label or answer may be missing."""
    for place, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        missing = place in MISSABLE and cell is None
        if column is None or missing or isinstance(cell, str | Number):
            continue
        if cell is None or cell is ABSENT:
            return f'has nothing in the column "{column}". Fill or remove it.'
        kind = type(cell).__name__
        return f'has a {kind} in the column "{column}". Put text or a number there.'
    return None if str(cells[0]).strip() else EMPTY


def _all_usable(entries: "Iterable[Example | Unusable]") -> "Iterator[Example]":
    for entry in entries:
        if isinstance(entry, Unusable):
            raise BadRequestError(str(entry))
        yield entry


def _column(
    row: Row, named: str | None, usual: tuple[str, ...], role: str, source: str
) -> str | None:
    """The column with a role: as the caller named it, or a usual name; only the text needs one."""
    column = (named if named in row else None) if named else _first(row, usual)
    if column is None and (named or role == "text"):
        wanted = f'column "{named}"' if named else f"column for the {role}"
        keyword = "identity" if role == "id" else role
        raise BadRequestError(
            f"{source} has no {wanted}. Columns found: {', '.join(map(str, row))}. "
            f"Name the right one (--{role}, {keyword}=)."
        )
    return column


def _first(row: Row, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in row), None)


def _name(source: object) -> str:
    return Path(source).name if isinstance(source, str | Path) else "The list"
