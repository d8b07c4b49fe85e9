"""Which engine turns windows into shards: this process, other processes, or Ray?

An engine takes the card of a run and an iterator of windows, reads a window only when a worker is
free, and returns each window's shard once, in any order. Engines write nothing: the caller does.
The content of a shard depends on the card and the window alone, so all engines give the same bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.windows import Window
from exhibit_a.corpus.work import Shard, Worker
from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.subject.subject import Subject

ENGINES = ("local", "ray")


@runtime_checkable
class Engine(Protocol):
    """Turns windows into shards."""

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shard of every window, each once, in any order."""


@dataclass(frozen=True)
class InProcess:
    """One window after the other, in this process."""

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards in the order of the windows."""
        worker = Worker(card, subject)
        return (worker(window) for window in todo)


def engine_named(
    name: str, workers: int = 0, address: str | None = None, device: str | None = None
) -> Engine:
    """The engine with this name: ``local`` with so many worker processes, or ``ray``.

    ``device`` is where workers put their model.
    """
    require_choice("engine", name, ENGINES)
    if workers < 0:
        raise BadRequestError(f"{workers} workers were asked for; 0 works in this process.")
    if name == "ray":
        from exhibit_a.corpus.ray_engine import RayEngine, check_reachable

        check_reachable(address)
        return RayEngine(workers or None, address, device)
    if address is not None:
        raise BadRequestError(
            "An address is for the ray engine; the local one runs on this machine."
        )
    if workers == 0 and device is not None:
        raise BadRequestError(
            f"The device {device!r} is for workers, and there are none: this process works with "
            "the model where it is. Ask for at least 1 worker, or load the model there."
        )
    if workers == 0:
        return InProcess()
    from exhibit_a.corpus.processes import Processes

    return Processes(workers, device)
