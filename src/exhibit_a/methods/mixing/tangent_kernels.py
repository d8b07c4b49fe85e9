"""What is the model that a derivative sees? The same one with every curve replaced by its tangent.

Norms, softmax and activations are put in as value + slope · change, where the slope is a constant
and the change is zero. Value and first derivative are those of the kernel; what is gone is its
second derivative, which nobody asked for, and with it the slow code that computes it. Kernels that
are not listed stay as they are: they cost time, never truth.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

LinearMap = Callable[[Tensor, Tensor], Tensor]


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


class _Symmetric(torch.autograd.Function):
    """A linear map that is its own transpose, so that its backward pass is the map once more.

    Left to autograd, each of its small steps would be transposed twice, in a pass of its own.
    """

    @staticmethod
    def forward(ctx: Any, change: Tensor, by_hand: LinearMap, constant: Tensor) -> Tensor:
        ctx.by_hand = by_hand
        ctx.save_for_backward(constant)
        return by_hand(change, constant)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        if not torch.is_grad_enabled():  # the last pass: nobody will differentiate it again
            return ctx.by_hand(grads[0], *ctx.saved_tensors), None, None
        return _Symmetric.apply(grads[0], ctx.by_hand, *ctx.saved_tensors), None, None  # type: ignore[no-untyped-call]


def change_of(given: Tensor) -> Tensor:
    """Zero, with the derivatives of ``given``."""
    zero: Tensor = _Change.apply(given)  # type: ignore[no-untyped-call]
    return zero


def _mapped(change: Tensor, by_hand: LinearMap, constant: Tensor) -> Tensor:
    found: Tensor = _Symmetric.apply(change, by_hand, constant)  # type: ignore[no-untyped-call]
    return found


def _activation(func: Callable[..., Tensor], given: Tensor, **options: Any) -> Tensor:
    point = given.detach().requires_grad_()
    value = func(point, **options)
    (slope,) = torch.autograd.grad(value.sum(), point)
    return value.detach() + slope * change_of(given)


def _softmax(func: Callable[..., Tensor], given: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    probs = func(given.detach(), *args, **kwargs)
    dim = args[0] if args else kwargs["dim"]
    change = change_of(given).to(probs.dtype)
    return probs + _mapped(change, partial(_weighed_against_all, dim=dim), probs)


def _weighed_against_all(change: Tensor, probs: Tensor, dim: int) -> Tensor:
    """p ⊙ c − p (p · c)."""
    weighted = probs * change
    return torch.addcmul(weighted, probs, weighted.sum(dim, keepdim=True), value=-1)


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
    slope = steepness if weight is None else weight * steepness
    value = F.layer_norm(point, normalized_shape, weight, bias, eps)
    return value + slope * _mapped(change_of(input), _standardised, (point - mean) * steepness)


def _standardised(change: Tensor, standard: Tensor) -> Tensor:
    """c without its mean and without what it has along the standardised vector s."""
    along = (standard * change).mean(-1, keepdim=True)
    return torch.addcmul(change - change.mean(-1, keepdim=True), standard, along, value=-1)
