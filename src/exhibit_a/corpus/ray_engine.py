"""How do many machines share the work?

Ray Data maps windows over a pool of actors, each of which holds the model. The shards come back to
this process, the only one that writes, so the machines need no common disk: only the model must be
loadable by its name on each. Windows are handed to Ray in waves, so that neither a long data set
nor its shards are ever in memory as a whole. Checkpoints are the shards themselves: what was
committed is not asked again.

An actor takes a fraction of a CPU as Ray counts them. Were the pool to claim every CPU, nothing
would be left for Ray's own tasks, and nothing would ever move. Should nothing move all the same,
the wait ends with an error that says what the cluster has.
"""

import json
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from exhibit_a.corpus.plan import Card
from exhibit_a.corpus.windows import Window
from exhibit_a.corpus.work import Shard, Worker
from exhibit_a.errors import BadRequestError, ExhibitError
from exhibit_a.subject.subject import Subject

WAVE = 128  # windows that are handed over at once
PATIENCE = 900.0  # seconds without any shard after which the cluster is given up


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
        pool = min(self.workers or max(1, int(_total(ray, "CPU")) - 1), len(wave))
        share = share_of_cpu(_total(ray, "CPU"), pool)
        data = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            Actor,
            fn_constructor_args=(card.model_dump_json(), self.device),
            batch_size=1,
            batch_format="numpy",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(size=pool),
            num_cpus=share,
            num_gpus=1 if (self.device or "").startswith("cuda") else None,
        )
        arrived: queue.Queue[Any] = queue.Queue(maxsize=2 * pool)
        threading.Thread(target=_pour, args=(data, arrived), daemon=True).start()
        missing = {window.number for window in wave}
        while (one := self._next(ray, arrived, pool, share)) is not None:
            shard = _unpacked(one)
            if shard.number in missing:  # a retried task may answer twice
                missing.remove(shard.number)
                yield shard
        if missing:
            raise ExhibitError(
                f"Ray ended without shards {sorted(missing)[:5]}. What is done is kept: resume."
            )

    def _next(self, ray: Any, arrived: "queue.Queue[Any]", pool: int, share: float) -> Any:
        try:
            one = arrived.get(timeout=self.patience)
        except queue.Empty:
            raise ExhibitError(
                f"Ray gave nothing for {self.patience:.0f} s. {pool} actors of {share:.2g} CPU "
                f"were asked of a cluster with {_total(ray, 'CPU'):.0f} CPUs ({_free(ray):.2g} "
                "free). "
                "Ask for fewer workers or add machines. What is done is kept: resume."
            ) from None
        if isinstance(one, BaseException):
            raise _told(one) from one
        return one


def share_of_cpu(cpus: float, actors: int) -> float:
    """How much of a CPU each actor claims, so that one CPU, or half of the only one, stays free."""
    if cpus <= 0:
        raise BadRequestError("The Ray cluster has no CPU. Add a machine that has.")
    free = 1.0 if cpus > 1 else cpus / 2
    return min(1.0, int(1e4 * (cpus - free) / actors) / 1e4)  # Ray counts in ten-thousandths


class Actor:
    """A worker that Ray feeds."""

    def __init__(self, card: str, device: str | None) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.worker = Worker(Card.model_validate_json(card), device=device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        """The shard of one window, or the words of what went wrong with it."""
        window = Window.unpacked(json.loads(bytes(batch["window"][0])))
        try:
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
            reason = str(problem).strip().splitlines()[0]
            raise BadRequestError(f"There is no Ray cluster at {address!r}: {reason}") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        yield ray
    finally:
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
