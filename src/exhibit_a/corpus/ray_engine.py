"""Many machines share the work: Ray Data maps windows over a pool of actors.

Each actor holds the model. The shards come back to this process, the only one that writes, so the
machines need no common disk: only the model must be loadable by its name on each. Windows are given
to Ray in waves, so that neither a long data set nor its shards are ever in memory as a whole.
Checkpoints are the shards themselves: a window whose shard was committed is not sent again.

Ray reserves CPUs and GPUs, and a request for more than the cluster has waits for ever. So the claim
is computed before it is made: one CPU stays free for Ray's own tasks, every actor on a GPU gets a
whole one, and a pool that does not fit is refused. If no shard arrives all the same, the wait ends
with an error that says what the cluster has.
"""

import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from exhibit_a.corpus.plan import Card, Window
from exhibit_a.corpus.work import Shard, Worker, prepare_process
from exhibit_a.errors import BadRequestError, ExhibitError, first_line, kind_of, of_kind
from exhibit_a.extras import extra
from exhibit_a.subject.subject import Subject

Library = Any  # ray itself, which is imported when it is used, or a part of it

WAVE = 128  # windows that are given to Ray at once
PATIENCE = 900.0  # seconds without any shard after which the run ends with an error
LAST_ROW_TIMEOUT = 20.0  # seconds in which one more row is waited for when a run ends early
FILLING = "exhibit-a rows of Ray"  # the thread that waits for them
CONNECT_TIMEOUT = 5.0  # seconds in which a cluster must accept a connection; Ray tries for minutes

Row = dict[str, bytes]  # of a Ray data set: the head and the files of a reply
Arrived = queue.Queue[Row | BaseException | None]


@dataclass(frozen=True)
class Claim:
    """How many actors there are, and what each claims of the cluster."""

    actors: int
    cpus: float
    gpus: int


@dataclass(frozen=True)
class RayEngine:
    """A pool of actors on this machine, or on the cluster at ``address``."""

    workers: int | None = None
    address: str | None = None
    device: str | None = None
    patience: float = PATIENCE

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards in the order of completion."""
        del subject  # every actor loads its own
        windows = iter(todo)
        wave = list(islice(windows, WAVE))
        if not wave:
            return
        with _connected(self.address) as ray:
            while wave:
                yield from self._wave(ray, card, wave)
                wave = list(islice(windows, WAVE))

    def _wave(self, ray: Library, card: Card, wave: list[Window]) -> Iterator[Shard]:
        items = [{"window": window.packed()} for window in wave]
        cpus, gpus = _total(ray, "CPU"), _total(ray, "GPU")
        claim = claim_of(cpus, gpus, workers=self.workers, device=self.device)
        pool = min(claim.actors, len(wave))
        data = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            Actor,
            fn_constructor_args=(card.model_dump_json(), self.device),
            batch_size=1,
            batch_format="numpy",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(size=pool),
            num_cpus=claim.cpus,
            num_gpus=claim.gpus or None,
        )
        missing = {window.number for window in wave}
        with _arriving(data, 2 * pool) as arrived:
            while (row := self._next(ray, arrived, claim)) is not None:
                shard = ActorReply(bytes(row["head"]), bytes(row["files"])).opened()
                if shard.number in missing:  # a retried task may answer twice
                    missing.remove(shard.number)
                    yield shard
        if missing:
            raise ExhibitError(
                f"Ray ended without shards {sorted(missing)[:5]}. What is done is kept: resume."
            )

    def _next(self, ray: Library, arrived: Arrived, claim: Claim) -> Row | None:
        try:
            row = arrived.get(timeout=self.patience)
        except queue.Empty:
            free = float(ray.available_resources().get("CPU", 0))
            raise ExhibitError(
                f"Ray gave nothing for {self.patience:.0f} s. {claim.actors} actors of "
                f"{claim.cpus:.2g} CPU and {claim.gpus} GPU were requested of a cluster with "
                f"{_total(ray, 'CPU'):.0f} CPUs ({free:.2g} free) and "
                f"{_total(ray, 'GPU'):.0f} GPUs. Ask for fewer workers or add machines. What is "
                "done is kept: resume."
            ) from None
        if isinstance(row, BaseException):
            cause = getattr(row, "cause", None) or row  # of which Ray's last line is the reason
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[-1]
            raise ExhibitError(
                f"Ray could not go on: {reason}. What is done is kept: resume."
            ) from row
        return row


def check_reachable(address: str | None) -> None:
    """Refuse at once an address that cannot be used or that does not accept a connection."""
    if address is None or address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise BadRequestError(
            f"{address!r} is no address that can be used; give auto or host:port, on a machine of "
            "the cluster."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except OSError as problem:
        reason = problem.strerror or str(problem) or "no answer"
        raise BadRequestError(f"There is no Ray cluster at {address!r}: {reason}.") from None


class Actor:
    """A worker in Ray's pool: loads the model once and replies to windows."""

    def __init__(self, card: str, device: str | None) -> None:
        prepare_process()
        # Ray shows an actor only the GPU it has claimed, so there is no number to choose.
        where = "cuda" if on_gpu(device) else device
        # Loaded with the first window: Ray would restart an actor whose constructor fails.
        self.worker = cache(lambda: Worker(Card.model_validate_json(card), device=where))

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """The reply to a batch of one window."""
        reply = reply_of(self.worker, Window.unpacked(bytes(batch["window"][0])))
        return {"head": [reply.head], "files": [reply.files]}


class ActorReply(NamedTuple):
    """What an actor answers to a window, as the bytes that a row of Ray can hold.

    The head, in JSON, has the receipt and the sizes of the files, which follow one another; or the
    kind and the message of an error, which is raised again where the reply is opened.
    """

    head: bytes
    files: bytes

    def opened(self) -> Shard:
        """The shard; where the worker failed, its error is raised here."""
        head = json.loads(self.head)
        if "error" in head:
            raise of_kind(head["kind"], head["error"])
        files, start = {}, 0
        for kind, size in head["sizes"].items():
            files[kind] = self.files[start : start + size]
            start += size
        return Shard(head["receipt"], files)


def reply_of(worker: Callable[[], Worker], window: Window) -> ActorReply:
    """The reply to a window: its shard, or the error of the worker or of loading its model."""
    try:
        shard = worker()(window)
    except ExhibitError as problem:
        failure = {"kind": kind_of(problem), "error": str(problem)}
        return ActorReply(json.dumps(failure).encode(), b"")
    sizes = {kind: len(data) for kind, data in shard.files.items()}
    head = json.dumps({"receipt": shard.receipt, "sizes": sizes})
    return ActorReply(head.encode(), b"".join(shard.files.values()))


@contextmanager
def _arriving(data: Library, at_once: int) -> Iterator[Arrived]:
    """The rows of a data set as they arrive, until the block ends.

    Then nothing is requested of Ray any more. A request after Ray has been shut down would start it
    again, and Ray ends the whole process when that cluster is gone.
    """
    arrived: Arrived = queue.Queue(maxsize=at_once)
    ended = threading.Event()
    filling = threading.Thread(target=_fill, args=(data, arrived, ended), name=FILLING, daemon=True)
    filling.start()
    try:
        yield arrived
    finally:
        ended.set()
        deadline = time.monotonic() + LAST_ROW_TIMEOUT
        while filling.is_alive() and time.monotonic() < deadline:
            with suppress(queue.Empty):
                arrived.get(timeout=0.05)  # else it would wait for room


def _fill(data: Library, arrived: Arrived, ended: threading.Event) -> None:
    """Put every row into the queue and then None, or the exception that ended the rows."""
    try:
        for row in data.iter_rows():
            arrived.put(row)
            if ended.is_set():
                return
        arrived.put(None)
    except BaseException as problem:  # raised again where the queue is read
        arrived.put(problem)


@contextmanager
def _connected(address: str | None) -> Iterator[Library]:
    """Ray, connected to a cluster or to a local one that ends with the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else actors yield to all other programs
    ray = extra("ray")
    extra("ray.data")
    connected_before = ray.is_initialized()
    if not connected_before:
        try:
            ray.init(
                address=address or "local",  # never a cluster that merely happens to be there
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (ConnectionError, ValueError, RuntimeError) as problem:
            reason = first_line(problem)
            raise BadRequestError(f"There is no Ray cluster at {address!r}: {reason}") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logger, level = logging.getLogger("ray.data"), logging.getLogger("ray.data").level
    logger.setLevel(logging.ERROR)  # it reports every plan and its end
    try:
        yield ray
    finally:
        logger.setLevel(level)
        if not connected_before:
            ray.shutdown()


def _total(ray: Library, kind: str) -> float:
    return float(ray.cluster_resources().get(kind, 0))


def claim_of(cpus: float, gpus: float, *, workers: int | None, device: str | None) -> Claim:
    """What a pool may claim so that the cluster can still run: never all of it, never too much.

    Without a number of workers there is one for every CPU but one, or one for every GPU.
    """
    if cpus <= 0:
        raise BadRequestError("The Ray cluster has no CPU. Add a machine that has.")
    if not on_gpu(device):
        actors = workers or max(1, int(cpus) - 1)
        return Claim(actors, share_of_cpu(cpus, actors), 0)
    actors = workers or int(gpus)
    if gpus < 1 or actors > gpus:
        raise BadRequestError(
            f"The Ray cluster has {gpus:.0f} GPUs, and every worker on {device!r} needs one: "
            f"{actors or 'some'} were requested. Ask for fewer workers or add machines."
        )
    return Claim(actors, share_of_cpu(cpus, actors), 1)


def share_of_cpu(cpus: float, actors: int) -> float:
    """The part of a CPU that each actor claims; one CPU, or half of the only one, stays free."""
    free = 1.0 if cpus > 1 else cpus / 2
    return min(1.0, int(1e4 * (cpus - free) / actors) / 1e4)  # Ray counts in ten-thousandths


def on_gpu(device: str | None) -> bool:
    """Whether a device is what Ray counts as a GPU."""
    return (device or "").partition(":")[0] == "cuda"
