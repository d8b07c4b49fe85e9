"""What a method returns for some texts, as rows of a table.

A method returns ``Findings``: numbers of each text, short lists of each text, numbers of each text,
site and head, and whole maps where the plan asks for them. The findings of a window become two
tables (one row for each example; one for each example, site and head) and, if there are maps, one
safetensors file. The same findings give the same bytes.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from torch import Tensor

from exhibit_a.examples import Example
from exhibit_a.numerics.precision import to_float64
from exhibit_a.subject.anatomy import Site

EXAMPLES, HEADS, DENSE, RESULT = "examples", "heads", "dense", "result"
ENDINGS = {
    EXAMPLES: ".parquet",
    HEADS: ".parquet",
    DENSE: ".safetensors",
    RESULT: ".safetensors",
}

Lists = dict[str, list[Any]]  # a list for each text, by name

PER_TOKEN = "token_"  # how the name of a list with one number for each token begins


@dataclass(frozen=True, eq=False)
class Findings:
    """The results of a method for the texts of a batch, in their order."""

    numbers: Mapping[str, Sequence[str | float]] = field(default_factory=dict)  # per text
    lists: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)  # per text, short
    heads: dict[str, list[Tensor]] = field(default_factory=dict)  # per site, (text, head)
    dense: list[dict[str, Tensor]] = field(default_factory=list)  # per text


class Row(NamedTuple):
    """The findings of one text."""

    numbers: dict[str, str | float]
    lists: dict[str, Sequence[float]]
    heads: dict[str, np.ndarray]  # of all sites, one after the other
    dense: dict[str, Tensor]


class ExampleFindings(NamedTuple):
    """The findings of one text, with the example, its place in the data and its tokens."""

    number: int
    example: Example
    tokens: tuple[str, ...]
    truncated: bool
    row: Row


def rows_of(findings: Findings, count: int) -> Iterator[Row]:
    """The findings of each text of a batch."""
    heads = {
        name: torch.cat([site.float() for site in sites], 1).numpy(force=True)
        for name, sites in findings.heads.items()
    }
    for row in range(count):
        yield Row(
            numbers={name: column[row] for name, column in findings.numbers.items()},
            lists={name: column[row] for name, column in findings.lists.items()},
            heads={name: numbers[row] for name, numbers in heads.items()},
            dense=findings.dense[row] if findings.dense else {},
        )


def files_of(
    findings: Sequence[ExampleFindings], sites: Sequence[Site], shard: int
) -> dict[str, bytes]:
    """The files of a window's findings, by kind."""
    files = {EXAMPLES: parquet(_examples(findings, shard))}
    if findings and findings[0].row.heads:
        files[HEADS] = parquet(_heads(findings, sites))
    if findings and findings[0].row.dense:
        tensors = {
            f"{text.number}/{name}": tensor.contiguous()
            for text in findings
            for name, tensor in text.row.dense.items()
        }
        files[DENSE] = safetensors.torch.save(tensors)
    return files


def parquet(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=_text_columns(table))
    return buffer.getvalue()


def _text_columns(table: pa.Table) -> list[str]:
    """The columns whose values repeat: a dictionary saves space there, and only costs elsewhere."""
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    return [n for n, k in kinds.items() if pa.types.is_string(k) or pa.types.is_dictionary(k)]


def _examples(findings: Sequence[ExampleFindings], shard: int) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "example": pa.array([text.number for text in findings], pa.int64()),
        "id": pa.array([text.example.id for text in findings], pa.string()),
        "shard": pa.array([shard] * len(findings), pa.int32()),
        "label": pa.array([text.example.label for text in findings], pa.string()),
        "tokens": pa.array([list(text.tokens) for text in findings], pa.list_(pa.string())),
        "length": pa.array([len(text.tokens) for text in findings], pa.int32()),
        "truncated": pa.array([text.truncated for text in findings], pa.bool_()),
    }
    if findings:
        for name, first in findings[0].row.numbers.items():
            kind = pa.string() if isinstance(first, str) else pa.float64()
            columns[name] = pa.array([text.row.numbers[name] for text in findings], kind)
        for name in findings[0].row.lists:
            rows = [text.row.lists[name] for text in findings]
            # as long as the text: another type, which is not averaged place by place
            list_of = pa.large_list if name.startswith(PER_TOKEN) else pa.list_
            columns[name] = pa.array(rows, list_of(pa.float32()))
    return pa.table(columns)


def _heads(findings: Sequence[ExampleFindings], sites: Sequence[Site]) -> pa.Table:
    """Every head of every site of every example, in this order."""
    count, heads = len(findings), [site.heads for site in sites]
    place = np.arange(count).repeat(sum(heads))
    ids = pa.array([text.example.id for text in findings], pa.string())
    columns: dict[str, pa.Array] = {
        "example": pa.array(np.array([text.number for text in findings])[place], pa.int64()),
        "id": pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), ids),
        "site": pa.array(np.tile(_repeated([s.index for s in sites], heads), count)),
        "layer": pa.array(np.tile(_repeated([s.layer for s in sites], heads), count)),
        "head": pa.array(
            np.tile(np.concatenate([np.arange(n, dtype=np.int16) for n in heads]), count)
        ),
    }
    for name in findings[0].row.heads:
        values = np.concatenate([text.row.heads[name] for text in findings])
        columns[name] = pa.array(values, pa.float32())
    return pa.table(columns)


def _repeated(numbers: list[int], times: list[int]) -> np.ndarray:
    return np.repeat(np.array(numbers, dtype=np.int16), times)


def listed(tensor: Tensor) -> list[Any]:
    """A tensor as nested lists of Python numbers, in double precision."""
    return to_float64(tensor.detach()).tolist()
