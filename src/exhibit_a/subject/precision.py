"""Computes in float32 with the stored weights of a half-precision model while it is examined.

Language models are mostly held in bfloat16. A stored weight is an exact number with few digits;
inexact is the arithmetic, which rounds every sum to those few digits, and ranks, gradients and
small differences of answers are lost in that. So weights stay as they are held, and passes compute
with them in float32: every number is that of the same weights held in float32. How far the model's
own rounding moves its answer is reported with the results (`Trace.own_rounding`).

While a model runs, a mode sees every torch function that it calls:

1. a number type that is requested in half precision is float32, and so is the one of a weight;
2. what is given in half precision is widened before anything is computed with it;
3. parts and views of a weight stay as they are held, and are widened where they are used;
4. the weight of a product is widened a part at a time, backwards as well, so that no second copy
   of the model is ever held.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Buffer, Parameter
from torch.utils._pytree import tree_any, tree_map

from exhibit_a.shapes import Options
from exhibit_a.subject.function_mode import Arguments, Function, FunctionMode
from exhibit_a.subject.weights import every_module

HALF = (torch.bfloat16, torch.float16)
PLAIN = (Tensor, Parameter, Buffer)  # weights of other classes know best how to compute with them
WIDENED_AT_ONCE = 2**20  # numbers of a weight, so that they stay in the processor's cache

# Functions that look at a tensor, or give a view of it, and compute nothing.
_LOOKING = {
    "size", "dim", "ndimension", "numel", "stride", "storage_offset", "untyped_storage", "data_ptr",
    "get_device", "is_contiguous", "is_floating_point", "is_complex", "is_inference", "__len__",
    "__hash__", "__repr__", "register_hook", "__set__", "__delete__",
    "__getitem__", "view", "view_as", "reshape", "transpose", "permute", "t", "movedim", "swapaxes",
    "chunk", "split", "tensor_split", "unbind", "narrow", "select", "squeeze", "unsqueeze",
    "flatten", "unflatten", "expand", "expand_as", "detach", "contiguous",
}  # fmt: skip
_PICKING = {"embedding", "index_select", "gather"}  # few numbers out of many


def half_types(model: nn.Module) -> set[torch.dtype]:
    """The half-precision types that weights are held in; none where some are no plain numbers."""
    found = set()
    for module in every_module(model):
        for weight in (*module._parameters.values(), *module._buffers.values()):
            if weight is None:
                continue
            if type(weight) not in PLAIN:
                return set()
            found.add(weight.dtype)
    return found & set(HALF)


def computing_dtype(model: nn.Module) -> torch.dtype:
    """The number type in which passes of this model are computed.

    >>> computing_dtype(subject.model), computing_dtype(nn.Linear(2, 2, dtype=torch.bfloat16))
    (torch.float32, torch.float32)
    """
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return torch.float32 if half_types(model) else dtype


_computing_in_float32: ContextVar[bool] = ContextVar("computing in float32", default=False)


@contextmanager
def float32_arithmetic(model: nn.Module) -> Iterator[None]:
    """Compute in float32 inside the block, if the model is held in half precision."""
    if _computing_in_float32.get() or not half_types(model):
        yield
        return
    entered = _computing_in_float32.set(True)
    try:
        with _InFloat32():
            yield
    finally:
        _computing_in_float32.reset(entered)


class _InFloat32(FunctionMode):
    """Widens whatever is computed with."""

    def called(self, func: Function, args: Arguments, kwargs: Options) -> object:
        """Make the call, in float32 if it computes anything."""
        name = getattr(func, "__name__", "")
        if name == "__get__":  # step 1
            found = func(*args, **kwargs)
            return torch.float32 if isinstance(found, torch.dtype) and found in HALF else found
        # What a function writes into must be the thing itself.
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if name in _LOOKING or writes:  # step 3
            return func(*args, **kwargs)
        if name in _PICKING:
            return tree_map(_wide, func(*args, **kwargs))
        if name in ("half", "bfloat16"):
            return args[0].to(torch.float32)
        if name == "linear" and not kwargs and _is_matrix(args[1]):  # step 4
            product = _product(_wide(args[0]), args[1].mT)
            return product if len(args) < 3 or args[2] is None else product.add_(args[2])
        if name == "addmm" and not kwargs and _is_matrix(args[2]):
            return _product(_wide(args[1]), args[2]).add_(args[0])
        if tree_any(_is_half, (args, kwargs)):  # step 2
            args, kwargs = tree_map(_wide, (args, kwargs))
        return func(*args, **kwargs)


class _Product(torch.autograd.Function):
    """Vectors times a weight, or its transpose, that is held in half precision.

    The weight is widened some rows or columns at a time, backwards as well: a graph keeps it as it
    is held. Being linear in the vectors, it is its own derivative.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(vectors: Tensor, weight: Tensor) -> Tensor:
        """The product, by parts of the weight that lie together in memory."""
        if weight.is_contiguous():
            rows = max(1, WIDENED_AT_ONCE // weight.shape[1])
            pairs = zip(torch.split(vectors, rows, -1), torch.split(weight, rows), strict=True)
            product, *others = (part @ _widened(some) for part, some in pairs)
            for other in others:
                product = product + other
            return product
        columns = max(1, WIDENED_AT_ONCE // len(weight))
        parts = [vectors @ _widened(some.mT).mT for some in torch.split(weight, columns, -1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        """Keep the weight as it is held."""
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The same with the transpose."""
        (weight,) = ctx.saved_tensors
        return _product(gradients[0], weight.mT), None


def _product(vectors: Tensor, weight: Tensor) -> Tensor:
    product: Tensor = _Product.apply(vectors, weight)  # type: ignore[no-untyped-call]
    return product


_buffers = threading.local()


def _widened(weight: Tensor) -> Tensor:
    """A weight in float32, until the next one: new memory would cost more than the product."""
    buffer = getattr(_buffers, "room", None)
    if buffer is None or len(buffer) < weight.numel() or buffer.device != weight.device:
        size = max(weight.numel(), WIDENED_AT_ONCE)
        _buffers.room = buffer = torch.empty(size, dtype=torch.float32, device=weight.device)
    return buffer[: weight.numel()].view(weight.shape).copy_(weight)


def _is_matrix(weight: Tensor) -> bool:
    return _is_half(weight) and weight.ndim == 2


def _is_half(value: Any) -> bool:
    dtype = value.dtype if type(value) in PLAIN else value
    return isinstance(dtype, torch.dtype) and dtype in HALF


def _wide(value: Any) -> Any:
    """A number type, or numbers of one, that is float32 where it was half precision."""
    if not _is_half(value):
        return value
    return torch.float32 if isinstance(value, torch.dtype) else value.to(torch.float32)
