"""What does the user hold? Labelled or unlabelled text, alone or in pairs, from a file or a list.

Whatever the source, one ``Example`` at a time comes out, so that a file never has to fit in memory
twice. Columns are found by their usual names or named by the caller. Tab-separated files are read
with quoting off: in the GLUE files a quotation mark is text and often has no partner.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError

TEXT_NAMES = ("sentence", "text", "sentence1", "premise", "question1", "question", "#1 String")
PAIR_NAMES = ("sentence2", "pair", "hypothesis", "question2", "#2 String")
LABEL_NAMES = ("label", "labels", "gold_label", "class", "target", "Quality")
ID_NAMES = ("id", "idx", "index")

Row = Mapping[str, Any]


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
    """Yield the examples of a source one by one."""
    if isinstance(source, str | Path):
        yield from _examples_of_rows(_rows(Path(source)), Path(source).name, (text, pair, label))
        return
    if isinstance(source, Mapping):  # iterating would take its column names for texts
        raise BadRequestError("A single dictionary is not a data set. Give a list of them.")
    for number, item in enumerate(source):
        yield _example_of_item(item, number, (text, pair, label))


def require_labels(examples: Iterable[Example], name: str) -> None:
    """Refuse examples without a label, naming the first one."""
    for example in examples:
        if example.label is None:
            raise BadRequestError(
                f"{name}: example {example.id} has no label, and labels are needed here. "
                f"Name the column that holds them with label=."
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


def _example_of_item(item: Any, number: int, columns: tuple[str | None, ...]) -> Example:
    if isinstance(item, Example):
        return item
    if isinstance(item, str):
        return Example(str(number), _not_empty(item, f"item {number}"))
    if isinstance(item, Mapping):
        found = next(_examples_of_rows(iter([item]), f"item {number}", columns))
        return found if _first(item, ID_NAMES) else replace(found, id=str(number))
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(s, str) for s in item):
        return Example(str(number), _not_empty(item[0], f"item {number}"), item[1])
    raise BadRequestError(
        f"Item {number} of the list is a {type(item).__name__}. "
        f"Give strings, pairs of strings, dictionaries or Examples."
    )


def _examples_of_rows(
    rows: Iterator[Row], name: str, columns: tuple[str | None, ...]
) -> Iterator[Example]:
    """Turn rows into examples; the columns are settled once, on the first row."""
    text = pair = label = identity = None
    for number, row in enumerate(rows):
        if number == 0:
            text = _column(row, columns[0], TEXT_NAMES, "text", name)
            pair = _column(row, columns[1], PAIR_NAMES, "pair", name)
            label = _column(row, columns[2], LABEL_NAMES, "label", name)
            identity = _first(row, ID_NAMES)
        where = f"{name}, row {number + 1}"
        yield Example(
            str(number) if identity is None else str(row.get(identity, number)),
            _not_empty(_cell(row, text, where), where),
            None if pair is None else _cell(row, pair, where),
            None if label is None else _cell(row, label, where),
        )


def _column(
    row: Row, asked: str | None, usual: tuple[str, ...], role: str, name: str
) -> str | None:
    """The column that plays a role: as asked, or by its usual name; only text is a must."""
    found = asked if asked in row else None if asked else _first(row, usual)
    if found is None and (asked or role == "text"):
        wanted = f'column "{asked}"' if asked else f"column for the {role}"
        raise BadRequestError(
            f"{name} has no {wanted}. Columns found: {', '.join(map(str, row))}. "
            f"Name the right one with {role}=."
        )
    return found


def _first(row: Row, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in row), None)


def _cell(row: Row, column: str | None, where: str) -> str:
    value = row.get(column or "")
    if value is None:
        raise BadRequestError(f'{where} has nothing in the column "{column}". Fill or remove it.')
    return str(value)


def _not_empty(text: str, where: str) -> str:
    if not text.strip():
        raise BadRequestError(f"{where} has an empty text. Fill or remove it.")
    return text


def _name(source: object) -> str:
    return Path(source).name if isinstance(source, str | Path) else "The list"


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file, read by what its name ends in."""
    readers = {
        ".tsv": _tab_separated,
        ".csv": _comma_separated,
        ".jsonl": _json_lines,
        ".parquet": _parquet,
    }
    if not path.is_file():
        raise BadRequestError(f'There is no file "{path}". Check the path.')
    if path.suffix.lower() not in readers:
        raise BadRequestError(
            f"Cannot tell the format of {path.name} by its ending. "
            f"Formats that can be read: {', '.join(readers)}."
        )
    if path.stat().st_size == 0:
        raise BadRequestError(f"{path.name} is empty. Give a file with at least one example.")
    return readers[path.suffix.lower()](path)


def _tab_separated(path: Path) -> Iterator[Row]:
    return _table(path, delimiter="\t", quoting=csv.QUOTE_NONE)


def _comma_separated(path: Path) -> Iterator[Row]:
    return _table(path, delimiter=",", quoting=csv.QUOTE_MINIMAL)


def _table(path: Path, *, delimiter: str, quoting: Any) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # the default refuses a long document
    rows = csv.DictReader(_lines(path), delimiter=delimiter, quoting=quoting)
    try:
        for number, row in enumerate(rows):
            if None in row:
                raise BadRequestError(
                    f"{path.name}, row {number + 1} has more cells than the header has names "
                    f"({len(rows.fieldnames or ())}). Check the separator."
                )
            yield row
    except csv.Error as problem:
        raise BadRequestError(f"{path.name} is not a table ({problem}).") from None


def _json_lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(path)):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as problem:
            raise BadRequestError(
                f"{path.name}, line {number + 1} is not JSON ({problem}). One object a line."
            ) from None
        if not isinstance(row, dict):
            raise BadRequestError(
                f"{path.name}, line {number + 1} is a {type(row).__name__}. One object a line."
            )
        yield row


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file, without a byte-order mark; anything binary is refused."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            for line in file:
                if "\0" in line:
                    raise BadRequestError(
                        f"{path.name} is not text (it holds zero bytes). Check that this is the "
                        f"right file."
                    )
                yield line
        except UnicodeDecodeError:
            raise BadRequestError(
                f"{path.name} is not text in UTF-8. Convert it, or check that this is the right "
                f"file."
            ) from None


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadRequestError(
            f"Reading {path.name} needs pyarrow. Install it with: pip install 'exhibit-a[corpus]'"
        ) from None
    try:
        table = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as problem:
        raise BadRequestError(
            f"{path.name} is not a Parquet file ({problem}). Check that this is the right file."
        ) from None
    with table:
        for batch in table.iter_batches():
            yield from batch.to_pylist()
