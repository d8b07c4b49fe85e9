"""The results of a run, and how two runs differ.

``open`` gives a finished run: its tables for pandas, polars or DuckDB (all of them read Parquet
files in place), its summary, and dense maps where they were stored. ``diff`` compares two runs over
the same examples; both were resampled alike, so the difference of two means has its own interval.

Every file is compared with its hash as it is read, and the error names the one that is missing or
damaged. What other tools are to read in place is compared before they get it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
from torch import Tensor

from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.run_folder import AGGREGATES, REPLICATES, Folder, Manifest, hash_of
from exhibit_a.corpus.work import DENSE, ENDINGS, EXAMPLES, RESULT
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.extras import extra
from exhibit_a.results.plain import JSON
from exhibit_a.results.result import Result
from exhibit_a.results.store import read

if TYPE_CHECKING:
    import pandas

INTERVAL = (0.025, 0.975)  # of 95 %
KEY = ("table", "statistic", "site", "head")  # what names a row of the aggregates

Row = dict[str, Any]  # of the aggregates or of a comparison: its key and its numbers


@dataclass(frozen=True, eq=False)
class Summary:
    """The aggregates of a finished run, with its counts and the checks of its numbers."""

    path: Path
    card: Card
    counts: dict[str, int]
    rows: list[Row]  # one for each statistic (of each site and head)
    checks: dict[str, JSON]

    def to_pandas(self) -> "pandas.DataFrame":
        """The aggregates as a table."""
        table: pandas.DataFrame = extra("pandas").DataFrame(self.rows)
        return table

    def __repr__(self) -> str:
        plan, counts = self.card.plan, ", ".join(f"{n} {c}" for n, c in self.counts.items())
        return f"Summary: {plan.method} of {self.card.model.name} in {self.path}: {counts}."


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: Folder
    _maps: dict[int, dict[str, Tensor]] = field(default_factory=dict, repr=False)  # of one shard

    def __repr__(self) -> str:
        return f"Run: {self.card.plan.method} of {self.card.model.name} in {self.folder.path}."

    @cached_property
    def manifest(self) -> Manifest:
        """Everything about the run as plain data."""
        return self.folder.manifest()

    @property
    def card(self) -> Card:
        """The plan, the model, the data and the library versions of the run."""
        return Card.model_validate(self.manifest["run"])

    def files(self, table: str = EXAMPLES) -> list[Path]:
        """The Parquet files of a table (examples, heads) in order, for other tools to read.

        Each is compared with its hash before it is handed over.
        """
        names = self._shards(table)
        self._refuse(
            [n for n in names if hash_of(self.folder.path / n) != self.manifest["files"][n]]
        )
        return [self.folder.path / name for name in names]

    def batches(self, table: str = EXAMPLES, **options: object) -> Iterator[pa.Table]:
        """The rows of a table, a shard at a time; ``options`` are those of ``to_pandas``."""
        for name in self._shards(table):
            yield table_of(self.folder.read(name, self.manifest), **options)

    def to_pandas(self, table: str = EXAMPLES, **options: object) -> "pandas.DataFrame":
        """A table as one pandas frame; ``columns=[…]`` and ``filters=[…]`` keep a part of it."""
        joined = pa.concat_tables(self.batches(table, **options), promote_options="default")
        frame: pandas.DataFrame = joined.to_pandas()
        return frame

    def to_polars(self, table: str = EXAMPLES) -> Any:
        """A table as a lazy polars frame; nothing is read before it is needed."""
        return extra("polars").scan_parquet(self.files(table))

    def to_duckdb(self, table: str = EXAMPLES) -> Any:
        """A table as a DuckDB relation; nothing is read before it is needed."""
        return extra("duckdb").read_parquet([str(path) for path in self.files(table)])

    def dense(self, example: int) -> dict[str, Tensor]:
        """The whole maps of one example, by its number.

        The maps of a shard are read and checked together, and kept until those of another shard are
        requested.
        """
        number = example // self.card.plan.window
        name = f"{DENSE}/{number:05d}{ENDINGS[DENSE]}"
        if name not in self.manifest["files"]:
            raise BadRequestError("This run stored no maps; run it with dense=True.")
        if number not in self._maps:
            self._maps.clear()
            self._maps[number] = safetensors.torch.load(self.folder.read(name, self.manifest))
        prefix = f"{example}/"
        return {
            name.removeprefix(prefix): tensor.clone()
            for name, tensor in sorted(self._maps[number].items())
            if name.startswith(prefix)
        }

    @property
    def result(self) -> Result:
        """The one result of a method that needs the whole data set at once."""
        return read(self.files(RESULT)[0])

    def verify(self) -> None:
        """Compare every file with its hash."""
        self._refuse(self.folder.damage())

    def _refuse(self, damaged: Sequence[str | Path]) -> None:
        if damaged:
            names = ", ".join(map(str, damaged[:3])) + (" …" if len(damaged) > 3 else "")
            raise BrokenInvariantError(
                f"{self.folder.path} is damaged: {names} not as written. Resume the run to "
                "repair it."
            )

    def _shards(self, table: str) -> list[str]:
        """The files of a table, by their places in the folder."""
        files = [(name.partition("/")[0], name) for name in sorted(self.manifest["files"])]
        if table not in (stored := {kind for kind, _ in files} & ENDINGS.keys()):
            raise BadRequestError(f"This run has no {table!r}; it has {', '.join(sorted(stored))}.")
        return [name for kind, name in files if kind == table]

    def summary(self) -> Summary:
        """The aggregates, with the counts and the checks."""
        manifest, rows = self.manifest, []
        if AGGREGATES in manifest["files"]:  # not with one result for the whole data set
            rows = table_of(self.folder.read(AGGREGATES, manifest)).to_pylist()
        return Summary(self.folder.path, self.card, manifest["counts"], rows, manifest["checks"])


def table_of(data: bytes, **options: Any) -> pa.Table:
    """The table in the bytes of a Parquet file, whose pages carry checksums of their own."""
    return pq.read_table(pa.BufferReader(data), page_checksum_verification=True, **options)


def open(path: str | Path) -> Run:
    """A finished run, its manifest checked; other files are checked as they are read.

    ``run.verify()`` checks them all at once.

    >>> made = xa.corpus.run(subject, ["a fine film"], "effective_attention", tmp_path / "films")
    >>> run = xa.corpus.open(tmp_path / "films")
    >>> run.to_pandas()[["length", "answer"]].to_dict("records")
    [{'length': 5, 'answer': 'positive'}]
    >>> len(run.to_pandas("heads"))  # 6 layers of 12 heads
    72
    >>> xa.corpus.open(tmp_path / "nothing")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: ...nothing holds no corpus run (there is no run.json).
    """
    run = Run(Folder(path))
    run.manifest  # noqa: B018 - fails at once where there is none
    return run


def diff(first: str | Path | Run, second: str | Path | Run) -> list[Row]:
    """Second minus first, for every statistic that both have: the means and the interval.

    Both runs must be about the same examples: they were resampled alike, so the interval is that
    of the paired difference.

    >>> texts = ["a fine film", "a dull film", "it is long"]
    >>> all_rows = xa.corpus.run(subject, texts, "effective_attention", tmp_path / "a")
    >>> sum_to_one = xa.corpus.run(
    ...     subject, texts, "effective_attention", tmp_path / "b", simplex=True
    ... )
    >>> rows = xa.corpus.diff(tmp_path / "a", tmp_path / "b")
    >>> sorted(rows[0])[:4]
    ['difference', 'first', 'head', 'interval_high']
    >>> max(row["difference"] for row in xa.corpus.diff(tmp_path / "a", tmp_path / "a"))
    0.0
    """
    runs = [run if isinstance(run, Run) else open(run) for run in (first, second)]
    methods = [run.card.plan.method for run in runs]
    if methods[0] != methods[1]:
        raise BadRequestError(
            f"The runs used different methods ({methods[0]} and {methods[1]}), whose numbers "
            "cannot be subtracted. Compare runs of one method."
        )
    if runs[0].manifest["ids"] != runs[1].manifest["ids"]:
        counts = [run.manifest["counts"]["examples"] for run in runs]
        raise BadRequestError(
            f"The runs are about different examples ({counts[0]} and {counts[1]}), so their "
            "difference says nothing. Run both on the same data."
        )
    tables = [{_key(row): (place, row) for place, row in enumerate(r.summary().rows)} for r in runs]
    shared = [key for key in tables[0] if key in tables[1]]
    if not shared:
        raise BadRequestError("The runs have no statistic in common; nothing can be compared.")
    stored = [safetensors.torch.load(run.folder.read(REPLICATES, run.manifest)) for run in runs]
    before, after = (replicates["means"].numpy() for replicates in stored)
    rows = []
    for key in shared:
        (place_before, row_before), (place_after, row_after) = (table[key] for table in tables)
        change = after[:, place_after] - before[:, place_before]
        low, high = np.quantile(change, INTERVAL)
        rows.append(
            dict(zip(KEY, key, strict=True))
            | {
                "first": row_before["mean"],
                "second": row_after["mean"],
                "difference": row_after["mean"] - row_before["mean"],
                "interval_low": float(low),
                "interval_high": float(high),
            }
        )
    return rows


def _key(row: Row) -> tuple[str | int | None, ...]:
    return tuple(row[name] for name in KEY)
