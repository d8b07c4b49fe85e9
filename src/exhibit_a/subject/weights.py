"""Tells whether weights are still those that ran.

What is kept of a pass belongs to the weights of that moment. Where a model was trained further,
or given other weights, the rest of the pass must not be computed with it. A stamp of the weights is
cheap enough to be made with every pass (less than a hundredth of one): of every weight, where it
lies, how often torch saw it written to, and eight bytes from its middle.

Not seen: a write past torch (``weight.data``, NumPy) that leaves those eight bytes as they were, or
that is made on another device than the processor.
"""

from collections.abc import Iterator
from ctypes import c_uint64

from torch import Tensor, nn

Stamp = tuple[tuple[int, int, int], ...]


def every_module(model: nn.Module) -> Iterator[nn.Module]:
    """The model and all modules inside; one that stands in two places comes twice.

    ``nn.Module.modules`` does the same with names and takes far longer: of a small model, half a
    dozen of its walks cost a fifth of a pass.
    """
    waiting = [model]
    while waiting:
        module = waiting.pop()
        yield module
        inside = reversed(module._modules.values())
        waiting += [inner for inner in inside if inner is not None]


def weights_stamp(model: nn.Module) -> Stamp:
    """What tells the weights of a model from others, and from themselves after a change."""
    stamp = []
    for module in every_module(model):
        weights = [*module._parameters.values(), *_saved_buffers(module)]
        stamp += [_stamp(weight) for weight in weights if weight is not None]
    return tuple(stamp)


def _saved_buffers(module: nn.Module) -> list[Tensor | None]:
    """The buffers that are saved; others are caches, which a pass may fill."""
    if not module._buffers:
        return []
    unsaved = module._non_persistent_buffers_set
    return [buffer for name, buffer in module._buffers.items() if name not in unsaved]


def _stamp(weight: Tensor) -> tuple[int, int, int]:
    try:
        start = weight.data_ptr()
    except RuntimeError:  # weights of a class of their own need not have a place in memory
        start = 0
    size, middle = weight.nbytes, 0
    if start and size >= 8 and weight.is_cpu and weight.is_contiguous():
        # read past torch, whose shortest operation would cost ten times as much
        middle = c_uint64.from_address(start + size // 16 * 8).value
    return start, weight._version, middle
