"""How does a shard, or the error in its place, get from a worker to the process that writes?

A worker in another process answers every window with a ``Reply``: a head in JSON and the bytes of
all files, one after the other. The head holds the receipt and the sizes of the files, or the kind
and the message of an error. The error is raised again where the reply is opened, as the same kind.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

from exhibit_a.corpus.windows import Window
from exhibit_a.corpus.work import Shard, Worker
from exhibit_a.errors import ExhibitError, kind_of, of_kind


class Reply(NamedTuple):
    """A worker's answer to one window, as bytes."""

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


def reply_of(worker: Callable[[], Worker], window: Window) -> Reply:
    """The reply to a window: its shard, or the error of the worker or of loading its model."""
    try:
        shard = worker()(window)
    except ExhibitError as problem:
        failure = {"kind": kind_of(problem), "error": str(problem)}
        return Reply(json.dumps(failure).encode(), b"")
    sizes = {kind: len(data) for kind, data in shard.files.items()}
    head = json.dumps({"receipt": shard.receipt, "sizes": sizes})
    return Reply(head.encode(), b"".join(shard.files.values()))
