"""How do many machines share the work?

Ray Data maps windows over a pool of actors, each of which holds the model. The shards come back to
this process, the only one that writes, so the machines need no common disk: only the model must be
loadable by its name on each. Windows are handed to Ray in waves, so that neither a long data set
nor its shards are ever in memory as a whole. Checkpoints are the shards themselves: what was
committed is not asked again.

An actor takes a fraction of a CPU as Ray counts them. Were the pool to claim every CPU, nothing
would be left for Ray's own tasks, and nothing would ever move. Where the model is to be on a GPU,
every actor claims one. Should nothing move all the same, the wait ends with an error that says what
the cluster has.
"""

import json
import logging
import os
import queue
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from exhibit_a.corpus.claims import Claim, claim_of, on_gpu
from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.windows import Window
from exhibit_a.corpus.work import Shard, Worker
from exhibit_a.errors import BadRequestError, ExhibitError, first_line
from exhibit_a.subject.subject import Subject

WAVE = 128  # windows that are handed over at once
PATIENCE = 900.0  # seconds without any shard after which the cluster is given up
KNOCKING = 5.0  # seconds in which a cluster must answer its door; Ray itself tries for minutes


@dataclass(frozen=True)
class RayEngine:
    """A pool of actors on this machine, or on the cluster at ``address``."""

    workers: int | None = None
    address: str | None = None
    device: str | None = None
    patience: float = PATIENCE

    def shards(self, card: Card, subject: Subject, todo: Iterable[Window]) -> Iterator[Shard]:
        """The shards as they are done."""
        del subject  # every actor loads its own
        windows = iter(todo)
        wave = list(islice(windows, WAVE))
        if not wave:
            return
        with _connected(self.address) as ray:
            while wave:
                yield from self._wave(ray, card, wave)
                wave = list(islice(windows, WAVE))

    def _wave(self, ray: Any, card: Card, wave: list[Window]) -> Iterator[Shard]:
        items = [{"window": window.packed()} for window in wave]
        has = {kind: _total(ray, kind) for kind in ("CPU", "GPU")}
        claim = claim_of(has["CPU"], has["GPU"], workers=self.workers, device=self.device)
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
        arrived: queue.Queue[Any] = queue.Queue(maxsize=2 * pool)
        threading.Thread(target=_pour, args=(data, arrived), daemon=True).start()
        missing = {window.number for window in wave}
        while (one := self._next(ray, arrived, claim)) is not None:
            shard = _unpacked(one)
            if shard.number in missing:  # a retried task may answer twice
                missing.remove(shard.number)
                yield shard
        if missing:
            raise ExhibitError(
                f"Ray ended without shards {sorted(missing)[:5]}. What is done is kept: resume."
            )

    def _next(self, ray: Any, arrived: "queue.Queue[Any]", claim: Claim) -> Any:
        try:
            one = arrived.get(timeout=self.patience)
        except queue.Empty:
            raise ExhibitError(
                f"Ray gave nothing for {self.patience:.0f} s. {claim.actors} actors of "
                f"{claim.cpus:.2g} CPU and {claim.gpus} GPU were asked of a cluster with "
                f"{_total(ray, 'CPU'):.0f} CPUs ({_free(ray):.2g} free) and "
                f"{_total(ray, 'GPU'):.0f} GPUs. Ask for fewer workers or add machines. What is "
                "done is kept: resume."
            ) from None
        if isinstance(one, BaseException):
            raise _told(one) from one
        return one


def check_reachable(address: str | None) -> None:
    """Refuse an address at which nobody listens, at once."""
    if address is None or address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise BadRequestError(
            f"{address!r} is no address that can be used; give auto or host:port, on a machine of "
            "the cluster."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCKING).close()
    except OSError as problem:
        reason = problem.strerror or str(problem) or "no answer"
        raise BadRequestError(f"There is no Ray cluster at {address!r}: {reason}.") from None


class Actor:
    """A worker that Ray feeds."""

    def __init__(self, card: str, device: str | None) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        # Ray shows an actor only the GPU it has claimed, so there is no number to choose.
        where = "cuda" if on_gpu(device) else device
        self.problem: ExhibitError | None = None
        try:
            self.worker = Worker(Card.model_validate_json(card), device=where)
        except ExhibitError as problem:  # raised here, Ray would only try again
            self.problem = problem

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """The shard of one window, or the words of what went wrong with it."""
        window = Window.unpacked(json.loads(bytes(batch["window"][0])))
        try:
            if self.problem is not None:
                raise self.problem
            shard = self.worker(window)
        except ExhibitError as problem:
            told = {"error": str(problem), "kind": type(problem).__name__}
            return {"head": [json.dumps(told).encode()], "files": [b""]}
        sizes = {kind: len(data) for kind, data in shard.files.items()}
        head = json.dumps({"receipt": shard.receipt, "sizes": sizes})
        return {"head": [head.encode()], "files": [b"".join(shard.files.values())]}


def _unpacked(row: dict[str, Any]) -> Shard:
    head, data = json.loads(bytes(row["head"])), bytes(row["files"])
    if "error" in head:
        kind = BadRequestError if head["kind"] == "BadRequestError" else ExhibitError
        raise kind(head["error"])
    files, start = {}, 0
    for name, size in head["sizes"].items():
        files[name] = data[start : start + size]
        start += size
    return Shard(head["receipt"], files)


def _pour(data: Any, arrived: "queue.Queue[Any]") -> None:
    """Put every row into the queue, then None, or whatever went wrong."""
    try:
        for row in data.iter_rows():
            arrived.put(row)
        arrived.put(None)
    except BaseException as problem:  # told to whoever reads the queue
        arrived.put(problem)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster asked for or to one of its own; one that was there is left."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else actors yield to all other programs
    try:
        import ray
        import ray.data
    except ImportError:
        raise BadRequestError("The ray engine needs ray: pip install 'exhibit-a[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
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
    told, before = logging.getLogger("ray.data"), logging.getLogger("ray.data").level
    told.setLevel(logging.ERROR)  # it reports every plan and its end
    try:
        yield ray
    finally:
        told.setLevel(before)
        if ours:
            ray.shutdown()


def _total(ray: Any, kind: str) -> float:
    return float(ray.cluster_resources().get(kind, 0))


def _free(ray: Any) -> float:
    return float(ray.available_resources().get("CPU", 0))


def _told(problem: BaseException) -> ExhibitError:
    cause = getattr(problem, "cause", None) or problem
    reason = str(cause).strip().splitlines()[-1] if str(cause).strip() else type(cause).__name__
    return ExhibitError(f"Ray could not go on: {reason}. What is done is kept: resume.")
