"""How is it known that a file of a run is as it was written?

Files of JSON carry a seal, a hash of their own content. Of every other file the hash stands in such
a sealed file: that of a shard's files in its receipt, that of all receipts and aggregates in the
manifest. The bytes of a file are hashed as they come into memory and only then decoded, so that
nothing is read twice and no number comes from a damaged file. They come in pieces, each of which is
hashed while the processor still has it at hand, into memory that nobody has cleared before.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xxhash

from exhibit_a.corpus.plan import as_json
from exhibit_a.errors import BrokenInvariantError, ExhibitError
from exhibit_a.results.plain import JSON

QUICK = "xxh3:"  # how the faster hash begins
PIECE = 2**18  # bytes that are read and hashed at a time: they fit into a processor's own cache


def digest(data: bytes) -> str:
    """The sha-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def quick_digest(data: bytes) -> str:
    """A faster hash, which finds every accident; against intent no hash beside the data helps."""
    return QUICK + xxhash.xxh3_128_hexdigest(data)


def hash_of(path: Path) -> str | None:
    """The sha-256 of a file, or None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def read_checked(path: Path, expected: str) -> memoryview:
    """The bytes of a file that has this hash, of either kind; a missing or damaged one is named."""
    try:
        data, digest = _hashed(path, xxhash.xxh3_128() if _quick(expected) else hashlib.sha256())
    except FileNotFoundError:
        raise BrokenInvariantError(f"{path} is missing. Resume the run to make it again.") from None
    except OSError as problem:
        raise ExhibitError(f"{path} cannot be read: {problem.strerror}.") from problem
    if digest != expected.removeprefix(QUICK):
        raise BrokenInvariantError(
            f"{path} is damaged, it is not as it was written. Resume the run to repair it."
        )
    return data


def _quick(digest: str) -> bool:
    return digest.startswith(QUICK)


def _hashed(path: Path, hashing: "xxhash.xxh3_128 | hashlib._Hash") -> tuple[memoryview, str]:
    """The bytes of a file, and their hash, taken piece by piece."""
    with path.open("rb", buffering=0) as file:
        data = np.empty(os.fstat(file.fileno()).st_size, np.uint8).data
        end = 0
        while count := file.readinto(data[end : end + PIECE]):
            hashing.update(data[end : end + count])
            end += count
    return data[:end], hashing.hexdigest()


def sealed(value: Mapping[str, object]) -> bytes:
    """JSON with a hash of itself."""
    return as_json({**value, "seal": digest(as_json(value))})


def unsealed(data: bytes) -> dict[str, JSON] | None:
    """The value in sealed bytes, or None where they are damaged."""
    try:
        value: dict[str, JSON] = json.loads(data)
        seal = value.pop("seal")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return None
    return value if digest(as_json(value)) == seal else None


def read_sealed(path: Path) -> dict[str, JSON] | None:
    """The value in a sealed file, or None where the file is missing or damaged."""
    try:
        return unsealed(path.read_bytes())
    except OSError:
        return None
