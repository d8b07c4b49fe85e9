"""How does an example keep its name wherever it stands, and what becomes of rows that are no use?

A corpus is read as a stream, once for a run and once more when the run is resumed. An example is
known by the id the caller gives it (a column, or an ``Example``), which must not occur twice;
otherwise by what it says: a hash of its text and pair, and how often these were met before. Both
stay the same when rows are added, removed or moved elsewhere in the file.

A row that cannot be used ends the stream, or is handed out in its place as an ``Unusable``.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.files import Row, Unusable, one_after_another, paths_of
from exhibit_a.examples.reading import (
    ID_NAMES,
    Columns,
    Example,
    example_of_item,
    examples_of_rows,
    items_of,
)

BY_CONTENT = ""  # as the id column: never mind the columns, name examples by what they say


def stream_examples(
    source: str | Path | Iterable[Any],
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    identity: str | None = None,
    unusable: str = "stop",
) -> Iterator[Example | Unusable]:
    """The examples of a source with ids that last, one by one, each as it is read.

    ``identity`` names the column of the ids; without it a column called id, idx or index is used,
    and with ``identity=""`` none is. With ``unusable="skip"`` rows that cannot be used come out as
    ``Unusable``; otherwise the first one is an error.
    """
    if unusable not in ("stop", "skip"):
        raise BadRequestError(f"Rows that cannot be used are to stop or skip, not {unusable!r}.")
    found = _named(_found(source, (text, pair, label), identity))
    for one in found:
        if isinstance(one, Unusable) and unusable == "stop":
            raise BadRequestError(str(one))
        yield one


def fingerprint(example: Example) -> str:
    """A short name for the text of an example, the same in every file."""
    said = f"{example.text.strip()}\0{(example.pair or '').strip()}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


Found = tuple[Example | Unusable, bool]  # and whether its id was given


def _found(
    source: str | Path | Iterable[Any], columns: Columns, identity: str | None
) -> Iterator[Found]:
    if isinstance(source, str | Path):
        rows = one_after_another(paths_of(source))
        yield from _of_rows(rows, Path(source).name, columns, identity)
        return
    if hasattr(source, "column_names"):  # a datasets.Dataset gives rows, all with the same columns
        yield from _of_rows(iter(source), "The data set", columns, identity)
        return
    for number, item in enumerate(items_of(source)):
        row = isinstance(item, Mapping)
        found = example_of_item(item, number, columns)
        if row and identity and not isinstance(found, Unusable):
            found = replace(found, id=str(item.get(identity, number)))
        given = isinstance(item, Example) or (row and _identifies(item, identity))
        yield found, given


def _of_rows(
    rows: Iterable[Row | Unusable], name: str, columns: Columns, identity: str | None
) -> Iterator[Found]:
    """Examples of rows, and whether the first row has ids, for then all of them must."""
    known: list[bool] = []

    def watched() -> Iterator[Row | Unusable]:
        for row in rows:
            if not known and not isinstance(row, Unusable):
                known.append(_identifies(row, identity))
            yield row

    for one in examples_of_rows(watched(), name, columns, identity or None):
        yield one, bool(known) and known[0]


def _identifies(row: Row, identity: str | None) -> bool:
    if identity == BY_CONTENT:
        return False
    return identity in row if identity else any(name in row for name in ID_NAMES)


def _named(found: Iterable[Found]) -> Iterator[Example | Unusable]:
    """Given ids once each; the others made from the content and the number of the occurrence."""
    given, met = set[bytes](), Counter[bytes]()
    for one, has_id in found:
        if isinstance(one, Unusable):
            yield one
        elif has_id:
            name = hashlib.blake2b(one.id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if name in given:
                yield Unusable(f"The id {one.id!r}", "occurs twice. Ids name one example each.")
                continue
            given.add(name)
            yield one
        else:
            content = fingerprint(one)
            yield replace(one, id=f"{content}-{met[bytes.fromhex(content)]}")
            met[bytes.fromhex(content)] += 1
