"""What does it cost to compare every byte of a run with its hash as it is read?

A run folder of realistic shards is made (1,024 examples each, 6 sites of 12 heads, a dozen numbers
a head), and read with and without the comparison, in one process and by turns: *unhashed* is the
same reading without the hash, *plain* reads a file as Python does and decodes it as the libraries
do; and, for tables, as pyarrow reads files in place, where a choice of columns also spares the
reading of the others. All seconds are medians of the processor, not of the clock, so that a busy
machine does not count; the percentage is the median over the turns.

    python benchmarks/run_folders.py [--shards 6] [--repeats 15]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from exhibit_a.corpus.findings import ExampleFindings, Row, files_of
from exhibit_a.corpus.finish import finish
from exhibit_a.corpus.windows import windows

import exhibit_a as xa
from exhibit_a.corpus import read as corpus_read
from exhibit_a.corpus import seals
from exhibit_a.corpus.plan import Card, Data, Model, Plan, versions
from exhibit_a.corpus.run_folder import Folder
from exhibit_a.corpus.work import Shard, receipt_of
from exhibit_a.examples import Example

WINDOW, LENGTH, MAPPED = 1024, 12, 64  # examples in a shard, tokens, examples in a shard of maps
NUMBERS = [f"number_{n}" for n in range(12)]


def make(folder: Path, subject: xa.Subject, shards: int, *, dense: bool) -> xa.corpus.Run:
    """A finished run of made-up numbers, which compress as badly as real ones."""
    chance, window = np.random.default_rng(0), MAPPED if dense else WINDOW
    sites = subject.anatomy.sites
    heads = sum(site.heads for site in sites)
    words = tuple(f"word{n}" for n in range(LENGTH))
    texts = [Example(f"n{n}", " ".join(words)) for n in range(shards * window)]
    plan = Plan(method="effective_attention", window=window, dense=dense)
    card = Card(plan=plan, model=Model.of(subject), data=Data(), versions=versions())
    sink = Folder(folder)
    with sink.locked(new=True):
        sink.begin(card)
        for part in windows(texts, window):
            findings = [
                ExampleFindings(
                    part.start + place,
                    text,
                    words,
                    False,
                    Row(
                        {name: float(chance.normal()) for name in NUMBERS},
                        {},
                        {name: chance.normal(size=heads).astype(np.float32) for name in NUMBERS},
                        {f"map/{site.index}": _map(chance, site.heads) for site in sites * dense},
                    ),
                )
                for place, text in enumerate(part.examples)
            ]
            files = files_of(findings, sites, part.number)
            sink.commit(Shard(receipt_of(part, len(findings), (), files), files))
        finish(sink, card, subject, shards)
    return xa.corpus.open(folder)


def _map(chance: np.random.Generator, heads: int) -> torch.Tensor:
    return torch.from_numpy(chance.normal(size=(heads, 4 * LENGTH, 4 * LENGTH)).astype(np.float32))


def spent(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def read_in_place(run: xa.corpus.Run, table: str, **options: Any) -> Any:
    """A table as version 0.1.0 read it."""
    paths = [run.folder.file(table, receipt["shard"]) for receipt in run.receipts]
    parts = [pq.read_table(path, **options) for path in paths]
    return pa.concat_tables(parts, promote_options="default").to_pandas()


class Unhashed:
    """Stands where the hash is, and does nothing."""

    def update(self, data: memoryview) -> None:
        """Look away."""

    def hexdigest(self) -> str:
        """The hash of nothing."""
        return ""


def unhashed(path: Path, expected: str) -> memoryview:
    """The same reading without the comparison."""
    del expected
    return seals._hashed(path, Unhashed())[0]


def plain(path: Path, expected: str) -> bytes:
    """A file as Python reads it."""
    del expected
    return path.read_bytes()


@contextmanager
def reading(read: Callable[[Path, str], Any], *, libraries: bool) -> Iterator[None]:
    """Read files in this way, and decode maps as safetensors does or as we do."""
    decode = safetensors.torch.load if libraries else corpus_read.tensors_of
    with (
        patch("exhibit_a.corpus.run_folder.read_checked", read),
        patch("exhibit_a.corpus.read.read_checked", read),
        patch("exhibit_a.corpus.read.tensors_of", decode),
    ):
        yield


def compare(
    name: str, work: Callable[[], Any], repeats: int, in_place: Callable[[], Any] | None
) -> None:
    """Print the median seconds in place, without and with the comparison, by turns."""
    bare, without, checked, direct = [], [], [], []
    for _ in range(repeats):
        if in_place is not None:
            direct.append(spent(in_place))
        with reading(plain, libraries=True):
            bare.append(spent(work))
        with reading(unhashed, libraries=False):
            without.append(spent(work))
        checked.append(spent(work))
    costs = [
        median(after / before for before, after in zip(others, checked, strict=True)) - 1
        for others in (without, bare)
    ]
    print(
        f"{name:24} {1000 * median(checked):7.1f} ms checked "
        f"{1000 * median(without):7.1f} unhashed {costs[0]:+6.1%} "
        f"{1000 * median(bare):7.1f} plain {costs[1]:+6.1%}"
        + (f" {1000 * median(direct):7.1f} in place" if direct else ""),
        flush=True,
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--shards", type=int, default=6)
    options.add_argument("--repeats", type=int, default=21)
    given = options.parse_args()
    torch.set_num_threads(1)
    subject = xa.load("sentiment")
    with tempfile.TemporaryDirectory() as scratch:
        tables = make(Path(scratch) / "tables", subject, given.shards, dense=False)
        maps = make(Path(scratch) / "maps", subject, 2, dense=True)
        size = sum(p.stat().st_size for p in tables.folder.path.rglob("*") if p.is_file())
        data = tables.folder.file("heads", 0).read_bytes()
        print(f"{given.shards} shards of {WINDOW} examples, {size / 1e6:.0f} MB")
        for kind in (seals.digest, seals.quick_digest):
            rate = 20 * len(data) / spent(lambda k=kind: [k(data) for _ in range(20)]) / 1e6
            print(f"{kind.__name__:24} {rate:8.0f} MB/s")
        path = tables.folder.path
        heads = ["example", "site", "head", NUMBERS[0]]
        readings: dict[str, Callable[[], Any]] = {
            "to_pandas, heads": lambda: xa.corpus.open(path).to_pandas("heads"),
            "batches, heads": lambda: list(xa.corpus.open(path).batches("heads")),
            "to_pandas, examples": lambda: xa.corpus.open(path).to_pandas(),
            "to_pandas, four columns": lambda: xa.corpus.open(path).to_pandas(
                "heads", columns=heads
            ),
            "summary": lambda: xa.corpus.open(path).summary(),
            "diff": lambda: xa.corpus.diff(path, path),
            "dense, every map": lambda: [
                run.dense(row)
                for run in [xa.corpus.open(maps.folder.path)]
                for row in range(2 * MAPPED)
            ],
        }
        in_place = {
            "to_pandas, heads": lambda: read_in_place(tables, "heads"),
            "to_pandas, examples": lambda: read_in_place(tables, "examples"),
            "to_pandas, four columns": lambda: read_in_place(tables, "heads", columns=heads),
        }
        for name, work in readings.items():
            work()
            compare(name, work, given.repeats, in_place.get(name))


if __name__ == "__main__":
    main()
