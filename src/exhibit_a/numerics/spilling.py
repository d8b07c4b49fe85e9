"""Keeps large maps on disk until they are read again.

In a file without a name, from which the system reads what is requested and whose pages it may drop
when memory is short. The file is gone with the tensors, however the process ends.

A *set* of maps is those of all sites of one text. A method holds two at most: the model's own, and
those of the copy that runs. What it makes waits in a file, site by site, and sums of maps are added
up in one. Sets below ``LARGE`` are not worth the trouble.
"""

import mmap
import tempfile

import torch
from torch import Tensor

LARGE = 2**25  # bytes; less is not worth a file
BLOCK = 2**20  # bytes that are written at a time


def spilled(tensors: tuple[Tensor, ...], *, of: int | None = None) -> tuple[Tensor, ...]:
    """The same tensors, in a file if they are large; where none can be written, as they are.

    ``of`` is the bytes of the set that they are a part of, if they are not the whole of it.

    >>> from exhibit_a.numerics.spilling import spilled
    >>> bool((spilled((torch.ones(3000, 3000),))[0] == 1).all())
    True
    """
    size = sum(tensor.nbytes for tensor in tensors) if of is None else of
    if size < LARGE or any(tensor.device.type != "cpu" for tensor in tensors):
        return tensors
    try:
        return tuple(_in_file(tensor) for tensor in tensors)
    except OSError:  # no place, or not enough of it
        return tensors


def zeros_to_add_to(count: int, like: Tensor) -> Tensor:
    """Zeros, in a file if they are large; where none can be written, in memory.

    >>> from exhibit_a.numerics.spilling import zeros_to_add_to
    >>> zeros_to_add_to(10**7, torch.ones(())).add_(1).mean()
    tensor(1.)
    """
    size = count * like.element_size()
    if size < LARGE or like.device.type != "cpu":
        return like.new_zeros(count)
    try:
        with tempfile.TemporaryFile() as file:
            for start in range(0, size, BLOCK):  # a hole that finds no room later would be fatal
                file.write(bytes(min(BLOCK, size - start)))
            file.flush()
            return torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=like.dtype)
    except OSError:
        return like.new_zeros(count)


def few_heads(maps: Tensor) -> tuple[Tensor, ...]:
    """Maps (head, query, key) in runs of heads that are worth no trouble, or head by head."""
    of_a_head = maps[0].nbytes if len(maps) else 0
    return torch.split(maps, max(1, LARGE // 16 // max(of_a_head, 1)))


def copies_at_once(a_set: float, of_a_copy: float) -> int:
    """How many copies of a text may run together, if they hold as much of maps, besides its own.

    >>> from exhibit_a.numerics.spilling import copies_at_once
    >>> copies_at_once(1e6, 1e6), copies_at_once(1e9, 1e9), copies_at_once(1e9, 1e8)
    (33, 1, 10)
    """
    return max(1, int(max(a_set, LARGE) // max(of_a_copy, 1)))


def _in_file(tensor: Tensor) -> Tensor:
    if not tensor.numel():
        return tensor
    with tempfile.TemporaryFile() as file:
        file.write(tensor.detach().contiguous().view(torch.uint8).numpy().data)
        file.flush()
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # a change stays in memory
    return torch.frombuffer(pages, dtype=tensor.dtype).reshape(tensor.shape)
