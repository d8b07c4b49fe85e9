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
the hashes agree; any other file is left from a crash and is written again. Card, receipts and
manifest carry a seal (``seals.py``), and whatever is read is compared with its hash. Cards of
version 0.1.0 have no seal: what they say is only certain where a manifest repeats it. While a run
is written, its folder also holds ``.lock``, which the system releases when the process ends, and
``.holder``, which names that process.
"""

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from filelock import BaseFileLock, FileLock, Timeout
from pydantic import ValidationError

from exhibit_a.corpus.findings import ENDINGS
from exhibit_a.corpus.plan import Card, complaint
from exhibit_a.corpus.seals import (
    digest,
    hash_of,
    quick_digest,
    read_checked,
    read_sealed,
    sealed,
    unsealed,
)
from exhibit_a.corpus.work import Receipt, Shard
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.results.files import write_whole, writing
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
    receipts: list[str]  # the hash of every receipt
    files: NotRequired[dict[str, str]]  # the hash of every other file
    quick: NotRequired[dict[str, str]]  # the faster hash of the same; version 0.1.0 had none


class Folder:
    """A run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def locked(self, *, new: bool = False) -> Iterator[None]:
        """Be the only writer while the block runs; a new run needs a folder with nothing in it.

        Folders that were made for a new run and are empty after an error are removed.
        """
        made = self._made() if new else []
        if not self.path.is_dir():
            raise BadRequestError(f"There is no run folder {self.path}.")
        try:
            with self._held():
                if new:
                    self._require_empty()
                yield
        except BaseException:
            _remove_empty(made)
            raise

    def begin(self, card: Card) -> None:
        """Write the card, before any work is done."""
        write_whole(self.path / CARD, sealed(card.model_dump(mode="json")))

    def discard(self) -> None:
        """Remove everything of a run that came to nothing, under its lock."""
        for name in (CARD, MANIFEST, AGGREGATES, REPLICATES, UNUSABLE, LOCK):
            with contextlib.suppress(OSError):  # the reason why it came to nothing is told
                (self.path / name).unlink()
        for name in (RECEIPTS, *ENDINGS):
            shutil.rmtree(self.path / name, ignore_errors=True)

    @property
    def card(self) -> Card:
        """What the run is about; where the card is damaged, as the manifest repeats it."""
        path = self.path / CARD
        try:
            return read_card(path)
        except BadRequestError:
            manifest = read_sealed(self.path / MANIFEST)
            if manifest is None:
                raise
        return Card.model_validate(manifest["run"])

    def commit(self, shard: Shard) -> None:
        """Write a shard; its receipt comes last and makes it count."""
        for kind, data in shard.files.items():
            _write_in_folder(self.file(kind, shard.number), data)
        _write_in_folder(self.receipt_path(shard.number), sealed(shard.receipt))

    def file(self, kind: str, number: int) -> Path:
        """Where a file of a shard is."""
        return self.path / kind / f"{number:05d}{ENDINGS[kind]}"

    def read(self, kind: str, receipt: Receipt) -> memoryview:
        """A file of a shard, compared with the hash in its receipt."""
        expected = receipt.get("quick", receipt["files"])
        return read_checked(self.file(kind, receipt["shard"]), expected[kind])

    def complete(self) -> Iterator[Receipt]:
        """The receipts of the shards that are complete: every hash is that of its file."""
        for path in sorted((self.path / RECEIPTS).glob("*.json")):
            receipt = cast("Receipt | None", read_sealed(path))
            if receipt is None or path != self.receipt_path(receipt["shard"]):
                continue
            if not self._damaged(receipt):
                yield receipt

    def receipt(self, number: int, expected: str | None = None) -> Receipt:
        """One receipt, which has the expected hash where there is one."""
        path = self.receipt_path(number)
        if expected is None:
            receipt = read_sealed(path)
        else:
            receipt = unsealed(bytes(read_checked(path, expected)))
        if receipt is None or receipt["shard"] != number:
            raise BrokenInvariantError(
                f"{path} is missing or damaged. Resume the run to repair it."
            )
        return cast("Receipt", receipt)

    def finish(self, manifest: Manifest, files: dict[str, bytes]) -> None:
        """Write the files about all shards; the manifest comes last."""
        self._sweep()
        for name, data in files.items():
            write_whole(self.path / name, data)
        hashes = {
            "files": {name: digest(data) for name, data in files.items()},
            "quick": {name: quick_digest(data) for name, data in files.items()},
        }
        write_whole(self.path / MANIFEST, sealed({**manifest, **hashes}))

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
        manifest = read_sealed(self.path / MANIFEST)
        if manifest is None:
            raise BrokenInvariantError(
                f"{self.path / MANIFEST} is damaged. Resume the run to repair it."
            )
        return cast("Manifest", manifest)

    def damage(self) -> list[str]:
        """Files of a finished run that are missing or do not have the hash in the manifest."""
        manifest = self.manifest()
        damaged = [] if self._card_is(manifest["run"]) else [CARD]
        damaged += [
            name
            for name, expected in manifest["files"].items()
            if hash_of(self.path / name) != expected
        ]
        for number, expected in enumerate(manifest["receipts"]):
            path = self.receipt_path(number)
            if hash_of(path) != expected:
                damaged.append(str(path.relative_to(self.path)))
                continue
            damaged += self._damaged(self.receipt(number))
        return damaged

    def _card_is(self, repeated: dict[str, JSON]) -> bool:
        try:
            return read_card(self.path / CARD) == Card.model_validate(repeated)
        except BadRequestError:
            return False

    def _damaged(self, receipt: Receipt) -> list[str]:
        files = {self.file(kind, receipt["shard"]): d for kind, d in receipt["files"].items()}
        return [str(p.relative_to(self.path)) for p, d in files.items() if hash_of(p) != d]

    def receipt_path(self, number: int) -> Path:
        """Where a receipt is."""
        return self.path / RECEIPTS / f"{number:05d}.json"

    def _made(self) -> list[Path]:
        """Make the folder, and name those that were not there before, the innermost first."""
        try:
            missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        except OSError as problem:
            raise _unmakeable(self.path, problem) from None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            _remove_empty(missing)
            raise _unmakeable(self.path, problem) from None
        return missing

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock, and say who does."""
        lock = self._acquired()
        try:
            with contextlib.suppress(OSError):  # only a message needs it
                name = f"process {os.getpid()} on {socket.gethostname()}"
                (self.path / HOLDER).write_text(name, encoding="utf-8")
            yield
        finally:
            with contextlib.suppress(OSError):
                (self.path / HOLDER).unlink()
            lock.release()

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


def _write_in_folder(path: Path, data: bytes) -> None:
    """Write a file, and make its folder where there is none."""
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_whole(path, data)


def _remove_empty(folders: Iterable[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):  # one that holds something stays
            path.rmdir()


def _unmakeable(path: Path, problem: OSError) -> BadRequestError:
    return BadRequestError(f"The folder {path} cannot be made: {problem.strerror}.")


def read_card(path: Path) -> Card:
    """The card of a run folder, its seal checked where it has one."""
    if not path.is_file():
        raise BadRequestError(f"{path.parent} holds no corpus run (there is no {path.name}).")
    try:
        data = path.read_bytes()
        value = unsealed(data)
        if value is None and b'"seal"' in data:
            raise BadRequestError(f"{path} is damaged, its checksum does not match.")
        return Card.model_validate_json(data) if value is None else Card.model_validate(value)
    except ValidationError as problem:
        reason = complaint(problem)
    except OSError as problem:
        reason = str(problem.strerror)
    raise BadRequestError(f"{path} is damaged or was written by another version: {reason}")


def unusable_lines(receipts: Iterable[Receipt]) -> bytes:
    """Every row that could not be used, one JSON object a line."""
    rows = (row for receipt in receipts for row in receipt["unusable"])
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
