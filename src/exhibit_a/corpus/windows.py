"""Which examples are worked on together?

The stream of examples is cut into windows of a fixed number of them. A window is the unit of work,
of loss (what a crash costs) and of output (one shard), and is known by its number and by a digest
of what it holds: a resumed run reads the data again and must find the same windows.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from exhibit_a.corpus.plan import as_json
from exhibit_a.examples import Example, Unusable


@dataclass(frozen=True)
class Window:
    """Examples in a row, the place of the first one, and the rows that were no use among them."""

    number: int
    start: int
    examples: tuple[Example, ...]
    unusable: tuple[Unusable, ...] = ()

    @property
    def digest(self) -> str:
        """A name for what the window holds."""
        return hashlib.sha256(self.packed()).hexdigest()

    def packed(self) -> bytes:
        """The window as bytes, for a worker elsewhere."""
        return as_json(asdict(self))

    @classmethod
    def unpacked(cls, told: dict[str, Any]) -> "Window":
        """The window that was packed."""
        examples = tuple(Example(**one) for one in told["examples"])
        unusable = tuple(Unusable(**one) for one in told["unusable"])
        return cls(told["number"], told["start"], examples, unusable)


def windows(stream: Iterable[Example | Unusable], size: int | None) -> Iterator[Window]:
    """The stream in windows of ``size`` examples, or all of it in one."""
    number = start = 0
    examples: list[Example] = []
    unusable: list[Unusable] = []
    for one in stream:
        if isinstance(one, Unusable):
            unusable.append(one)
            continue
        if len(examples) == size:
            yield Window(number, start, tuple(examples), tuple(unusable))
            number, start = number + 1, start + len(examples)
            examples, unusable = [], []
        examples.append(one)
    if examples or unusable:
        yield Window(number, start, tuple(examples), tuple(unusable))
