"""How does finished work survive a crash, and how is half-written work never read?

A run is a folder with one writer:

    run.json                 the card: what is done to what (written first)
    examples/00007.parquet   a shard: one row for each example …
    heads/00007.parquet      … and one for each example, site and head
    dense/00007.safetensors  … and whole maps, where the plan asks for them
    receipts/00007.json      written last: the hash of every file of the shard
    aggregates.parquet       over all shards, in their order
    replicates.safetensors   the resampled means behind the intervals
    unusable.jsonl           the rows that could not be used, and why
    manifest.json            written last of all: the run is finished and will not change

Every file is written under a temporary name and renamed. A shard counts when its receipt exists and
the hashes agree; any other file is left from a crash and is written again. Receipts and manifest
carry a seal, a hash of their own text. While a run is written, its folder also holds ``.lock``,
which the system releases when the process ends, and ``.holder``, which names that process.
"""

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from filelock import BaseFileLock, FileLock, Timeout

from exhibit_a.corpus.findings import ENDINGS
from exhibit_a.corpus.plan import Card, as_json, read_card
from exhibit_a.corpus.work import Receipt, Shard
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.results.files import write_whole
from exhibit_a.results.plain import JSON

CARD, MANIFEST, LOCK, HOLDER = "run.json", "manifest.json", ".lock", ".holder"
RECEIPTS = "receipts"
AGGREGATES, REPLICATES, UNUSABLE = "aggregates.parquet", "replicates.safetensors", "unusable.jsonl"


class Manifest(TypedDict):
    """Everything about a finished run."""

    run: dict[str, JSON]  # its card
    counts: dict[str, int]
    ids: str  # a digest of the ids of all examples
    sites: list[dict[str, JSON]]
    checks: dict[str, JSON]
    receipts: list[str | None]  # the hash of every receipt
    files: NotRequired[dict[str, str]]  # the hash of every other file


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
        lock = self._acquired()
        try:
            if new:
                self._require_empty()
            with contextlib.suppress(OSError):  # only a message needs it
                name = f"process {os.getpid()} on {socket.gethostname()}"
                (self.path / HOLDER).write_text(name, encoding="utf-8")
            yield
        finally:
            with contextlib.suppress(OSError):
                (self.path / HOLDER).unlink()
            lock.release()

    def begin(self, card: Card) -> None:
        """Write the card, before any work is done."""
        write_whole(self.path / CARD, as_json(card.model_dump(mode="json")))

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
        """The receipts of the shards that are complete: every hash is that of its file."""
        complete = {}
        for path in sorted((self.path / RECEIPTS).glob("*.json")):
            receipt = cast("Receipt | None", unsealed(path))
            if receipt is not None and not self._damaged(receipt):
                complete[int(receipt["shard"])] = receipt
        return complete

    def receipt(self, number: int) -> Receipt:
        """One receipt of a finished run."""
        receipt = unsealed(self.receipt_path(number))
        if receipt is None:
            raise BrokenInvariantError(f"{self.receipt_path(number)} is missing or damaged.")
        return cast("Receipt", receipt)

    def finish(self, manifest: Manifest, files: dict[str, bytes]) -> None:
        """Write the files about all shards; the manifest comes last."""
        self._sweep()
        for name, data in files.items():
            write_whole(self.path / name, data)
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
        write_whole(self.path / MANIFEST, sealed({**manifest, "files": hashes}))

    @property
    def finished(self) -> bool:
        """Whether the manifest exists."""
        return (self.path / MANIFEST).exists()

    def manifest(self) -> Manifest:
        """The manifest of a finished run, its seal checked."""
        if not self.finished:
            card = self.card  # which also fails where there is no run at all
            raise BadRequestError(
                f"The run in {self.path} ({card.plan.method}) is not finished. Resume it first."
            )
        manifest = unsealed(self.path / MANIFEST)
        if manifest is None:
            raise BrokenInvariantError(f"{self.path / MANIFEST} is damaged. Resume to repair it.")
        return cast("Manifest", manifest)

    def damage(self) -> list[str]:
        """Files of a finished run that are missing or do not have the hash in the manifest."""
        manifest = self.manifest()
        damaged = [
            name
            for name, digest in manifest["files"].items()
            if hash_of(self.path / name) != digest
        ]
        for number, expected in enumerate(manifest["receipts"]):
            path = self.receipt_path(number)
            if hash_of(path) != expected:
                damaged.append(str(path.relative_to(self.path)))
                continue
            damaged += self._damaged(self.receipt(number))
        return damaged

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

    def _acquired(self) -> BaseFileLock:
        """The lock of the folder, or an error that names the process that has it."""
        lock = FileLock(self.path / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise BadRequestError(
                f"{self.path} is being written by {self._holder()}. Two runs cannot share a "
                "folder: wait for it, or give another folder."
            ) from None
        except OSError as problem:
            raise BadRequestError(
                f"The folder {self.path} cannot be written to: {problem.strerror}."
            ) from None
        return lock

    def _holder(self) -> str:
        # In a file of its own: some versions of filelock empty the lock file when they open it.
        with contextlib.suppress(OSError):
            return (self.path / HOLDER).read_text("utf-8", "replace").strip() or "a process"
        return "a process"

    def _require_empty(self) -> None:
        names = sorted(path.name for path in self.path.iterdir() if path.name not in (LOCK, HOLDER))
        if CARD in names:
            raise BadRequestError(
                f"{self.path} already holds a run. Resume it (exhibit-a corpus resume "
                f"{self.path}), or give another folder."
            )
        if names:
            raise BadRequestError(
                f"{self.path} is not empty ({names[0]}). Give a new or an empty folder."
            )

    def _sweep(self) -> None:
        """Remove the temporary files of writers that were killed."""
        for path in [*self.path.glob(".exhibit-a-*.tmp"), *self.path.glob("*/.exhibit-a-*.tmp")]:
            path.unlink(missing_ok=True)


def hash_of(path: Path) -> str | None:
    """The sha-256 of a file, or None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def sealed(value: Mapping[str, object]) -> bytes:
    """JSON with a hash of itself."""
    return as_json({**value, "seal": hashlib.sha256(as_json(value)).hexdigest()})


def unsealed(path: Path) -> dict[str, JSON] | None:
    """The value in a sealed file, or None where the file is missing or damaged."""
    try:
        value: dict[str, JSON] = json.loads(path.read_bytes())
        seal = value.pop("seal")
    except (OSError, ValueError, AttributeError, KeyError):
        return None
    return value if hashlib.sha256(as_json(value)).hexdigest() == seal else None


def unusable_lines(receipts: Iterable[Receipt]) -> bytes:
    """Every row that could not be used, one JSON object a line."""
    rows = (row for receipt in receipts for row in receipt["unusable"])
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
