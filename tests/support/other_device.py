"""A device that is not there: torch behaves as if a model lay on it, with numbers of the processor.

Every tensor is marked as lying there or on the host, and where a real device would fail, this one
does: operations on tensors of both, a host's generator, NumPy, and float64 if it has none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

HOST = torch.device("cpu")
CROSSING = {"copy_", "_make_subclass", "_has_compatible_shallow_copy_type"}  # take tensors of both
INDEXING = {"__getitem__", "__setitem__", "index_put_", "index_put"}  # a host's index is copied
FACTORIES = {
    "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "tensor", "as_tensor", "rand",
    "randn", "randint", "randperm", "from_numpy", "frombuffer", "tril_indices", "triu_indices",
}  # fmt: skip


class ForbiddenThereError(AssertionError):
    """What a real device would refuse."""


class NoDoublesError(TypeError):
    """Torch's kind of error where a device has no float64."""


class OtherDevice(TorchFunctionMode):
    """Marks tensors as lying on the device or on the host, and refuses what cannot be."""

    def __init__(self, name: str, *, doubles: bool) -> None:
        super().__init__()
        self.device, self.doubles = torch.device(name), doubles

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name == "__get__":
            answer = func(*args, **kwargs)
            asked = str(getattr(func, "__self__", ""))
            if "'device'" in asked and there(args[0]):
                return self.device
            return _marked(answer, there(args[0]))
        if name == "__set__":  # such as weight.data = …, which may bring a weight elsewhere
            if isinstance(args[1], Tensor) and there(args[1]) is not None:
                args[0]._lies_there = there(args[1])
            return func(*args, **kwargs)
        if name in ("numpy", "__array__") and there(args[0]):
            raise ForbiddenThereError("NumPy cannot read a tensor that lies elsewhere")
        source = args[0] if name == "to" else None
        goal, args, kwargs = self._goal(name, args, kwargs)
        if goal is None:
            self._require_one_place(name, func, tensors, args)
        if goal == self.device and isinstance(kwargs.get("generator"), torch.Generator):
            raise ForbiddenThereError(f"{name}: a generator of the host cannot draw there")
        answer = func(*args, **kwargs)
        if there(source) and not self.doubles and answer.dtype != source.dtype:
            self._require_singles(name, answer)  # the type changes first, where the numbers are
        if goal is None and name in FACTORIES and not tensors:
            goal = HOST
        place = None if goal is None else goal == self.device
        if place is None:
            known = [there(tensor) for tensor in tensors]
            place = True if True in known else (False if False in known else None)
        if any(answer is tensor and there(tensor) != place for tensor in tensors):
            answer = answer.view_as(answer)  # a move that is none here would mark both
        if place and not self.doubles:
            self._require_singles(name, answer)
        return _marked(answer, place)

    def _goal(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Where a call says that its answer is to be, and the call with the processor instead."""
        if name == "cpu":
            return HOST, args, kwargs
        if name == "to" and len(args) > 1 and isinstance(args[1], Tensor):
            return (self.device if there(args[1]) else HOST), args, kwargs
        goal = kwargs.get("device")
        if goal is None and name == "to" and len(args) > 1:
            goal = args[1] if isinstance(args[1], torch.device | str) else None
            args = (args[0], HOST, *args[2:]) if goal is not None else args
        elif goal is not None:
            kwargs["device"] = HOST
        return (None if goal is None else torch.device(goal)), args, kwargs

    def _require_one_place(self, name: str, func: Any, tensors: list[Tensor], args: Any) -> None:
        if name in CROSSING or (name in INDEXING and there(args[0])):
            return
        # A number of the host may go with anything, but one of the device stays there.
        on_host = any(there(tensor) is False and tensor.ndim for tensor in tensors)
        if on_host and any(there(tensor) for tensor in tensors):
            raise ForbiddenThereError(
                f"{resolve_name(func)}: tensors of the device and of the host"
            )

    def _require_singles(self, name: str, answer: Any) -> None:
        for tensor in tree_leaves(answer):
            if isinstance(tensor, Tensor) and tensor.dtype in (torch.float64, torch.complex128):
                raise NoDoublesError(f"{name}: there is no float64")


def there(tensor: Any) -> bool | None:
    """Whether a tensor lies on the device, as weights do; None where nothing is known about it."""
    if isinstance(tensor, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return there(torch._C._functorch.get_unwrapped(tensor))
    return getattr(tensor, "_lies_there", True if isinstance(tensor, nn.Parameter) else None)


def _marked(answer: Any, place: bool | None) -> Any:
    if place is not None:
        for leaf in tree_leaves(answer):
            if type(leaf) is Tensor:
                leaf._lies_there = place  # type: ignore[attr-defined]
    return answer


@contextmanager
def lying_there(model: nn.Module, name: str, *, doubles: bool = True) -> Iterator[OtherDevice]:
    """While the block runs, the model lies on a device of this name."""
    weights = [*model.parameters(), *model.buffers()]
    for weight in weights:
        weight._lies_there = True  # type: ignore[attr-defined]
    mode = OtherDevice(name, doubles=doubles)
    with mode, patch("torch.cuda.mem_get_info", return_value=(2**33, 2**33)):
        yield mode
    for weight in weights:
        del weight._lies_there  # type: ignore[attr-defined]
