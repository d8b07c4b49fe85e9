"""Where do large maps wait that nobody reads for now?

In a file without a name, from which the system reads what is asked for and whose pages it may drop
when memory is short. The file is gone with the tensors, however the process ends.
"""

import mmap
import tempfile

import torch
from torch import Tensor

LARGE = 2**25  # bytes; less is not worth a file


def spilled(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same tensors, in a file if they are large; where none can be written, as they are.

    >>> from exhibit_a.numerics.spilling import spilled
    >>> bool((spilled((torch.ones(3000, 3000),))[0] == 1).all())
    True
    """
    size = sum(tensor.nbytes for tensor in tensors)
    if size < LARGE or any(tensor.device.type != "cpu" for tensor in tensors):
        return tensors
    try:
        return tuple(_in_file(tensor) for tensor in tensors)
    except OSError:  # no place, or not enough of it
        return tensors


def _in_file(tensor: Tensor) -> Tensor:
    if not tensor.numel():
        return tensor
    with tempfile.TemporaryFile() as file:
        file.write(tensor.detach().contiguous().view(torch.uint8).numpy().data)
        file.flush()
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # a change stays in memory
    return torch.frombuffer(pages, dtype=tensor.dtype).reshape(tensor.shape)
