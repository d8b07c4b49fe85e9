"""What is the model that a derivative sees? The same one with every curve replaced by its tangent.

Norms, softmax and activations are put in as value + slope · change, where the slope is a constant
and the change is zero. Value and first derivative are those of the kernel; what is gone is its
second derivative, which nobody asked for, and with it the slow code that computes it. Kernels that
are not listed stay as they are: they cost time, never truth.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class FirstOrder(TorchFunctionMode):
    """Puts value + slope · change in the place of curved kernels: the same to first order."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call ``func``, or its expansion where one is known and a derivative is wanted."""
        kwargs = kwargs or {}
        given = args[0] if args else kwargs.get("input")
        if not (isinstance(given, Tensor) and given.requires_grad):
            return func(*args, **kwargs)
        if func in _ACTIVATIONS:
            return _activation(func, *args, **kwargs)
        if func in _SOFTMAX:
            return _softmax(func, *args, **kwargs)
        if func is F.layer_norm:
            return _layer_norm(*args, **kwargs)
        return func(*args, **kwargs)


_ACTIVATIONS = {F.gelu, F.silu, torch.tanh, Tensor.tanh}
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}


class _Change(torch.autograd.Function):
    """Zero that depends on its input as the input itself does (x − x would be NaN at infinity)."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:  # noqa: ARG004
        return torch.zeros_like(given)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # noqa: ARG004
        return grads[0]


def _change(given: Tensor) -> Tensor:
    zero: Tensor = _Change.apply(given)  # type: ignore[no-untyped-call]
    return zero


def _activation(func: Callable[..., Tensor], given: Tensor, **options: Any) -> Tensor:
    point = given.detach().requires_grad_()
    value = func(point, **options)
    (slope,) = torch.autograd.grad(value.sum(), point)
    return value.detach() + slope * _change(given)


def _softmax(func: Callable[..., Tensor], given: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    probs = func(given.detach(), *args, **kwargs)
    dim = args[0] if args else kwargs["dim"]
    weighted = probs * _change(given).to(probs.dtype)
    return probs + weighted - probs * weighted.sum(dim, keepdim=True)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    if len(normalized_shape) != 1:
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    point = input.detach()
    variance, mean = torch.var_mean(point, -1, unbiased=False, keepdim=True)
    steepness = (variance + eps).rsqrt()
    standard = (point - mean) * steepness
    change = _change(input)
    along = (standard * change).mean(-1, keepdim=True)
    slope = steepness if weight is None else weight * steepness
    value = F.layer_norm(point, normalized_shape, weight, bias, eps)
    return value + slope * (change - change.mean(-1, keepdim=True) - standard * along)
