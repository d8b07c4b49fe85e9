"""Sees every torch function that a model calls, and may answer it in another way."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from exhibit_a.shapes import Options

Function = Callable[..., Any]
Arguments = tuple[Any, ...]


class FunctionMode(TorchFunctionMode):
    """Sees every torch function that is called while the mode is active."""

    def __torch_function__(
        self,
        func: Function,
        types: Sequence[type],
        args: Arguments = (),
        kwargs: Options | None = None,
    ) -> Any:
        """Hand the call on."""
        return self.called(func, args, dict(kwargs or {}))

    @abstractmethod
    def called(self, func: Function, args: Arguments, kwargs: Options) -> Any:
        """Answer the call, or just make it."""
