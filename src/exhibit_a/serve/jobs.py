"""The queue in which many clients share one model.

One computation at a time, first come, first served, a bounded number waiting. Every client gets a
stream of messages: how many are ahead, which stage is running, how it ended. A client that
disconnects gives up its place; a running computation stops when its next stage would begin. The
last few results are kept in memory, under names that cannot be guessed. When the server is stopped,
every client is informed, and a computation under way is given up: the command's end does not
wait for the worker (``interrupts.leave``).
"""

import asyncio
import contextlib
import json
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from exhibit_a.errors import ExhibitError
from exhibit_a.report.view import View, view
from exhibit_a.subject.subject import Subject
from exhibit_a.trials.trial import trial

log = logging.getLogger(__name__)

POLL = 0.25  # seconds between two looks at how many are ahead

Message = dict[str, str | int]


@dataclass(eq=False)
class Job:
    """One text that waits for the model or is examined by it."""

    subject: Subject
    text: str
    pair: str | None
    messages: "asyncio.Queue[Message | None]" = field(default_factory=asyncio.Queue)
    future: "Future[None] | None" = None  # its place with the worker
    is_abandoned: bool = False  # the client has disconnected


class _AbandonedError(Exception):
    """Ends a computation whose client has disconnected."""


class JobQueue:
    """The jobs that wait for the one worker, and the last results."""

    def __init__(self, waiting: int, kept: int) -> None:
        self.jobs: list[Job] = []  # the first one is running
        self.results: OrderedDict[str, View] = OrderedDict()
        self._waiting, self._kept = waiting, kept
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="exhibit-a")

    def accept(self, job: Job) -> bool:
        """Give a job a place, if one is free; nothing else runs between the test and the taking."""
        if len(self.jobs) >= self._waiting:
            return False
        loop = asyncio.get_running_loop()
        job.future = self._worker.submit(self._examine, job, loop)
        job.future.add_done_callback(lambda _: self._finish_soon(job, loop))
        self.jobs.append(job)
        return True

    def abandon(self, job: Job) -> None:
        """Give up the place of a job whose client has left or was answered."""
        job.is_abandoned = True
        if job.future is not None and job.future.cancel():
            self._finish(job)

    def close(self) -> None:
        """Tell every client that the server is stopped, and give up every job."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        for job in self.jobs:
            job.is_abandoned = True
            job.messages.put_nowait({"state": "failed", "error": "The server was stopped."})
            job.messages.put_nowait(None)

    async def stream(self, job: Job) -> AsyncIterator[str]:
        """The messages of an accepted job, as lines of JSON, until it has ended."""
        ahead = -1
        while True:
            if job in self.jobs and job.messages.empty() and ahead != (now := self.jobs.index(job)):
                ahead = now
                yield _line({"state": "waiting", "ahead": ahead})
            with contextlib.suppress(TimeoutError):
                message = await asyncio.wait_for(job.messages.get(), POLL)
                if message is None:
                    return
                ahead = 0  # it is being worked on, and does not wait any more
                yield _line(message)

    def _finish_soon(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # the loop has ended, and no client waits for the job
            loop.call_soon_threadsafe(self._finish, job)

    def _finish(self, job: Job) -> None:
        if job in self.jobs:
            self.jobs.remove(job)
        job.messages.put_nowait(None)

    def _examine(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """Examine a text, in the one worker thread."""

        def send(message: Message) -> None:
            if not job.is_abandoned:  # where it is, the loop may have ended
                loop.call_soon_threadsafe(job.messages.put_nowait, message)

        def progress(stage: str, step: int, steps: int) -> None:
            if job.is_abandoned:
                raise _AbandonedError
            send({"state": "working", "stage": stage, "step": step, "steps": steps})

        try:
            result = view(trial(job.subject, job.text, pair=job.pair, progress=progress))
            if job.is_abandoned:
                raise _AbandonedError
            name = secrets.token_hex(16)
            loop.call_soon_threadsafe(self._keep, name, result)
            send({"state": "done", "id": name})
        except _AbandonedError:
            log.info("a client has disconnected; its computation was stopped")
        except ExhibitError as problem:
            send({"state": "failed", "error": " ".join(str(problem).split())})
        except Exception:
            log.exception("an examination failed")
            send({"state": "failed", "error": "It failed; the server's log says why."})

    def _keep(self, name: str, result: View) -> None:
        self.results[name] = result
        while len(self.results) > self._kept:
            self.results.popitem(last=False)


def _line(message: Message) -> str:
    return json.dumps(message) + "\n"
