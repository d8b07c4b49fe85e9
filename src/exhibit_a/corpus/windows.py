"""Which examples are processed together?

The stream of examples is cut into windows of a fixed size. A window is the unit of work, of loss
(what a crash costs) and of output (one shard). It is identified by its number and by a digest of
its content: a resumed run reads the data again and must find the same windows.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import NotRequired, TypedDict

from exhibit_a.corpus.plan import as_json
from exhibit_a.examples import Example, Unusable


class PackedExample(TypedDict):
    """An example as JSON."""

    id: str
    text: str
    pair: str | None
    label: str | None
    answer: NotRequired[str]  # left out where there is none, as in runs before there were any


class PackedUnusable(TypedDict):
    """A row that cannot be used, as JSON."""

    where: str
    reason: str


class PackedWindow(TypedDict):
    """A window as JSON."""

    number: int
    start: int
    examples: list[PackedExample]
    unusable: list[PackedUnusable]


@dataclass(frozen=True)
class Window:
    """Consecutive examples, the place of the first one, and the unusable rows among them."""

    number: int
    start: int
    examples: tuple[Example, ...]
    unusable: tuple[Unusable, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the content."""
        return hashlib.sha256(self.packed()).hexdigest()

    def packed(self) -> bytes:
        """The window as bytes, for a worker in another process."""
        packed = asdict(self)
        for example in packed["examples"]:
            if example["answer"] is None:
                del example["answer"]
        return as_json(packed)

    @classmethod
    def unpacked(cls, packed: PackedWindow) -> "Window":
        """The window that was packed."""
        examples = tuple(Example(**fields) for fields in packed["examples"])
        unusable = tuple(Unusable(**fields) for fields in packed["unusable"])
        return cls(packed["number"], packed["start"], examples, unusable)


def windows(stream: Iterable[Example | Unusable], size: int | None) -> Iterator[Window]:
    """The stream in windows of ``size`` examples, or all of it in one."""
    number = start = 0
    examples: list[Example] = []
    unusable: list[Unusable] = []
    for entry in stream:
        if isinstance(entry, Unusable):
            unusable.append(entry)
            continue
        if len(examples) == size:
            yield Window(number, start, tuple(examples), tuple(unusable))
            number, start = number + 1, start + len(examples)
            examples, unusable = [], []
        examples.append(entry)
    if examples or unusable:
        yield Window(number, start, tuple(examples), tuple(unusable))
