"""What is said about all shards together, when the last one is there?

Shards are read once more, in their order and one at a time: their numbers go into the aggregates,
their ids into a digest of the whole set, their unusable rows into a file. Nothing here knows which
engine made them or how often the run was interrupted.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch

from exhibit_a.corpus.aggregates import ACCURACY, Table, ids_digest, poisson_weights
from exhibit_a.corpus.aggregates import REPLICATES as DRAWS
from exhibit_a.corpus.findings import EXAMPLES, HEADS, parquet
from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.read import Run, Summary
from exhibit_a.corpus.sink import (
    AGGREGATES,
    REPLICATES,
    UNUSABLE,
    Folder,
    hash_of,
    unusable_lines,
)
from exhibit_a.errors import BadRequestError
from exhibit_a.subject.subject import Subject

ABOUT = ("example", "id", "shard", "site", "layer", "head")  # columns that are names, not numbers
DOUBTS = {
    "intervals": f"95 %, Poisson bootstrap over examples, {DRAWS} replicates",
    "quantiles": f"within {ACCURACY:.0%}",
}


def finish(folder: Folder, card: Card, subject: Subject, count: int) -> Summary:
    """Aggregate ``count`` shards and close the run."""
    sites = subject.anatomy.sites
    places = [(site.index, head) for site in sites for head in range(site.heads)]
    tables = {EXAMPLES: Table(EXAMPLES), HEADS: Table(HEADS, places)}
    receipts, ids, total, cut = [], 0, 0, 0
    for number in range(count):
        receipt = folder.receipt(number)
        receipts.append(receipt)
        if EXAMPLES not in receipt["files"]:  # one result for all of them
            total += receipt["examples"]
            continue
        examples = pq.read_table(folder.file(EXAMPLES, number))
        names = examples["id"].to_pylist()
        ids, total = ids_digest(ids, names), total + len(names)
        cut += int(np.sum(examples["truncated"].to_numpy()))
        weights = poisson_weights(names)
        tables[EXAMPLES].add(_numbers(examples), weights)
        if HEADS in receipt["files"]:
            heads = pq.read_table(folder.file(HEADS, number))
            tables[HEADS].add(_numbers(heads), weights)
    unusable = sum(len(receipt["unusable"]) for receipt in receipts)
    if total == 0:
        first = receipts[0]["unusable"][0]
        raise BadRequestError(
            f"None of the {unusable} examples could be used: {first['where']} {first['reason']}"
        )
    files = {UNUSABLE: unusable_lines(receipts)} | _aggregated(list(tables.values()))
    manifest = {
        "run": card.model_dump(mode="json"),
        "counts": {"examples": total, "unusable": unusable, "truncated": cut, "shards": count},
        "ids": f"{ids:032x}",
        "sites": [
            {"site": s.index, "layer": s.layer, "stack": s.stack, "kind": s.kind, "heads": s.heads}
            for s in sites
        ],
        "checks": {"parity": subject.anatomy.parity} | (DOUBTS if AGGREGATES in files else {}),
        "receipts": [hash_of(folder.receipt_path(number)) for number in range(count)],
    }
    folder.finish(manifest, files)
    return Run(folder).summary()


def _numbers(table: pa.Table) -> dict[str, np.ndarray]:
    """The columns that are numbers; lists of one length become several."""
    found: dict[str, np.ndarray] = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in ABOUT:
            continue
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            found[name] = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
        elif pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
            rows = np.array(table[name].to_pylist(), dtype=np.float64).reshape(len(table), -1)
            found |= {f"{name}[{place}]": rows[:, place] for place in range(rows.shape[1])}
    return found


def _aggregated(tables: list[Table]) -> dict[str, bytes]:
    used = [table for table in tables if table.stream is not None]
    if not used:
        return {}
    rows: dict[str, list[Any]] = {}
    for table in used:
        for name, part in table.rows().items():
            rows.setdefault(name, []).extend(part)
    means = torch.cat([table.stream.replicates for table in used if table.stream], dim=1)
    kinds = {"site": pa.int16(), "head": pa.int16()}
    columns = {name: pa.array(part, kinds.get(name)) for name, part in rows.items()}
    return {
        AGGREGATES: parquet(pa.table(columns)),
        REPLICATES: safetensors.torch.save({"means": means.contiguous()}),
    }
