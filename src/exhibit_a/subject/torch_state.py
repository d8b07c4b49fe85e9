"""Sets the modes of torch under which numbers are computed.

A caller may have switched gradients off, entered inference mode or autocast, or chosen another
default device or number type. A model then computes something else than it did when it was
examined, or cannot be differentiated at all. So whatever runs a model or a method does it under the
modes that torch starts with, and the caller's modes are back after it, after an exception too.

Left as the caller has them: deterministic algorithms and the precision of matrix products, which
are wishes about how a number is computed and not about which.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from exhibit_a.errors import BadRequestError

DEVICES = ("cpu", "cuda", "mps", "xpu")  # autocast is switched on for each of them alone


@contextmanager
def default_torch_state() -> Iterator[None]:
    """No inference mode, no autocast, the default device and number type that torch starts with.

    Gradients stay on or off as they are: inference mode has them off.
    """
    with ExitStack() as modes:
        if torch.is_inference_mode_enabled():
            modes.enter_context(torch.inference_mode(False))  # this switches gradients on
            modes.enter_context(torch.no_grad())
        for device in DEVICES:
            if torch.is_autocast_enabled(device):
                modes.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            modes.enter_context(torch.device("cpu"))
        modes.enter_context(_FLOAT32.shared())
        yield


@contextmanager
def method_modes() -> Iterator[None]:
    """The usual modes, with gradients: where a method does not want them it says so itself."""
    with default_torch_state(), torch.enable_grad():
        yield


def require_differentiable(model: nn.Module) -> None:
    """Refuse weights that were made in inference mode: no gradient can ever pass through them."""
    for name, weight in model.named_parameters():
        if weight.is_inference():
            raise BadRequestError(
                f"The weights of {type(model).__name__} ({name}, …) were made inside "
                "torch.inference_mode(), and torch cannot differentiate through such tensors; "
                "build the model outside of it."
            )


class _DefaultType:
    """Torch's default number type: one for the whole process, so that threads change it together.

    The first block that is entered changes it, and the last that is left puts it back.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.before = dtype, dtype
        self.blocks = 0
        self.lock = threading.Lock()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """The number type, while any thread is in such a block."""
        with self.lock:
            if not self.blocks:
                self.before = torch.get_default_dtype()
                self._set(self.dtype)
            self.blocks += 1
        try:
            yield
        finally:
            with self.lock:
                self.blocks -= 1
                if not self.blocks:
                    self._set(self.before)

    def _set(self, dtype: torch.dtype) -> None:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)


_FLOAT32 = _DefaultType(torch.float32)
