"""How is every torch function that a model calls seen, and perhaps answered in another way?"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode


class FunctionMode(TorchFunctionMode):
    """Sees every torch function that is called while the mode is active."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Hand the call on."""
        return self.called(func, args, dict(kwargs or {}))

    @abstractmethod
    def called(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer the call, or just make it."""
