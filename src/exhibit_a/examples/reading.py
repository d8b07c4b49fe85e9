"""What does the user hold? Labelled or unlabelled text, alone or in pairs, from a file or a list.

Whatever the source, one ``Example`` at a time comes out, so that a file never has to fit in memory
twice. Columns are found by their usual names or named by the caller.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.files import Row, Unusable, one_after_another, paths_of, usable

TEXT_NAMES = ("sentence", "text", "sentence1", "premise", "question1", "question", "#1 String")
PAIR_NAMES = ("sentence2", "pair", "hypothesis", "question2", "#2 String")
LABEL_NAMES = ("label", "labels", "gold_label", "class", "target", "Quality")
ID_NAMES = ("id", "idx", "index")
EMPTY = "has an empty text. Fill or remove it."

Columns = tuple[str | None, str | None, str | None]  # of the text, the pair and the label


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

    A list may hold strings, pairs of strings, dictionaries or Examples. ``text``, ``pair`` and
    ``label`` name columns; without a name the usual ones are looked for. ``labelled`` demands that
    every example has a label.
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
    if isinstance(source, Mapping):  # iterating would take its column names for texts
        raise BadRequestError("A single dictionary is not a data set. Give a list of them.")
    for number, item in enumerate(source):
        found = example_of_item(item, number, (text, pair, label))
        if isinstance(found, Unusable):
            raise BadRequestError(str(found))
        yield found


def require_labels(examples: Iterable[Example], name: str) -> None:
    """Refuse examples without a label, naming the first one."""
    for example in examples:
        if example.label is None:
            raise BadRequestError(
                f"{name}: example {example.id} has no label, and labels are needed here. "
                f"Name the column that holds them (--label, label=)."
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
    if all(name.lstrip("-").isdecimal() for name in found):
        return sorted(found, key=int)
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
    text = pair = label = None
    settled = False
    for number, row in enumerate(rows):
        if isinstance(row, Unusable):
            yield row
            continue
        if not settled:
            text = _column(row, columns[0], TEXT_NAMES, "text", name)
            pair = _column(row, columns[1], PAIR_NAMES, "pair", name)
            label = _column(row, columns[2], LABEL_NAMES, "label", name)
            identity = _column(row, identity, ID_NAMES, "id", name)
            settled = True
        where = f"{name}, row {number + 1}"
        cells = [None if column is None else row.get(column) for column in (text, pair, label)]
        wanting = [
            column
            for column, cell in zip((text, pair, label), cells, strict=True)
            if column is not None and cell is None
        ]
        if wanting:
            yield Unusable(where, f'has nothing in the column "{wanting[0]}". Fill or remove it.')
        elif not str(cells[0]).strip():
            yield Unusable(where, EMPTY)
        else:
            words, second, mark = (None if cell is None else str(cell) for cell in cells)
            own = str(number) if identity is None else str(row.get(identity, number))
            yield Example(own, str(words), second, mark)


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
