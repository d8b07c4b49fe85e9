"""All shards of a run are summed up, once the last one is written.

For every number, over examples (and for numbers of heads: for each site and head):

1. count, mean, variance, extremes and quantiles, by one SQL query for each column over the Parquet
   files of the run. Numbers that are NaN or infinite are left out. A quantile is one of the other
   numbers: that at the rank ``share * (count - 1)``, rounded down.
2. a 95 % interval of the mean by the Poisson bootstrap: in replicate b an example counts as often
   as a Poisson(1) number says, and that number comes from a hash of the example's id. So intervals
   do not depend on the order of the examples or on the engine, and two runs over the same examples
   are resampled alike: the difference of their means has an interval, too (``read.py``).

Every shard is compared with its hash when its numbers enter the bootstrap, before any query. Shards
are added in their order, on one thread, so the same rows give the same bytes, whatever the engine
and however often the run was interrupted.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import safetensors.torch
import torch

from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.read import INTERVAL, Run, Summary, table_of
from exhibit_a.corpus.run_folder import AGGREGATES, REPLICATES, UNUSABLE, Folder, read_checked
from exhibit_a.corpus.work import EXAMPLES, HEADS, parquet
from exhibit_a.errors import BadRequestError, ExhibitError, first_line
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.subject.subject import Subject

DRAWS = 200  # replicates of the bootstrap
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
KEYS = ("example", "id", "shard", "site", "layer", "head")  # columns that name a row
CHECKS = {
    "intervals": f"95 %, Poisson bootstrap over examples, {DRAWS} replicates",
    "quantiles": "exact",
}

# One thread adds numbers in one order; nothing is to be fetched from anywhere.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

# The site and head are those of heads; examples are one group without either.
QUERY = """
WITH sorted AS (
    SELECT site, head, list(x ORDER BY x) AS numbers,
           count(*) AS count, favg(x) AS mean, var_samp(x) AS variance
    FROM (
        SELECT {site} AS site, {head} AS head, {column} AS x
        FROM read_parquet($files, union_by_name = true)
    )
    WHERE isfinite(x) GROUP BY ALL
)
SELECT site, head, count, mean, variance, numbers[1] AS minimum, {quantiles},
       numbers[count] AS maximum
FROM sorted
"""
PLACES = {EXAMPLES: ("NULL", "NULL"), HEADS: ("site", "head")}

Numbers = np.ndarray


def finish(folder: Folder, card: Card, subject: Subject, count: int) -> Summary:
    """Sum up ``count`` shards and close the run."""
    sites = subject.anatomy.sites
    heads = [(site.index, head) for site in sites for head in range(site.heads)]
    tables = {EXAMPLES: _Table(EXAMPLES, [(None, None)]), HEADS: _Table(HEADS, heads)}
    receipts = [folder.receipt(number) for number in range(count)]
    examples = truncated = ids = 0
    for receipt in receipts:
        if EXAMPLES not in receipt["files"]:  # one result for the whole data set
            examples += receipt["examples"]
            continue
        for kind in filter(receipt["files"].__contains__, tables):
            path = folder.file(kind, receipt["shard"])
            rows = table_of(read_checked(path, receipt["files"][kind]))
            if kind == EXAMPLES:
                names = rows["id"].to_pylist()
                weights = poisson_weights(names)
                for name in names:  # the order of a set of ids does not matter
                    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
                    ids = (ids + int.from_bytes(digest)) % 2**256
                examples += len(names)
                truncated += int(np.sum(rows["truncated"].to_numpy()))
            if names:  # else none of its texts could be used
                tables[kind].add(path, rows, weights)
    unusable = [row for receipt in receipts for row in receipt["unusable"]]
    if examples == 0:
        raise BadRequestError(
            f"None of the {len(unusable)} examples could be used: {unusable[0]['where']} "
            f"{unusable[0]['reason']}"
        )
    lines = (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in unusable)
    files = {UNUSABLE: b"".join(lines)}
    summed = [table for table in tables.values() if table.columns]
    if summed:
        rows = [row for table in summed for row in table.rows()]
        means = torch.cat([table.means.flatten(1) for table in summed], dim=1).contiguous()
        kinds = {"table": pa.string(), "statistic": pa.string()}
        kinds |= {"site": pa.int16(), "head": pa.int16(), "count": pa.int64()}
        ends = ("interval_low", "interval_high")
        numbers = ("mean", "variance", *ends, "minimum", *QUANTILES, "maximum")
        columns = {
            name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()
        }
        for name in numbers:  # what cannot be computed is NaN
            values = [row.get(name) for row in rows]
            columns[name] = pa.array([np.nan if v is None else v for v in values], pa.float64())
        files[AGGREGATES] = parquet(pa.table(columns))
        files[REPLICATES] = safetensors.torch.save({"means": means})
    about = {
        "run": card.model_dump(mode="json"),
        "counts": {
            "examples": examples,
            "unusable": len(unusable),
            "truncated": truncated,
            "shards": count,
        },
        "ids": f"{ids:064x}",
        "sites": [
            {"site": s.index, "layer": s.layer, "stack": s.stack, "kind": s.kind, "heads": s.heads}
            for s in sites
        ],
        "checks": {"parity": subject.anatomy.parity, **(CHECKS if summed else {})},
    }
    folder.finish(about, receipts, files)
    return Run(folder).summary()


def poisson_weights(ids: Sequence[str]) -> Numbers:
    """How often each example counts in each replicate, (example, replicate)."""
    drawn = b"".join(
        hashlib.shake_128(name.encode("utf-8", "surrogatepass")).digest(2 * DRAWS) for name in ids
    )
    numbers = np.frombuffer(drawn, dtype="<u2").reshape(len(ids), DRAWS)
    weights: Numbers = _poisson_table()[numbers]
    return weights


@cache
def _poisson_table() -> Numbers:
    """The Poisson(1) number for each of 65,536 equally likely draws."""
    terms = np.cumprod(np.concatenate([[np.exp(-1.0)], 1 / np.arange(1, 12)]))
    chances = (np.arange(2**16) + 0.5) / 2**16
    return np.searchsorted(np.cumsum(terms), chances).astype(np.float64)


class _Table:
    """One kind of row, of examples or of heads: its files, columns and resampled means."""

    def __init__(self, name: str, places: Sequence[tuple[int | None, int | None]]) -> None:
        self.name, self.places = name, places
        self.files: list[Path] = []
        self.columns: dict[str, str] = {}  # the SQL of each statistic, by its name
        self.sums = torch.zeros(2, DRAWS, 0, 0, dtype=torch.float64)  # of numbers and of weights

    def add(self, path: Path, rows: pa.Table, weights: Numbers) -> None:
        """Add the numbers of a shard to the bootstrap."""
        columns: dict[str, str] = {}
        numbers: list[Numbers] = []
        for name in (field.name for field in rows.schema if field.name not in KEYS):
            kind, quoted = rows.schema.field(name).type, '"' + name.replace('"', '""') + '"'
            if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
                columns[name] = f"CAST({quoted} AS DOUBLE)" if kind != pa.float32() else quoted
                column = rows[name].to_numpy(zero_copy_only=False).astype(np.float64)
                numbers.append(column.reshape(len(weights), -1))
            elif pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
                # Lists of one length become one statistic per entry.
                column = np.array(rows[name].to_pylist(), dtype=np.float64)
                for place in range(column.shape[1]):
                    columns[f"{name}[{place}]"] = f"{quoted}[{place + 1}]"
                    numbers.append(column[:, [place]])
        if self.columns and list(columns) != list(self.columns):
            raise ValueError(f"a shard has {list(columns)}, not {list(self.columns)}")
        if not columns:
            return
        self.files, self.columns = [*self.files, path], columns
        values = np.stack(numbers, 1)  # (example, statistic, place)
        finite = np.isfinite(values)
        with one_thread():
            drawn = torch.from_numpy(weights).mT
            sums = [
                (drawn @ torch.from_numpy(part).flatten(1)).reshape(-1, *values.shape[1:])
                for part in (np.where(finite, values, 0.0), finite.astype(np.float64))
            ]
        self.sums = torch.stack(sums) + (self.sums if self.sums.numel() else 0)

    @property
    def means(self) -> torch.Tensor:
        """The mean of every replicate, statistic and place; without numbers, NaN."""
        means: torch.Tensor = self.sums[0] / self.sums[1]
        return means

    def rows(self) -> list[dict[str, Any]]:
        """Every statistic at every place."""
        ends = torch.quantile(self.means, torch.tensor(INTERVAL, dtype=torch.float64), dim=0)
        rows = []
        for number, (statistic, column) in enumerate(self.columns.items()):
            found = self._described(column)
            for place, (site, head) in enumerate(self.places):
                low, high = ends[:, number, place].tolist()
                rows.append(
                    {"table": self.name, "statistic": statistic, "site": site, "head": head}
                    | {"interval_low": low, "interval_high": high}
                    | found.get((site, head), {"count": 0})
                )
        return rows

    def _described(self, column: str) -> dict[tuple[int | None, int | None], dict[str, Any]]:
        """Count, mean, variance, extremes and quantiles of a column, by site and head."""
        site, head = PLACES[self.name]
        quantiles = ", ".join(
            f"numbers[1 + floor({share} * (count - 1))::BIGINT] AS {name}"
            for name, share in QUANTILES.items()
        )
        query = QUERY.format(site=site, head=head, column=column, quantiles=quantiles)
        try:
            with duckdb.connect(config=SETTINGS) as connection:
                answer = connection.execute(query, {"files": [str(path) for path in self.files]})
                names = [about[0] for about in answer.description]
                rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        except duckdb.Error as problem:
            raise ExhibitError(f"The run cannot be summed up: {first_line(problem)}") from problem
        return {(row.pop("site"), row.pop("head")): row for row in rows}
