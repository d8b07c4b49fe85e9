"""What does a method say about some texts, and how does that become rows?

A method answers for a batch with ``Findings``: numbers of each text, short lists of each text,
numbers of each text, site and head, and whole maps where they were asked for. A window's findings
become two tables (one row for each example; one for each example, site and head) and, if there are
maps, one safetensors file. The same findings give the same bytes.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from torch import Tensor

from exhibit_a.examples import Example
from exhibit_a.subject.anatomy import Site

EXAMPLES, HEADS, DENSE, RESULT = "examples", "heads", "dense", "result"
ENDINGS = {
    EXAMPLES: ".parquet",
    HEADS: ".parquet",
    DENSE: ".safetensors",
    RESULT: ".safetensors",
}


@dataclass(frozen=True, eq=False)
class Findings:
    """What was found for the texts of a batch, in their order."""

    numbers: dict[str, list[Any]] = field(default_factory=dict)  # per text
    lists: dict[str, list[list[float]]] = field(default_factory=dict)  # per text, short
    heads: dict[str, list[Tensor]] = field(default_factory=dict)  # per site, (text, head)
    dense: list[dict[str, Tensor]] = field(default_factory=list)  # per text


@dataclass(frozen=True, eq=False)
class Found:
    """The findings of one text."""

    number: int
    example: Example
    tokens: tuple[str, ...]
    truncated: bool
    numbers: dict[str, Any]
    lists: dict[str, list[float]]
    heads: dict[str, np.ndarray]  # of all sites, one after the other
    dense: dict[str, Tensor]


def rows_of(findings: Findings, count: int) -> Iterator[dict[str, Any]]:
    """Each text's part of a batch's findings."""
    heads = {
        name: torch.cat([site.float() for site in sites], 1).numpy(force=True)
        for name, sites in findings.heads.items()
    }
    for row in range(count):
        yield {
            "numbers": {name: part[row] for name, part in findings.numbers.items()},
            "lists": {name: part[row] for name, part in findings.lists.items()},
            "heads": {name: part[row] for name, part in heads.items()},
            "dense": findings.dense[row] if findings.dense else {},
        }


def files_of(found: Sequence[Found], sites: Sequence[Site], shard: int) -> dict[str, bytes]:
    """The files that a window's findings make, by kind."""
    files = {EXAMPLES: parquet(_examples(found, shard))}
    if found and found[0].heads:
        files[HEADS] = parquet(_heads(found, sites))
    if found and found[0].dense:
        tensors = {
            f"{one.number}/{name}": part.contiguous()
            for one in found
            for name, part in one.dense.items()
        }
        files[DENSE] = safetensors.torch.save(tensors)
    return files


def parquet(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    written = io.BytesIO()
    pq.write_table(table, written, compression="zstd", use_dictionary=_texts(table))
    return written.getvalue()


def _texts(table: pa.Table) -> list[str]:
    """Columns of text, which repeat themselves; numbers do not, and a dictionary only costs."""
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    return [n for n, k in kinds.items() if pa.types.is_string(k) or pa.types.is_dictionary(k)]


def _examples(found: Sequence[Found], shard: int) -> pa.Table:
    count = len(found)
    columns: dict[str, Any] = {
        "example": pa.array([one.number for one in found], pa.int64()),
        "id": pa.array([one.example.id for one in found], pa.string()),
        "shard": pa.array([shard] * count, pa.int32()),
        "label": pa.array([one.example.label for one in found], pa.string()),
        "tokens": pa.array([list(one.tokens) for one in found], pa.list_(pa.string())),
        "length": pa.array([len(one.tokens) for one in found], pa.int32()),
        "truncated": pa.array([one.truncated for one in found], pa.bool_()),
    }
    if found:
        for name, first in found[0].numbers.items():
            kind = pa.string() if isinstance(first, str) else pa.float64()
            columns[name] = pa.array([one.numbers[name] for one in found], kind)
        for name in found[0].lists:
            columns[name] = pa.array([one.lists[name] for one in found], pa.list_(pa.float32()))
    return pa.table(columns)


def _heads(found: Sequence[Found], sites: Sequence[Site]) -> pa.Table:
    """Every head of every site of every example, in this order."""
    heads = [site.heads for site in sites]
    per_text = sum(heads)
    place = np.arange(len(found)).repeat(per_text)
    ids = pa.array([one.example.id for one in found], pa.string())
    columns: dict[str, Any] = {
        "example": pa.array(np.array([one.number for one in found])[place], pa.int64()),
        "id": pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), ids),
        "site": pa.array(np.tile(_repeated([s.index for s in sites], heads), len(found))),
        "layer": pa.array(np.tile(_repeated([s.layer for s in sites], heads), len(found))),
        "head": pa.array(
            np.tile(np.concatenate([np.arange(n, dtype=np.int16) for n in heads]), len(found))
        ),
    }
    for name in found[0].heads:
        columns[name] = pa.array(np.concatenate([one.heads[name] for one in found]), pa.float32())
    return pa.table(columns)


def _repeated(numbers: list[int], times: list[int]) -> np.ndarray:
    return np.repeat(np.array(numbers, dtype=np.int16), times)


def listed(part: Tensor) -> list[Any]:
    """A tensor as Python numbers, in double precision."""
    return part.detach().to("cpu", torch.float64).tolist()
