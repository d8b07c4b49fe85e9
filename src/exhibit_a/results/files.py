"""Writes files and folders that are complete or absent: under another name first, then renamed.

Where it is cheap, a path that cannot be written is refused before the work starts; in any case the
error is one line.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from exhibit_a.errors import BadRequestError, ExhibitError, first_line
from exhibit_a.interrupts import raise_if_interrupted, undone


def write_whole(path: str | PathLike[str], *parts: bytes | memoryview) -> Path:
    """Write a file that is either complete or absent: under a temporary name first, then renamed.

    >>> write_whole(tmp_path / "note.txt", b"attention, ", b"please").read_text()
    'attention, please'
    >>> write_whole(tmp_path / "nowhere" / "note.txt", b"")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: ...note.txt cannot be written: there is no folder ...nowhere.
    """
    path = Path(path)
    temporary = path.parent / f".exhibit-a-{secrets.token_hex(8)}.tmp"

    def remove() -> None:
        with contextlib.suppress(OSError):
            temporary.unlink()

    raise_if_interrupted()
    with undone(remove):
        try:
            require_place(path)
            with temporary.open("xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise ExhibitError(f"{path} cannot be written: {reason}.") from problem
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line why something cannot be written, whichever library writes it.

    >>> with writing(tmp_path / "weights"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    exhibit_a.errors.ExhibitError: ...weights cannot be written: No space left on device.
    >>> with writing(tmp_path / "weights"):
    ...     raise Exception("os error 5")
    Traceback (most recent call last):
    exhibit_a.errors.ExhibitError: ...weights cannot be written: os error 5.
    """
    try:
        yield
    except ExhibitError:
        raise
    except Exception as problem:  # writers in Rust (safetensors, tokenizers) have their own errors
        reason = getattr(problem, "strerror", None) or first_line(problem)
        raise ExhibitError(f"{path} cannot be written: {reason.rstrip('.')}.") from problem


def require_place(path: Path) -> None:
    """Refuse a path at which no file can be written; cheap enough to check before the work."""
    try:
        folder, taken = path.parent.is_dir(), path.exists() and not path.is_file()
    except (OSError, ValueError) as problem:  # too long, or with a zero byte in it
        reason = getattr(problem, "strerror", None) or problem
        raise BadRequestError(f"{str(path)[:60]}… cannot be written: {reason}.") from problem
    if not folder:
        raise BadRequestError(f"{path} cannot be written: there is no folder {path.parent}.")
    if taken:
        raise BadRequestError(f"{path} cannot be written: what has that name is not a file.")
    if not os.access(path.parent, os.W_OK):
        raise BadRequestError(f"{path} cannot be written: {path.parent} may not be written to.")


def free_folder(path: Path) -> Path:
    """The same path, if there is no file and no folder with content at it."""
    if path == Path():  # also what an empty name becomes
        raise BadRequestError("The current folder cannot be replaced. Name a new one.")
    with _makeable(path):
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    if taken:
        raise BadRequestError(f'"{path}" already exists. Name a new folder, or remove this one.')
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise BadRequestError(
            f'The folder "{path}" cannot be made: nothing can be made in {above}. Name another one.'
        )
    return path


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder next to the target that is renamed to it at the end, or removed after an error.

    Its name is unique, because two runs with the same target may be under way for hours. Its files
    are on the disk before it gets its name.
    """
    with _makeable(target):
        place = target.resolve()  # where a link points: a folder cannot replace a link
        folder = place.with_name(f".{place.name}-{secrets.token_hex(8)}.partial")
        new = [parent for parent in place.parents if not parent.exists()]

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # those that hold something stay
            for parent in new:
                parent.rmdir()

    with undone(remove):
        with _makeable(target):
            folder.mkdir(parents=True)
        yield folder
        with _makeable(target):
            for path in filter(Path.is_file, folder.rglob("*")):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            folder.rename(place)


@contextlib.contextmanager
def _makeable(folder: Path) -> Iterator[None]:
    """Say in one line why a folder cannot be made."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as problem:  # the last one for circular links
        reason = getattr(problem, "strerror", None) or problem
        raise BadRequestError(
            f'The folder "{folder}" cannot be made: {reason}. Name another one.'
        ) from problem
