"""Engines turn windows into shards: this process, a pool of worker processes, or Ray.

An engine takes the card of a run and an iterator of windows, reads a window only when there is room
for its shard, and returns each window's shard once, in any order. Engines write nothing: the caller
does. The content of a shard depends on the card and the window alone, so all engines give the same
bytes.

A worker process that is killed ends the run with one line; what is done is kept, and ``resume``
goes on. Workers end with the process that started them, also when that is killed.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Protocol, runtime_checkable

from exhibit_a.corpus.plan import Card, Window
from exhibit_a.corpus.work import Shard, Worker, prepare_process
from exhibit_a.errors import BadRequestError, ExhibitError, require_choice
from exhibit_a.subject.subject import Subject

ENGINES = ("local", "ray")
AHEAD = 3  # windows of each worker that may be in work or wait for the writer


@runtime_checkable
class Engine(Protocol):
    """Turns windows into shards."""

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shard of every window, each once, in any order."""


def engine_named(
    name: str, workers: int = 0, address: str | None = None, device: str | None = None
) -> Engine:
    """The engine with this name: ``local`` with ``workers`` processes, or ``ray``.

    ``device`` is where workers put their model.
    """
    require_choice("engine", name, ENGINES)
    if workers < 0:
        raise BadRequestError(f"{workers} workers were requested; 0 works in this process.")
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
    return Processes(workers, device) if workers else InProcess()


@dataclass(frozen=True)
class InProcess:
    """One window after the other, in this process."""

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards in the order of the windows."""
        worker = Worker(card, subject)
        return (worker(window) for window in todo)


@dataclass(frozen=True)
class Processes:
    """A pool of worker processes, each with a model of its own and one thread of torch."""

    workers: int
    device: str | None = None

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards in the order of completion; windows are read as there is room for them."""
        del subject  # every worker loads its own
        windows, submitted = iter(todo), set[Future[Shard]]()
        context = get_context("spawn")
        ended, end = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            self.workers, context, _prepare, (card.model_dump_json(), self.device, ended)
        )
        try:
            while True:
                for window in islice(windows, AHEAD * self.workers - len(submitted)):
                    with _starting():
                        submitted.add(pool.submit(_shard, window))
                if not submitted:
                    return
                done, submitted = wait(submitted, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenProcessPool:
            raise ExhibitError(
                "A worker process died (out of memory, or killed from outside). What is done is "
                "kept: resume, perhaps with fewer workers or a smaller number of tokens in a batch."
            ) from None
        finally:
            end.close()  # ends workers in the middle of a window
            pool.shutdown(cancel_futures=True)
            ended.close()


@contextmanager
def _starting() -> Iterator[None]:
    """Start worker processes that neither run the caller's script again nor react to Ctrl-C.

    A process that is spawned imports the main module of the one that spawns it, which is a user's
    script; and Ctrl-C reaches every process of a terminal, but only the caller handles it.
    """
    main = sys.modules["__main__"]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # is inherited
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _prepare(card: str, device: str | None, ended: Connection) -> None:
    """Make a process a worker. Its model is loaded with the first window, whose error is ours."""

    def end_with_the_parent() -> None:
        ended.poll(None)  # until the other end is closed, by the parent or by its death
        os._exit(0)

    threading.Thread(target=end_with_the_parent, daemon=True).start()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the model's libraries may print
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    prepare_process()
    _settings[:] = [card, device]


_settings: list[str | None] = []  # of this worker process: its card and its device


@cache
def _worker() -> Worker:
    card, device = _settings
    assert card is not None
    return Worker(Card.model_validate_json(card), device=device)


def _shard(window: Window) -> Shard:
    return _worker()(window)
