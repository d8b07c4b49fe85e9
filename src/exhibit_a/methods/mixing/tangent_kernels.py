"""Takes first derivatives without paying for second ones: curves are replaced by their tangents.

Norms, softmax and activations are replaced by value + gradient · change, where the gradient is a
constant and the change is zero. Value and first derivative are those of the kernel; the second
derivative, which is not needed, is gone, and with it the slow code that computes it. Kernels that
are not listed stay as they are, which costs time and no accuracy. The gradients are

1. of an activation f: f′, entry by entry;
2. of softmax with probabilities p: c ↦ p ⊙ c − p (p · c);
3. of a layer norm with weight w, σ² = variance + eps and standardised input s = (x − mean) / σ:
   c ↦ (w / σ) ⊙ (c − mean c − s · mean(s ⊙ c)).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from exhibit_a.shapes import Options
from exhibit_a.subject.function_mode import Arguments, Function, FunctionMode

LinearMap = Callable[[Tensor, Tensor], Tensor]


class FirstOrder(FunctionMode):
    """Puts value + gradient · change in the place of curved kernels: the same to first order."""

    def called(self, func: Function, args: Arguments, kwargs: Options) -> Any:
        """Call ``func``, or its tangent where that is known and a derivative is wanted."""
        argument = args[0] if args else kwargs.get("input")
        if not (isinstance(argument, Tensor) and argument.requires_grad):
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
    def forward(ctx: object, source: Tensor) -> Tensor:  # noqa: ARG004
        return torch.zeros_like(source)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> Tensor:  # noqa: ARG004
        return grads[0]


class _Symmetric(torch.autograd.Function):
    """A linear map that is its own transpose, so that its backward pass is the map once more.

    Left to autograd, each of its small steps would be transposed twice, in a pass of its own.
    """

    @staticmethod
    def forward(ctx: Any, change: Tensor, linear: LinearMap, constant: Tensor) -> Tensor:
        ctx.linear = linear
        ctx.save_for_backward(constant)
        return linear(change, constant)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        if not torch.is_grad_enabled():  # the last pass: it is not differentiated again
            return ctx.linear(grads[0], *ctx.saved_tensors), None, None
        return _Symmetric.apply(grads[0], ctx.linear, *ctx.saved_tensors), None, None  # type: ignore[no-untyped-call]


def change_of(source: Tensor) -> Tensor:
    """Zero, with the derivatives of ``source``."""
    zero: Tensor = _Change.apply(source)  # type: ignore[no-untyped-call]
    return zero


def _mapped(change: Tensor, linear: LinearMap, constant: Tensor) -> Tensor:
    """The linear map of a change, with a backward pass of its own."""
    mapped: Tensor = _Symmetric.apply(change, linear, constant)  # type: ignore[no-untyped-call]
    return mapped


def _activation(func: Callable[..., Tensor], input: Tensor, **options: object) -> Tensor:
    """An activation as value + gradient 1 · change; autograd gives f′ at this point."""
    point = input.detach().requires_grad_()
    value = func(point, **options)
    (gradient,) = torch.autograd.grad(value.sum(), point)
    return value.detach() + gradient * change_of(input)


def _softmax(func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Softmax as value + gradient 2 · change."""
    probs = func(input.detach(), *args, **kwargs)
    dim = args[0] if args else kwargs["dim"]
    change = change_of(input).to(probs.dtype)
    return probs + _mapped(change, partial(_against_the_mean, dim=dim), probs)


def _against_the_mean(change: Tensor, probs: Tensor, dim: int) -> Tensor:
    """p ⊙ c − p (p · c): each change against the mean change under p."""
    weighted = probs * change
    return torch.addcmul(weighted, probs, weighted.sum(dim, keepdim=True), value=-1)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """A layer norm over the last axis as value + gradient 3 · change."""
    if len(normalized_shape) != 1:
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    point = input.detach()
    variance, mean = torch.var_mean(point, -1, unbiased=False, keepdim=True)
    steepness = (variance + eps).rsqrt()
    gradient = steepness if weight is None else weight * steepness
    value = F.layer_norm(point, normalized_shape, weight, bias, eps)
    return value + gradient * _mapped(change_of(input), _standardised, (point - mean) * steepness)


def _standardised(change: Tensor, standard: Tensor) -> Tensor:
    """c without its mean and without what it has along the standardised vector s."""
    along = (standard * change).mean(-1, keepdim=True)
    return torch.addcmul(change - change.mean(-1, keepdim=True), standard, along, value=-1)
