"""A run on disk: finished work survives a crash, and half-written work is never read.

A run is a folder with one writer:

    run.json                 the card: what is done to what (written first)
    examples/00007.parquet   a shard: one row for each example …
    heads/00007.parquet      … and one for each example, site and head
    dense/00007.safetensors  … and whole maps, where the plan says so
    receipts/00007.json      written last: the SHA-256 of every file of the shard
    aggregates.parquet       over all shards, in their order
    replicates.safetensors   the resampled means behind the intervals
    unusable.jsonl           the rows that could not be used, and why
    manifest.json            written last of all: the SHA-256 of every file; the run is finished

Every file is written under a temporary name and renamed. Before the end a shard counts when its
receipt exists and the hashes agree; any other file is left from a crash and is written again. After
the end only the manifest counts. The three kinds of JSON file carry their own SHA-256, and whatever
is read is compared with its hash before it is decoded. While a run is written, its folder also
holds ``.lock``, which the system releases when the process ends, and ``.holder``, which names that
process.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

from filelock import BaseFileLock, FileLock, Timeout

from exhibit_a.corpus.plan import SCHEMA, Card, as_json, digest
from exhibit_a.corpus.work import ENDINGS, Receipt, Shard
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError
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
    files: dict[str, str]  # the SHA-256 of every other file, by its place in the folder


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
                    names = sorted(
                        path.name for path in self.path.iterdir() if path.name not in (LOCK, HOLDER)
                    )
                    if CARD in names:
                        raise BadRequestError(
                            f"{self.path} already holds a run. Resume it (exhibit-a corpus resume "
                            f"{self.path}), or give another folder."
                        )
                    if names:
                        raise BadRequestError(
                            f"{self.path} is not empty ({names[0]}). Give a new or an empty folder."
                        )
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
            with contextlib.suppress(OSError):  # the reason why it came to nothing is reported
                (self.path / name).unlink()
        for name in (RECEIPTS, *ENDINGS):
            shutil.rmtree(self.path / name, ignore_errors=True)

    @property
    def card(self) -> Card:
        """What the run is about; where the card is damaged, as the manifest repeats it."""
        path = self.path / CARD
        if not path.is_file():
            raise BadRequestError(f"{self.path} holds no corpus run (there is no {CARD}).")
        card = read_sealed(path)
        if card is None:
            card = (read_sealed(self.path / MANIFEST) or {}).get("run")
        if card is None:
            raise BadRequestError(
                f"{path} is damaged, or of version 0.1.0. Run it again, into another folder."
            )
        self._require_of_this_version(card)
        return Card.model_validate(card)

    def commit(self, shard: Shard) -> None:
        """Write a shard; its receipt comes last and makes it count."""
        for kind, data in shard.files.items():
            self._write(self.file(kind, shard.number), data)
        self._write(self.receipt_path(shard.number), sealed(shard.receipt))

    def file(self, kind: str, number: int) -> Path:
        """Where a file of a shard is."""
        return self.path / kind / f"{number:05d}{ENDINGS[kind]}"

    def receipt_path(self, number: int) -> Path:
        """Where a receipt is."""
        return self.path / RECEIPTS / f"{number:05d}.json"

    def complete(self) -> Iterator[Receipt]:
        """The receipts of the shards that are complete: every hash is that of its file."""
        for path in sorted((self.path / RECEIPTS).glob("*.json")):
            receipt = cast("Receipt | None", read_sealed(path))
            if receipt is None or path != self.receipt_path(receipt["shard"]):
                continue
            files = receipt["files"].items()
            if all(hash_of(self.file(kind, receipt["shard"])) == sha for kind, sha in files):
                yield receipt

    def receipt(self, number: int) -> Receipt:
        """One receipt."""
        path = self.receipt_path(number)
        receipt = cast("Receipt | None", read_sealed(path))
        if receipt is None or receipt["shard"] != number:
            raise BrokenInvariantError(
                f"{path} is missing or damaged. Resume the run to repair it."
            )
        return receipt

    def finish(
        self, about: dict[str, Any], receipts: list[Receipt], files: dict[str, bytes]
    ) -> None:
        """Write the files about all shards; the manifest comes last."""
        for path in [*self.path.glob(".exhibit-a-*.tmp"), *self.path.glob("*/.exhibit-a-*.tmp")]:
            path.unlink(missing_ok=True)  # of writers that were killed
        hashes = {CARD: digest(sealed(about["run"]))}
        for receipt in receipts:
            number = receipt["shard"]
            hashes[self._place(self.receipt_path(number))] = digest(sealed(receipt))
            for kind, sha in receipt["files"].items():
                hashes[self._place(self.file(kind, number))] = sha
        for name, data in files.items():
            write_whole(self.path / name, data)
            hashes[name] = digest(data)
        write_whole(self.path / MANIFEST, sealed({**about, "files": hashes}))

    @property
    def finished(self) -> bool:
        """Whether the manifest exists."""
        return (self.path / MANIFEST).exists()

    def manifest(self) -> Manifest:
        """The manifest of a finished run, its own hash checked."""
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
        self._require_of_this_version(manifest["run"])
        return cast("Manifest", manifest)

    def read(self, name: str, manifest: Manifest) -> bytes:
        """A file of a finished run, compared with its hash in the manifest."""
        return read_checked(self.path / name, manifest["files"][name])

    def damage(self) -> list[str]:
        """Files of a finished run that are missing or do not have the hash in the manifest."""
        try:
            files = self.manifest()["files"]
        except BrokenInvariantError:
            return [MANIFEST]
        return [name for name, sha in files.items() if hash_of(self.path / name) != sha]

    def _place(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file, and make its folder where there is none."""
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        write_whole(path, data)

    def _require_of_this_version(self, card: dict[str, Any]) -> None:
        """Refuse a run of an earlier or later version, whose files mean other things."""
        if card["card"] != SCHEMA:
            writer = card["versions"]["exhibit_a"]
            raise BadRequestError(
                f"The run in {self.path} was written by exhibit-a {writer}, and this version does "
                "not read it. Run it again, into another folder."
            )

    def _made(self) -> list[Path]:
        """Make the folder, and name those that were not there before, the innermost first."""
        missing: list[Path] = []
        try:
            missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            _remove_empty(missing)
            raise BadRequestError(
                f"The folder {self.path} cannot be made: {problem.strerror}."
            ) from None
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
            # In a file of its own: some versions of filelock empty the lock file on opening it.
            holder = ""
            with contextlib.suppress(OSError):
                holder = (self.path / HOLDER).read_text("utf-8", "replace").strip()
            raise BadRequestError(
                f"{self.path} is being written by {holder or 'a process'}. Two runs cannot share a "
                "folder: wait for it, or give another folder."
            ) from None
        except OSError as problem:
            raise BadRequestError(
                f"The folder {self.path} cannot be written to: {problem.strerror}."
            ) from None
        return lock


def hash_of(path: Path) -> str | None:
    """The SHA-256 of a file, or None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def read_checked(path: Path, expected: str) -> bytes:
    """The bytes of a file that has this hash; one that is missing or damaged is named."""
    try:
        with path.open("rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise BrokenInvariantError(f"{path} is missing. Resume the run to make it again.") from None
    except OSError as problem:
        raise ExhibitError(f"{path} cannot be read: {problem.strerror}.") from problem
    if digest(data) != expected:
        raise BrokenInvariantError(
            f"{path} is damaged, it is not as it was written. Resume the run to repair it."
        )
    return data


def sealed(value: Mapping[str, object]) -> bytes:
    """JSON with the hash of itself."""
    return as_json({**value, "seal": digest(as_json(value))})


def read_sealed(path: Path) -> dict[str, Any] | None:
    """The value in a file of sealed JSON, or None where it is missing or damaged."""
    try:
        data = path.read_bytes()
        value: dict[str, Any] = json.loads(data)
        del value["seal"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return value if data == sealed(value) else None


def _remove_empty(folders: Iterable[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):  # one that holds something stays
            path.rmdir()
