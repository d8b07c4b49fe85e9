"""How do several processes share the work, and what happens if one of them is killed?

Each worker is a Python process with the model and one thread of torch. It reads windows from its
input and writes replies (``replies.py``) to its output, as frames of a length and bytes. It ends
when its input does, so no worker outlives a killed parent by more than one window. A worker that
dies is replaced and its window is sent again; a window on which workers die repeatedly is an error.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import IO

from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.replies import Reply, reply_of
from exhibit_a.corpus.windows import Window
from exhibit_a.corpus.work import Shard, Worker
from exhibit_a.errors import ExhibitError
from exhibit_a.subject.subject import Subject

PATIENCE = 3  # deaths that one window may cause
AHEAD = 2  # shards that may wait for the writer, for each worker


@dataclass(frozen=True)
class Processes:
    """The engine with a fixed number of worker processes."""

    workers: int
    device: str | None = None

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards in the order of completion; windows are read as workers become free."""
        del subject  # every worker loads its own
        shared = _Shared(todo, room=self.workers * (1 + AHEAD))
        threads = [_WorkerThread(card, self.device, shared) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        working = len(threads)
        try:
            while working:
                done = shared.done.get()
                if isinstance(done, BaseException):
                    raise done
                if done is None:
                    working -= 1
                else:
                    yield done
                    shared.room.release()
        finally:
            shared.stopped.set()
            shared.room.release(len(threads))  # so that no thread keeps waiting
            for thread in threads:
                thread.stop()


class _Shared:
    """The windows that all threads take from, and the shards that they return.

    No window is taken without room for its shard, so that a slow writer does not fill the memory.
    """

    def __init__(self, todo: Iterable[Window], room: int) -> None:
        self.todo = iter(todo)
        self.room = threading.Semaphore(room)
        self.reading = threading.Lock()
        self.stopped = threading.Event()
        self.done: queue.Queue[Shard | BaseException | None] = queue.Queue()

    def next(self) -> Window | None:
        """The next window, once there is room for its shard and it is read."""
        self.room.acquire()
        with self.reading:
            return None if self.stopped.is_set() else next(self.todo, None)


class _WorkerThread(threading.Thread):
    """Keeps one worker process busy."""

    def __init__(self, card: Card, device: str | None, shared: _Shared) -> None:
        super().__init__(daemon=True)
        self.card, self.device, self.shared = card, device, shared
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Hand out windows until there are none."""
        try:
            while (window := self.shared.next()) is not None:
                self.shared.done.put(self._shard(window))
            self.shared.done.put(None)
        except BaseException as problem:  # raised again where the queue is read
            self.shared.done.put(problem)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the worker process."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _shard(self, window: Window) -> Shard:
        for _ in range(PATIENCE):
            try:
                process = self.process = self.process or _start(self.card, self.device)
                assert process.stdin is not None
                assert process.stdout is not None
                _send(process.stdin, window.packed())
                return Reply(_receive(process.stdout), _receive(process.stdout)).opened()
            except (EOFError, BrokenPipeError, ValueError):
                if self.shared.stopped.is_set():
                    raise
                self.stop()
        raise ExhibitError(
            f"A worker process died {PATIENCE} times on shard {window.number} (out of memory, or "
            "killed from outside). What is done is kept: resume, perhaps with fewer workers or a "
            "smaller number of tokens in a batch."
        )


def _start(card: Card, device: str | None) -> "subprocess.Popen[bytes]":
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [sys.executable, "-m", "exhibit_a.corpus.processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | threads | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C is for the parent, which stops the workers itself
    )
    assert process.stdin is not None
    _send(process.stdin, card.model_dump_json().encode(), (device or "").encode())
    return process


def _send(pipe: IO[bytes], *messages: bytes) -> None:
    for message in messages:
        pipe.write(len(message).to_bytes(8, "little"))
        pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    size = int.from_bytes(_exactly(pipe, 8), "little")
    return _exactly(pipe, size)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main() -> None:
    """Run a worker: read a card and then windows, and write replies, until the input ends."""
    # The model's libraries may print, so the real output is reserved for replies.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        card = Card.model_validate_json(_receive(sys.stdin.buffer))
        device = _receive(sys.stdin.buffer).decode() or None
        worker = cache(lambda: Worker(card, device=device))
        while True:
            window = Window.unpacked(json.loads(_receive(sys.stdin.buffer)))
            _send(replies, *reply_of(worker, window))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone or has no more work


if __name__ == "__main__":
    main()
