"""How do several processes share the work, and what if one of them is killed?

Each worker is a Python process with the model and one thread of torch. It reads windows from its
input and answers with shards on its output, as frames of a length and bytes: JSON first, then the
files. It ends when its input does, so none outlives a killed parent by more than one window. A
worker that dies is replaced and its window asked again; one that dies again and again is an error.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.windows import Window
from exhibit_a.corpus.work import Shard, Worker
from exhibit_a.errors import BadRequestError, ExhibitError
from exhibit_a.subject.subject import Subject

PATIENCE = 3  # deaths that one window may cause
AHEAD = 2  # shards that may wait for the writer, for each worker


@dataclass(frozen=True)
class Processes:
    """So many workers beside this process."""

    workers: int
    device: str | None = None

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards as they are done; windows are read as workers become free."""
        del subject  # every worker loads its own
        shared = _Shared(todo, room=self.workers * (1 + AHEAD))
        crew = [_WorkerThread(card, self.device, shared) for _ in range(self.workers)]
        for hand in crew:
            hand.start()
        working = len(crew)
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
            shared.room.release(len(crew))  # nobody waits for room any more
            for hand in crew:
                hand.stop()


class _Shared:
    """The windows that all hands take from, and the shards they bring.

    No window is taken without room for its shard, so that a slow writer does not fill the memory.
    """

    def __init__(self, todo: Iterable[Window], room: int) -> None:
        self.todo = iter(todo)
        self.room = threading.Semaphore(room)
        self.reading = threading.Lock()
        self.stopped = threading.Event()
        self.done: queue.Queue[Shard | BaseException | None] = queue.Queue()

    def next(self) -> Window | None:
        """The next window; whoever asks waits until there is room and it is read."""
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
        except BaseException as problem:  # told to whoever reads the queue
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
                process = self.process = self.process or _begin(self.card, self.device)
                assert process.stdin is not None
                assert process.stdout is not None
                _send(process.stdin, window.packed())
                return _received(process.stdout)
            except (EOFError, BrokenPipeError, ValueError):
                if self.shared.stopped.is_set():
                    raise
                self.stop()
        raise ExhibitError(
            f"A worker process died {PATIENCE} times on shard {window.number} (out of memory, or "
            "killed from outside). What is done is kept: resume, perhaps with fewer workers or a "
            "smaller number of tokens in a batch."
        )


def _begin(card: Card, device: str | None) -> "subprocess.Popen[bytes]":
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [sys.executable, "-m", "exhibit_a.corpus.processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | alone | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # Ctrl-C is for the parent, which stops the workers itself
    )
    assert process.stdin is not None
    _send(process.stdin, card.model_dump_json().encode(), (device or "").encode())
    return process


def _send(pipe: IO[bytes], *parts: bytes) -> None:
    for part in parts:
        pipe.write(len(part).to_bytes(8, "little"))
        pipe.write(part)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    size = int.from_bytes(_exactly(pipe, 8), "little")
    return _exactly(pipe, size)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _received(pipe: IO[bytes]) -> Shard:
    told: dict[str, Any] = json.loads(_receive(pipe))
    if "error" in told:
        raise (BadRequestError if told["kind"] == "BadRequestError" else ExhibitError)(
            told["error"]
        )
    return Shard(told["receipt"], {kind: _receive(pipe) for kind in told["files"]})


def main() -> None:
    """Be a worker: a card, then windows, until the input ends."""
    # The model's libraries may print; the real output is kept for shards alone.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    worker: Worker | None = None
    try:
        card = Card.model_validate_json(_receive(sys.stdin.buffer))
        device = _receive(sys.stdin.buffer).decode() or None
        while True:
            window = Window.unpacked(json.loads(_receive(sys.stdin.buffer)))
            try:
                worker = worker or Worker(card, device=device)
                shard = worker(window)
            except ExhibitError as problem:
                told = {"error": str(problem), "kind": type(problem).__name__}
                _send(answers, json.dumps(told).encode())
                continue
            head = {"receipt": shard.receipt, "files": list(shard.files)}
            _send(answers, json.dumps(head).encode(), *shard.files.values())
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone or has no more work


if __name__ == "__main__":
    main()
