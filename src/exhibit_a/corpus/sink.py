"""How does work survive a crash, and how does nobody ever read half of it?

A run is a folder with one writer:

    run.json                 the card: what is done to what (written first)
    examples/00007.parquet   a shard: one row for each example …
    heads/00007.parquet      … and one for each example, site and head
    dense/00007.safetensors  … and whole maps, where they were asked for
    receipts/00007.json      written last: the hash of every file of the shard
    aggregates.parquet       over all shards, in their order
    replicates.safetensors   the resampled means behind the intervals
    unusable.jsonl           the rows that could not be used, and why
    manifest.json            written last of all: the run is finished and will not change

Every file is written beside its place and renamed. A shard counts when its receipt is there and the
hashes agree; whatever else is found belongs to a crash and is written again. Receipts and manifest
carry a seal, a hash of their own text. The lock belongs to the process and dies with it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from exhibit_a.corpus.findings import ENDINGS
from exhibit_a.corpus.plan import Card, as_json, read_card
from exhibit_a.corpus.work import Shard
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.results.files import write_whole

CARD, MANIFEST, LOCK = "run.json", "manifest.json", ".lock"
RECEIPTS = "receipts"
AGGREGATES, REPLICATES, UNUSABLE = "aggregates.parquet", "replicates.safetensors", "unusable.jsonl"

Receipt = dict[str, Any]


class Folder:
    """A run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def locked(self, *, new: bool = False) -> Iterator[None]:
        """Be the only writer while the block runs; a new run needs a folder with nothing in it."""
        if new:
            self._make()
        elif not self.path.is_dir():
            raise BadRequestError(f"There is no run folder {self.path}.")
        with self._open_lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = (self.path / LOCK).read_text("utf-8", "replace").strip() or "a process"
                raise BadRequestError(
                    f"{self.path} is being written by {holder}. Two runs cannot share a folder: "
                    "wait for it, or give another folder."
                ) from None
            if new and (there := sorted(p.name for p in self.path.iterdir() if p.name != LOCK)):
                raise BadRequestError(self._taken(there))
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            lock.flush()
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    lock.truncate(0)

    def begin(self, card: Card) -> None:
        """Write the card, before any work is done."""
        write_whole(self.path / CARD, as_json(card.model_dump(mode="json")))

    def abandon(self) -> None:
        """Remove a folder in which nothing was begun."""
        with contextlib.suppress(OSError):
            (self.path / LOCK).unlink()
            self.path.rmdir()

    @property
    def card(self) -> Card:
        """What the run is about."""
        return read_card(self.path / CARD)

    def commit(self, shard: Shard) -> None:
        """Write a shard; its receipt comes last and makes it count."""
        for kind, data in shard.files.items():
            path = self.file(kind, shard.number)
            path.parent.mkdir(exist_ok=True)
            write_whole(path, data)
        path = self.receipt_path(shard.number)
        path.parent.mkdir(exist_ok=True)
        write_whole(path, sealed(shard.receipt))

    def file(self, kind: str, number: int) -> Path:
        """Where a file of a shard is."""
        return self.path / kind / f"{number:05d}{ENDINGS[kind]}"

    def receipts(self) -> dict[int, Receipt]:
        """The receipts of the shards that count: whole, and every hash as it should be."""
        found = {}
        for path in sorted((self.path / RECEIPTS).glob("*.json")):
            receipt = unsealed(path)
            if receipt is not None and not self._damaged(receipt):
                found[int(receipt["shard"])] = receipt
        return found

    def receipt(self, number: int) -> Receipt:
        """One receipt of a finished run."""
        receipt = unsealed(self.receipt_path(number))
        if receipt is None:
            raise BrokenInvariantError(f"{self.receipt_path(number)} is missing or damaged.")
        return receipt

    def finish(self, manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        """Write what is known at the end; the manifest comes last."""
        self._sweep()
        for name, data in files.items():
            write_whole(self.path / name, data)
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
        write_whole(self.path / MANIFEST, sealed(manifest | {"files": hashes}))

    @property
    def finished(self) -> bool:
        """Whether the manifest is there."""
        return (self.path / MANIFEST).exists()

    def manifest(self) -> dict[str, Any]:
        """The manifest of a finished run, its seal unbroken."""
        if not self.finished:
            card = self.card  # also says when this is no run at all
            raise BadRequestError(
                f"The run in {self.path} ({card.plan.method}) is not finished. Resume it first."
            )
        manifest = unsealed(self.path / MANIFEST)
        if manifest is None:
            raise BrokenInvariantError(f"{self.path / MANIFEST} is damaged. Resume to repair it.")
        return manifest

    def damage(self) -> list[str]:
        """Files of a finished run that are missing or not what the manifest vouches for."""
        manifest = self.manifest()
        wrong = [
            name
            for name, digest in manifest["files"].items()
            if hash_of(self.path / name) != digest
        ]
        for number, digest in enumerate(manifest["receipts"]):
            path = self.receipt_path(number)
            if hash_of(path) != digest:
                wrong.append(str(path.relative_to(self.path)))
                continue
            wrong += self._damaged(self.receipt(number))
        return wrong

    def _damaged(self, receipt: Receipt) -> list[str]:
        files = {self.file(kind, receipt["shard"]): d for kind, d in receipt["files"].items()}
        return [str(p.relative_to(self.path)) for p, d in files.items() if hash_of(p) != d]

    def receipt_path(self, number: int) -> Path:
        """Where a receipt is."""
        return self.path / RECEIPTS / f"{number:05d}.json"

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise BadRequestError(
                f"The folder {self.path} cannot be made: {problem.strerror}."
            ) from None

    def _open_lock(self) -> IO[str]:
        try:
            return (self.path / LOCK).open("a+", encoding="utf-8")
        except OSError as problem:
            raise BadRequestError(
                f"The folder {self.path} cannot be written to: {problem.strerror}."
            ) from None

    def _taken(self, there: list[str]) -> str:
        if CARD in there:
            return (
                f"{self.path} already holds a run. Resume it (exhibit-a corpus resume "
                f"{self.path}), or give another folder."
            )
        return f"{self.path} is not empty ({there[0]}). Give a new or an empty folder."

    def _sweep(self) -> None:
        """Remove what killed writers left beside."""
        for left in [*self.path.glob(".exhibit-a-*.tmp"), *self.path.glob("*/.exhibit-a-*.tmp")]:
            left.unlink(missing_ok=True)


def hash_of(path: Path) -> str | None:
    """The sha-256 of a file, or None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def sealed(value: dict[str, Any]) -> bytes:
    """JSON with a hash of itself."""
    return as_json(value | {"seal": hashlib.sha256(as_json(value)).hexdigest()})


def unsealed(path: Path) -> dict[str, Any] | None:
    """What was sealed in a file, or None where it is missing or damaged."""
    try:
        value = json.loads(path.read_bytes())
        seal = value.pop("seal")
    except (OSError, ValueError, AttributeError, KeyError):
        return None
    return value if hashlib.sha256(as_json(value)).hexdigest() == seal else None


def unusable_lines(receipts: Iterable[Receipt]) -> bytes:
    """Every row that could not be used, one JSON object a line."""
    rows = (row for receipt in receipts for row in receipt["unusable"])
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
