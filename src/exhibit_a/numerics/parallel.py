"""Shares many small matrices between a few cores.

Torch splits every operation over all threads and waits for the slowest. For a 64 × 64 matrix that
costs more than it brings, and a hundred times more on a busy machine. Heads do not depend on each
other, so each core takes heads of its own and no operation waits.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import TypeVar

import torch

Part = TypeVar("Part")
Done = TypeVar("Done")


class Together:
    """A change to the whole process: the first thread in makes it, the last one out undoes it.

    Where each thread made and undid it by itself, one would put back what another had changed.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change, self._undo = change, ExitStack()
        self._lock, self._inside = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._undo.enter_context(self._change())
            self._inside += 1

    def __exit__(self, *problem: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._undo.close()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread; torch keeps the setting per calling thread, and it is put back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parallel_map(
    work: Callable[[Part], Done], parts: Sequence[Part], device: torch.device
) -> list[Done]:
    """``work`` on every part, in order; on a CPU, as many parts at a time as torch has threads."""
    threads = min(torch.get_num_threads(), len(parts))
    if device.type != "cpu" or threads < 2:
        return [_quietly(work, part) for part in parts]
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(lambda part: _quietly(work, part), parts))
        except BaseException:  # an interrupt too: what is no longer wanted is not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _quietly(work: Callable[[Part], Done], part: Part) -> Done:
    """Gradients are recorded per thread, so in each they have to be switched off."""
    with torch.no_grad(), one_thread():
        return work(part)


def chunk_slices(count: int, largest: int, device: torch.device) -> list[slice]:
    """``count`` things in runs of at most ``largest``; several runs are evened out over threads."""
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    step = max(1, count if count <= largest else min(largest, -(-count // workers)))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
