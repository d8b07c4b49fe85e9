"""Streams examples with ids that stay the same when a file changes, and handles unusable rows.

A corpus is read as a stream, once for a run and once more when the run is resumed. The id of an
example is the one that the caller gives (a column, or an ``Example``), which must not occur twice;
otherwise it is made from the content: a hash of text, pair and answer, and how often these occurred
before.
Both stay the same when rows are added, removed or moved elsewhere in the file.

A row that cannot be used ends the stream, or is yielded in its place as an ``Unusable``.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.columns import (
    ID_NAMES,
    USUAL,
    Columns,
    Example,
    Source,
    example_of_item,
    examples_of_rows,
    items_of,
)
from exhibit_a.examples.files import Row, Unusable, one_after_another, paths_of

BY_CONTENT = ""  # as the id column: make ids from the content, whatever columns there are

Entry = tuple[Example | Unusable, bool]  # and whether its id was given


def stream_examples(
    source: Source,
    columns: Columns = USUAL,
    *,
    identity: str | None = None,
    unusable: str = "stop",
) -> Iterator[Example | Unusable]:
    """The examples of a source with lasting ids, one by one, each as it is read.

    ``identity`` names the column of the ids; without it a column called id, idx or index is used,
    and with ``identity=""`` none is. With ``unusable="skip"`` rows that cannot be used are yielded
    as ``Unusable``; otherwise the first one is an error.
    """
    if unusable not in ("stop", "skip"):
        raise BadRequestError(f"Rows that cannot be used are to stop or skip, not {unusable!r}.")
    for entry in _with_ids(_entries(source, columns, identity)):
        if isinstance(entry, Unusable) and unusable == "stop":
            raise BadRequestError(str(entry))
        yield entry


def fingerprint(example: Example) -> str:
    """A short hash of the text, pair and answer of an example, the same in every file."""
    content = f"{example.text.strip()}\0{(example.pair or '').strip()}"
    if example.answer is not None:
        content += f"\0{example.answer.strip()}"
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _entries(source: Source, columns: Columns, identity: str | None) -> Iterator[Entry]:
    if isinstance(source, str | Path):
        rows = one_after_another(paths_of(source))
        yield from _of_rows(rows, Path(source).name, columns, identity)
        return
    if hasattr(source, "column_names"):  # a datasets.Dataset gives rows, all with the same columns
        yield from _of_rows(cast("Iterable[Row]", source), "The data set", columns, identity)
        return
    for number, item in enumerate(items_of(source)):
        row: Row = item if isinstance(item, Mapping) else {}
        example = example_of_item(item, number, columns)
        if row and identity and not isinstance(example, Unusable):
            example = replace(example, id=str(row.get(identity, number)))
        yield example, isinstance(item, Example) or (bool(row) and _has_id(row, identity))


def _of_rows(
    rows: Iterable[Row | Unusable], name: str, columns: Columns, identity: str | None
) -> Iterator[Entry]:
    """Examples of rows, and whether the first row has an id, for then all rows must have one."""
    first_has_id: list[bool] = []

    def watched() -> Iterator[Row | Unusable]:
        for row in rows:
            if not first_has_id and not isinstance(row, Unusable):
                first_has_id.append(_has_id(row, identity))
            yield row

    for example in examples_of_rows(watched(), name, columns, identity or None):
        yield example, any(first_has_id)


def _has_id(row: Row, identity: str | None) -> bool:
    if identity == BY_CONTENT:
        return False
    return identity in row if identity else any(name in row for name in ID_NAMES)


def _with_ids(entries: Iterable[Entry]) -> Iterator[Example | Unusable]:
    """Given ids once each; the others made from the content and the number of the occurrence."""
    given, occurrences = set[bytes](), Counter[bytes]()  # of hashes, which are shorter than texts
    for example, has_id in entries:
        if isinstance(example, Unusable):
            yield example
        elif has_id:
            encoded = example.id.encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(encoded, digest_size=16).digest()
            if digest in given:
                yield Unusable(f"The id {example.id!r}", "occurs twice. Ids name one example each.")
                continue
            given.add(digest)
            yield example
        else:
            content = fingerprint(example)
            yield replace(example, id=f"{content}-{occurrences[bytes.fromhex(content)]}")
            occurrences[bytes.fromhex(content)] += 1
