"""What is left if the k-th write, fsync, rename, open or mkdir fails? Every k can be tried.

``failing`` counts the calls that change something below a folder and lets one of them fail as a
disk would: a write that fails has written half. ``sweep`` does so for every k (or for a seeded
sample), and compares what is left with the files before and after.

The writers of safetensors and tokenizers are in Rust and call no function of Python: the former
fail here in the function that calls them, and a limit on the size of files (``limited``) makes both
fail in earnest.
"""

import builtins
import errno
import io
import os
import random
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import safetensors.torch
from safetensors import SafetensorError

from exhibit_a.errors import ExhibitError
from support.corpora import contents

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class Calls:
    """The calls so far; the one with the number ``at`` fails."""

    root: Path
    at: int | None = None
    number: int = errno.ENOSPC
    seen: list[str] = field(default_factory=list)

    def due(self, kind: str) -> bool:
        self.seen.append(kind)
        return len(self.seen) - 1 == self.at

    def below(self, path: object) -> bool:
        if not isinstance(path, str | os.PathLike):
            return False
        return str(Path(path).absolute()).startswith(f"{self.root}{os.sep}")

    def problem(self, path: object) -> OSError:
        return OSError(self.number, os.strerror(self.number), str(path))


class _File:
    """A file that counts what is written to it."""

    def __init__(self, file, calls: Calls, path: object) -> None:
        self._file, self._calls, self._path = file, calls, path

    def write(self, data):
        if self._calls.due("write"):
            self._file.write(data[: len(data) // 2])
            raise self._calls.problem(self._path)
        return self._file.write(data)

    def writelines(self, parts):
        for part in parts:
            self.write(part)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *problem):
        return self._file.__exit__(*problem)


@contextmanager
def failing(root: Path, at: int | None = None, number: int = errno.ENOSPC) -> Iterator[Calls]:
    """Count the calls below a folder, and let one of them fail."""
    calls, real_open, real_serialize = Calls(root, at, number), io.open, safetensors.serialize_file

    def opened(path, mode="r", *args, **options):
        if not calls.below(path) or not set("wax+") & set(mode):
            return real_open(path, mode, *args, **options)
        if calls.due("open"):
            raise calls.problem(path)
        return _File(real_open(path, mode, *args, **options), calls, path)

    def counted(module, name, kind, *, counts=lambda *_: True):
        real = getattr(module, name)

        def call(first, *rest, **options):
            on_disk = isinstance(first, int) or calls.below(first)
            if on_disk and counts(first, *rest) and calls.due(kind):
                raise calls.problem(first)
            return real(first, *rest, **options)

        return patch.object(module, name, call)

    def serialized(tensors, path, *args, **options):
        if calls.below(path) and calls.due("write"):
            real_serialize(tensors, path, *args, **options)
            os.truncate(path, Path(path).stat().st_size // 2)
            reason = f"{os.strerror(number)} (os error {number})"
            raise SafetensorError(f"Error while serializing: I/O error: {reason}")
        return real_serialize(tensors, path, *args, **options)

    with ExitStack() as patches:
        patches.enter_context(patch.object(io, "open", opened))
        patches.enter_context(patch.object(builtins, "open", opened))
        patches.enter_context(patch.object(safetensors.torch, "serialize_file", serialized))
        to_write = {"counts": lambda _, flags=0, *rest: flags & WRITING}
        patches.enter_context(counted(os, "open", "open", **to_write))
        for name, kind in {"fsync": "fsync", "replace": "rename", "rename": "rename"}.items():
            patches.enter_context(counted(os, name, kind))
        patches.enter_context(counted(os, "mkdir", "mkdir"))
        yield calls


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file can become larger than so many bytes, whoever writes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@dataclass(frozen=True)
class Scenario:
    """Something that writes: how it starts, what it does, and how one goes on after a failure."""

    name: str
    act: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    again: Callable[[Path], object] | None = None  # without: the same once more
    spare: str = "spare"  # a folder in which a complete copy may appear
    passing: str = "passing"  # a folder that is gone at the end; its files are checked when read


def points(scenario: Scenario, folder: Path) -> list[str]:
    """The calls of a scenario that nothing disturbs: as many faults can be injected."""
    return _undisturbed(scenario, folder).seen


def _undisturbed(scenario: Scenario, folder: Path) -> Calls:
    _emptied(folder)
    scenario.prepare(folder)
    with failing(folder) as calls:
        scenario.act(folder)
    return calls


def sweep(
    scenario: Scenario,
    folder: Path,
    *,
    seed: int = 0,
    count: int | None = None,
    errors: Literal["each", "in turn"] = "each",
) -> Counter[str]:
    """Inject every fault, or ``count`` of them; how often each outcome came.

    Each call fails with each error, or with one of them in turn.

    *refused*: an error in one line, and only whole files; *done all the same*: the call was not
    needed. Anything else is an AssertionError.
    """
    _emptied(folder)
    scenario.prepare(folder)
    old = contents(folder)
    calls = _undisturbed(scenario, folder)
    number_of_calls = len(calls.seen)
    whole = _Whole(old, contents(folder), scenario)
    faults = [(at, number) for at in range(number_of_calls) for number in ERRORS]
    if errors == "in turn":
        faults = [(at, ERRORS[at % len(ERRORS)]) for at in range(number_of_calls)]
    if count is not None and count < len(faults):
        faults = random.Random(seed).sample(faults, count)
    outcomes: Counter[str] = Counter()
    for at, number in faults:
        outcomes[_outcome(scenario, folder, whole, at, number)] += 1
    return outcomes


@dataclass(frozen=True)
class _Whole:
    """The files that may be left: old ones, new ones, and those that come and go."""

    old: dict[str, bytes]
    new: dict[str, bytes]
    scenario: Scenario

    def require(self, left: dict[str, bytes], place: str) -> None:
        for name, data in left.items():
            known = data in (self.old.get(name), self.new.get(name))
            apart = (f"{self.scenario.spare}/", f"{self.scenario.passing}/")
            if not name.startswith(apart):
                assert known, f"{place}: {name} is neither old nor new"
        lost = [name for name in self.old if name not in left]
        lost = [name for name in lost if not name.startswith(f"{self.scenario.passing}/")]
        assert not lost, f"{place}: {lost} are gone"


def _outcome(scenario: Scenario, folder: Path, whole: _Whole, at: int, number: int) -> str:
    _emptied(folder)
    scenario.prepare(folder)
    place = f"{scenario.name}, call {at}, {errno.errorcode[number]}"
    error = None
    with failing(folder, at, number) as calls:
        try:
            scenario.act(folder)
        except ExhibitError as problem:
            error = problem
    assert calls.seen[at:], f"{place}: the call never came"
    left = contents(folder)
    if error is None:
        assert left == whole.new, f"{place}: no error, and yet not complete"
        return "done all the same"
    place += f" ({calls.seen[at]}): {error}"
    assert "\n" not in str(error), place
    whole.require(left, place)
    shutil.rmtree(folder / scenario.spare, ignore_errors=True)
    (scenario.again or scenario.act)(folder)
    assert contents(folder) == whole.new, f"{place}: going on does not give the same bytes"
    return "refused"


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
