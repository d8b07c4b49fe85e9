"""Reads rows from a file of any format without reading all of it first.

There is one reader for each format, and each is a stream. A row that cannot be parsed (cells
without a name, broken JSON) becomes an ``Unusable`` in its place: the caller decides whether that
ends the reading. A file that cannot be read at all (missing, not text, not Parquet) is an error.

Tab-separated files are read with quoting off: in the GLUE files a quotation mark is text and often
unpaired. Comma-separated files are read strictly: an unpaired quotation mark would take every row
after it into one cell, and is refused.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from glob import glob, has_magic
from itertools import chain
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.extras import extra

Row = Mapping[str, object]  # a cell may hold anything until it is checked
LONGEST_LINE = 2**26  # characters, more than any text that is examined
ABSENT = object()  # the value of a cell that is missing because the row is too short


@dataclass(frozen=True)
class Unusable:
    """A row that cannot be used: its place, and the reason."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where} {self.reason}"


def paths_of(source: str | Path) -> list[Path]:
    """The path itself, or where it is a pattern, all files that match it, in order."""
    path = Path(source)
    if is_there(path) or not has_magic(str(source)):
        return [path]
    paths = [Path(name) for name in sorted(glob(str(source), recursive=True))]  # noqa: PTH207 - absolute patterns too
    if not paths:
        raise BadRequestError(f'No file matches "{source}". Check the pattern.')
    return paths


def rows_of(path: Path) -> Iterator[Row | Unusable]:
    """The rows of a file, in the format of its ending, or of a folder with a saved data set."""
    if not is_there(path):
        raise BadRequestError(f'There is no file "{path}". Check the path.')
    if path.is_dir():
        if not (path / "state.json").is_file():
            splits = sorted(state.parent.name for state in path.glob("*/state.json"))
            names = ", ".join(splits)
            hint = f" It has the splits {names}: name one of their folders." if splits else ""
            raise BadRequestError(f'The folder "{path}" is not a saved data set.{hint}')
        datasets = extra("datasets")
        try:
            return iter(datasets.load_from_disk(str(path)))
        except (OSError, ValueError, KeyError) as problem:
            reason = first_line(problem)
            raise BadRequestError(f'The data set in "{path}" cannot be read: {reason}') from None
    require_file(path)
    if path.suffix.lower() not in READERS:
        raise BadRequestError(
            f"Cannot tell the format of {path.name} by its ending. "
            f"Formats that can be read: {', '.join(READERS)}."
        )
    if path.stat().st_size == 0:
        raise BadRequestError(f"{path.name} is empty. Give a file with at least one example.")
    return READERS[path.suffix.lower()](path)


def require_file(path: Path) -> None:
    """Refuse what is no file; to open a pipe would be to wait until it is written to."""
    if not is_there(path):
        raise BadRequestError(f'There is no file "{path}". Check the path.')
    if not path.is_file():
        what = "folder" if path.is_dir() else "pipe or a device"
        raise BadRequestError(f'"{path}" is a {what}. Save the data in a file first.')


def is_there(path: Path) -> bool:
    """Whether something has this name; a name that nothing can have is refused."""
    try:
        return path.exists()
    except (OSError, ValueError) as problem:  # too long, or with a zero byte in it
        reason = getattr(problem, "strerror", None) or problem
        raise BadRequestError(f'No file is called "{str(path)[:60]}…": {reason}.') from problem


def columns_of(path: Path) -> tuple[str, ...]:
    """The columns of the first row that can be used, sorted."""
    first = next((row for row in rows_of(path) if not isinstance(row, Unusable)), {})
    return tuple(sorted(map(str, first)))


def _table(path: Path, **dialect: Any) -> Iterator[Row | Unusable]:
    csv.field_size_limit(2**31 - 1)  # the default refuses a long document
    rows = csv.DictReader(lines_of(path), restval=ABSENT, **dialect)
    try:
        for number, row in enumerate(rows):
            if None in row:
                yield Unusable(
                    f"{path.name}, row {number + 1}",
                    f"has more cells than the header has names ({len(rows.fieldnames or ())}). "
                    f"Check the separator.",
                )
                continue
            yield row
    except csv.Error as problem:
        raise BadRequestError(
            f"{path.name} is not a table ({problem}, line {rows.line_num}). Check its quotation "
            f"marks."
        ) from None


def _json_lines(path: Path) -> Iterator[Row | Unusable]:
    for number, line in enumerate(lines_of(path)):
        if not line.strip():
            continue
        where = f"{path.name}, line {number + 1}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:  # numbers and nesting have their limits too
            yield Unusable(where, f"is not JSON ({problem}). One object a line.")
            continue
        if isinstance(row, dict):
            yield row
        else:
            yield Unusable(where, f"is a {type(row).__name__}. One object a line.")


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, without a byte-order mark; anything binary is refused."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            while line := file.readline(LONGEST_LINE):
                if "\0" in line:
                    raise BadRequestError(
                        f"{path.name} is not text (it holds zero bytes). Check that this is the "
                        f"right file."
                    )
                if len(line) == LONGEST_LINE:
                    raise BadRequestError(
                        f"{path.name} has a line of more than {LONGEST_LINE:,} characters. Check "
                        f"that this is the right file."
                    )
                yield line
    except UnicodeDecodeError:
        raise BadRequestError(
            f"{path.name} is not text in UTF-8. Convert it, or check that this is the right file."
        ) from None
    except OSError as problem:
        raise BadRequestError(f"{path.name} cannot be read: {problem.strerror}.") from None


def _parquet(path: Path) -> Iterator[Row | Unusable]:
    pyarrow = extra("pyarrow")
    parquet = extra("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, ValueError) as problem:  # also text in it that is not UTF-8
        raise BadRequestError(
            f"{path.name} is not a Parquet file, or a damaged one ({problem}). Check that this is "
            f"the right file."
        ) from None
    except OSError as problem:  # what pyarrow raises for a damaged page
        reason = first_line(problem)
        raise BadRequestError(f"{path.name} cannot be read: {reason}.") from None


def usable(rows: Iterable[Row | Unusable]) -> Iterator[Row]:
    """The rows; the first one that cannot be used is an error."""
    for row in rows:
        if isinstance(row, Unusable):
            raise BadRequestError(str(row))
        yield row


def one_after_another(paths: list[Path]) -> Iterator[Row | Unusable]:
    """The rows of several files with the same columns."""
    columns = columns_of(paths[0]) if len(paths) > 1 else ()
    for path in paths[1:]:
        if (other := columns_of(path)) != columns:
            raise BadRequestError(
                f"{paths[0].name} has the columns {', '.join(columns)}, and {path.name} has "
                f"{', '.join(other) or 'none'}. Read files with the same columns together."
            )
    return chain.from_iterable(map(rows_of, paths))


READERS: dict[str, Callable[[Path], Iterator[Row | Unusable]]] = {
    ".tsv": partial(_table, delimiter="\t", quoting=csv.QUOTE_NONE),
    ".csv": partial(_table, delimiter=",", quoting=csv.QUOTE_MINIMAL, strict=True),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
