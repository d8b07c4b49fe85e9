"""What is computed over all shards together, once the last one is written?

Shards are read once more, in their order and one at a time: their numbers go into the aggregates,
their ids into a digest of the whole set, their unusable rows into a file. The result does not
depend on the engine or on how often the run was interrupted.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import safetensors.torch
import torch

from exhibit_a.corpus.aggregates import ACCURACY, Cell, Table, ids_digest, poisson_weights
from exhibit_a.corpus.aggregates import REPLICATES as DRAWS
from exhibit_a.corpus.findings import EXAMPLES, HEADS, parquet
from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.read import Run, Summary, table_of
from exhibit_a.corpus.run_folder import (
    AGGREGATES,
    REPLICATES,
    UNUSABLE,
    Folder,
    Manifest,
    unusable_lines,
)
from exhibit_a.corpus.seals import digest, sealed
from exhibit_a.corpus.work import Receipt
from exhibit_a.errors import BadRequestError
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.subject import Subject

KEYS = ("example", "id", "shard", "site", "layer", "head")  # columns that name a row
PRECISION = {
    "intervals": f"95 %, Poisson bootstrap over examples, {DRAWS} replicates",
    "quantiles": f"within {ACCURACY:.0%}",
}


def finish(folder: Folder, card: Card, subject: Subject, count: int) -> Summary:
    """Aggregate ``count`` shards and close the run."""
    sites = subject.anatomy.sites
    totals = _Totals(sites)
    for number in range(count):
        totals.add(folder, number)
    unusable = sum(len(receipt["unusable"]) for receipt in totals.receipts)
    if totals.examples == 0:
        first = totals.receipts[0]["unusable"][0]
        raise BadRequestError(
            f"None of the {unusable} examples could be used: {first['where']} {first['reason']}"
        )
    aggregates = _aggregated(list(totals.tables.values()))
    manifest: Manifest = {
        "run": card.model_dump(mode="json"),
        "counts": {
            "examples": totals.examples,
            "unusable": unusable,
            "truncated": totals.truncated,
            "shards": count,
        },
        "ids": f"{totals.ids:032x}",
        "sites": [
            {"site": s.index, "layer": s.layer, "stack": s.stack, "kind": s.kind, "heads": s.heads}
            for s in sites
        ],
        "checks": {"parity": subject.anatomy.parity, **(PRECISION if aggregates else {})},
        "receipts": [digest(sealed(receipt)) for receipt in totals.receipts],
    }
    folder.finish(manifest, {UNUSABLE: unusable_lines(totals.receipts)} | aggregates)
    return Run(folder).summary()


@dataclass(eq=False)
class _Totals:
    """What the shards read so far add up to."""

    sites: tuple[Site, ...]
    tables: dict[str, Table] = field(init=False)
    receipts: list[Receipt] = field(default_factory=list)
    ids: int = 0
    examples: int = 0
    truncated: int = 0

    def __post_init__(self) -> None:
        heads = [(site.index, head) for site in self.sites for head in range(site.heads)]
        self.tables = {EXAMPLES: Table(EXAMPLES), HEADS: Table(HEADS, heads)}

    def add(self, folder: Folder, number: int) -> None:
        """Read one shard."""
        receipt = folder.receipt(number)
        self.receipts.append(receipt)
        if EXAMPLES not in receipt["files"]:  # one result for the whole data set
            self.examples += receipt["examples"]
            return
        examples = table_of(folder.read(EXAMPLES, receipt))
        names = examples["id"].to_pylist()
        self.ids = ids_digest(self.ids, names)
        self.examples += len(names)
        if not names:  # none of its texts could be used
            return
        self.truncated += int(np.sum(examples["truncated"].to_numpy()))
        weights = poisson_weights(names)
        self.tables[EXAMPLES].add(_numbers(examples), weights)
        if HEADS in receipt["files"]:
            heads = table_of(folder.read(HEADS, receipt))
            self.tables[HEADS].add(_numbers(heads), weights)


def _numbers(table: pa.Table) -> dict[str, np.ndarray]:
    """The columns that hold numbers; lists of one length become one column per entry."""
    columns: dict[str, np.ndarray] = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in KEYS:
            continue
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            columns[name] = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
        elif pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
            rows = np.array(table[name].to_pylist(), dtype=np.float64).reshape(len(table), -1)
            columns |= {f"{name}[{place}]": rows[:, place] for place in range(rows.shape[1])}
    return columns


def _aggregated(tables: list[Table]) -> dict[str, bytes]:
    """The files of the aggregates; none where no table has numbers."""
    streams = [table.stream for table in tables if table.stream is not None]
    if not streams:
        return {}
    columns: dict[str, list[Cell]] = {}
    for table in tables:
        for name, cells in table.rows().items():
            columns.setdefault(name, []).extend(cells)
    means = torch.cat([stream.replicates for stream in streams], dim=1)
    kinds = {"site": pa.int16(), "head": pa.int16()}
    arrays = {name: pa.array(cells, kinds.get(name)) for name, cells in columns.items()}
    return {
        AGGREGATES: parquet(pa.table(arrays)),
        REPLICATES: safetensors.torch.save({"means": means.contiguous()}),
    }
