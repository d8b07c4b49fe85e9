"""What came out of a run, and how do two runs differ?

``open`` gives a finished run: its tables for pandas, polars or DuckDB (all of them read Parquet
where it lies), its summary, and dense maps where they were kept. ``diff`` compares two runs over
the same examples; both were resampled alike, so the difference of two means has its own interval.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
from torch import Tensor

from exhibit_a.corpus.aggregates import INTERVAL
from exhibit_a.corpus.findings import DENSE, EXAMPLES, HEADS, RESULT
from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.sink import AGGREGATES, REPLICATES, Folder
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.results.result import Result
from exhibit_a.results.store import read

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Summary:
    """What a finished run says, and how far to trust it."""

    path: Path
    card: Card
    counts: dict[str, int]
    rows: list[dict[str, Any]]  # one for each statistic (of each site and head)
    checks: dict[str, Any]

    def to_pandas(self) -> "pandas.DataFrame":
        """The aggregates as a table."""
        return import_module("pandas").DataFrame(self.rows)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        plan, told = self.card.plan, ", ".join(f"{n} {c}" for n, c in self.counts.items())
        return f"Summary: {plan.method} of {self.card.model.name} in {self.path}: {told}."


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: Folder

    def __repr__(self) -> str:
        return f"Run: {self.card.plan.method} of {self.card.model.name} in {self.folder.path}."

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Everything about the run as plain data."""
        return self.folder.manifest()

    @property
    def card(self) -> Card:
        """What was done to what."""
        return Card.model_validate(self.manifest["run"])

    def files(self, table: str = EXAMPLES) -> list[Path]:
        """The Parquet files of a table (examples, heads), in order: what other tools read."""
        kept = {
            kind for kind in (EXAMPLES, HEADS, DENSE, RESULT) if (self.folder.path / kind).is_dir()
        }
        if table not in kept:
            raise BadRequestError(f"This run has no {table!r}; it has {', '.join(sorted(kept))}.")
        numbers = range(len(self.manifest["receipts"]))
        return [path for n in numbers if (path := self.folder.file(table, n)).is_file()]

    def batches(self, table: str = EXAMPLES) -> Iterator[pa.Table]:
        """The rows of a table, a shard at a time."""
        yield from (pq.read_table(path) for path in self.files(table))

    def to_pandas(self, table: str = EXAMPLES, **options: Any) -> "pandas.DataFrame":
        """A table as one pandas frame; ``columns=[…]`` and ``filters=[…]`` read less of it."""
        joined = pa.concat_tables(
            [pq.read_table(path, **options) for path in self.files(table)],
            promote_options="default",
        )
        return joined.to_pandas()  # type: ignore[no-any-return]

    def to_polars(self, table: str = EXAMPLES) -> Any:
        """A table as a lazy polars frame; nothing is read before it is asked for."""
        return _library("polars").scan_parquet(self.files(table))

    def to_duckdb(self, table: str = EXAMPLES) -> Any:
        """A table as a DuckDB relation; nothing is read before it is asked for."""
        return _library("duckdb").read_parquet([str(path) for path in self.files(table)])

    def dense(self, example: int) -> dict[str, Tensor]:
        """The whole maps of one example, by its number."""
        window = self.card.plan.window
        path = self.folder.file(DENSE, example // window)
        if not path.is_file():
            raise BadRequestError("This run kept no maps; run it with dense=True.")
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            mine = [name for name in file.keys() if name.startswith(f"{example}/")]  # noqa: SIM118
            return {name.removeprefix(f"{example}/"): file.get_tensor(name) for name in mine}

    @property
    def result(self) -> Result:
        """The one result of a method that takes a data set as a whole."""
        return read(self.files(RESULT)[0])

    def verify(self) -> None:
        """Compare every file with its hash."""
        if wrong := self.folder.damage():
            raise BrokenInvariantError(
                f"{self.folder.path} is damaged: {', '.join(wrong[:3])}"
                f"{' …' if len(wrong) > 3 else ''} not as written. Resume the run to repair it."
            )

    def summary(self) -> Summary:
        """The aggregates, with the counts and the doubts."""
        path = self.folder.path / AGGREGATES
        rows = pq.read_table(path).to_pylist() if path.is_file() else []
        manifest = self.manifest
        return Summary(self.folder.path, self.card, manifest["counts"], rows, manifest["checks"])


def open(path: str | Path) -> Run:
    """A finished run, its manifest checked; ``run.verify()`` checks every file."""
    run = Run(Folder(path))
    run.manifest  # noqa: B018 - says at once when there is none
    return run


def diff(first: str | Path | Run, second: str | Path | Run) -> list[dict[str, Any]]:
    """Second minus first, for every statistic that both have: the means and the interval.

    Both runs must be about the same examples: they were resampled alike, so the interval is that
    of the paired difference.
    """
    a, b = (one if isinstance(one, Run) else open(one) for one in (first, second))
    methods = [one.card.plan.method for one in (a, b)]
    if methods[0] != methods[1]:
        raise BadRequestError(
            f"The runs asked different methods ({methods[0]} and {methods[1]}), whose numbers "
            "cannot be subtracted. Compare runs of one method."
        )
    if a.manifest["ids"] != b.manifest["ids"]:
        counts = [one.manifest["counts"]["examples"] for one in (a, b)]
        raise BadRequestError(
            f"The runs are about different examples ({counts[0]} and {counts[1]}), so their "
            "difference says nothing. Run both on the same data."
        )
    tables = [{_key(row): (n, row) for n, row in enumerate(one.summary().rows)} for one in (a, b)]
    shared = [key for key in tables[0] if key in tables[1]]
    if not shared:
        raise BadRequestError("The runs have no statistic in common; nothing can be compared.")
    drawn = [_replicates(one) for one in (a, b)]
    rows = []
    for key in shared:
        (place_a, row_a), (place_b, row_b) = tables[0][key], tables[1][key]
        moved = drawn[1][:, place_b] - drawn[0][:, place_a]
        low, high = np.quantile(moved, INTERVAL)
        names = dict(zip(("table", "statistic", "site", "head"), key, strict=True))
        change = row_b["mean"] - row_a["mean"]
        ends = {"interval_low": float(low), "interval_high": float(high)}
        means = {"first": row_a["mean"], "second": row_b["mean"], "difference": change}
        rows.append(names | means | ends)
    return rows


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("table", "statistic", "site", "head"))


def _replicates(run: Run) -> np.ndarray:
    return safetensors.torch.load_file(run.folder.path / REPLICATES)["means"].numpy()


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise BadRequestError(f"{name} is missing: pip install {name}") from None
