"""Makes a layer cheap to differentiate along many changes: tangents of its kernels, two matrices.

**Tangents.** Norms, softmax and activations are replaced by value + gradient · change, where the
gradient is a constant and the change is zero. Value and first derivative are those of the kernel;
the second derivative, which is not needed, is gone, and with it the slow code that computes it.
Kernels that are not listed stay as they are, which costs time and no accuracy. The gradients are

1. of an activation f: f′, entry by entry;
2. of softmax with probabilities p: c ↦ p ⊙ c − p (p · c);
3. of a layer norm with weight w, σ² = variance + eps and standardised input s = (x − mean) / σ:
   c ↦ (w / σ) ⊙ (c − mean c − s · mean(s ⊙ c)).

**Matrices.** Heads are where tokens meet. Everything else in a layer, before and after, is done to
every token by itself, so that to first order the new state of token t is

    h′_t  =  h′_t(now) + B_t · change of h_t + C_t · change of c_t

with h the layer's input and c what its heads averaged. A change pushed through the two matrices
costs 4d² operations a token, through output projection, feed-forward network and norms 18d² or so.
Making the matrices costs as much as d changes, so it pays where many more are pushed.

4. The layer runs with a copy of c that is detached from h, so that B and C can be distinguished.
5. That tokens meet nowhere else is not assumed but tested; a layer where they do is refused.
6. B and C of all tokens are found backwards, one pass for each entry of a state.
7. The layer's output is replaced by its value plus the two products.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.numerics.parallel import Together
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context, Options
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.function_mode import Arguments, Function, FunctionMode
from exhibit_a.subject.guard import Forward
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.passes import Pass, hidden_of_output

LinearMap = Callable[[Tensor, Tensor], Tensor]

TOGETHER = 64  # rows of a matrix that are found in one pass backwards


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


class Fold(Tap):
    """Opens every layer at its attention, and replaces what comes after it by two matrices."""

    def __init__(self, run: Pass) -> None:
        self.sites = Counter(site.call for site in run.sites)
        self.open = False
        self.contexts: tuple[Tensor, Tensor] | None = None  # as computed, and its detached copy

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """Let an open layer go on from a detached copy of the context (step 4)."""
        del call
        if not self.open:
            return None
        self.contexts = context, context.detach().requires_grad_()
        return self.contexts[1]

    def through(
        self, call: int, forward: Forward, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """The output of a layer call, by two matrices where that is possible."""
        before = first_hidden(args, kwargs)
        # With two sites in a layer, the queries of the second depend on the context of the first,
        # which therefore cannot be detached.
        self.open = self.sites[call] == 1 and before is not None and before.requires_grad
        self.contexts = None
        output = forward(*args, **kwargs)  # step 4
        if before is None or self.contexts is None:
            return output
        context, detached = self.contexts
        after = hidden_of_output(output)
        _require_apart(after, before, detached)  # step 5
        direct, heads = _matrices(after, before, detached)  # step 6
        folded = (  # step 7
            after.detach()
            + token_by_token(change_of(before), direct)
            + token_by_token(change_of(_by_token(context)), heads)
        )
        return folded if isinstance(output, Tensor) else (folded, *output[1:])


def side_by_side(
    function: Callable[[Tensor], tuple[Tensor, ...]], changes: Tensor, size: int | None = None
) -> tuple[Tensor, ...]:
    """A function of every change, ``size`` of them at a time (vmap)."""
    with _QUIETLY:
        outputs: tuple[Tensor, ...] = torch.func.vmap(function, chunk_size=size)(changes)
    return outputs


@contextmanager
def _unwarned() -> Iterator[None]:
    """Kernels without a batching rule are slower and no less exact."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


_QUIETLY = Together(_unwarned)  # filters belong to the process, and threads push side by side


def token_by_token(
    vectors: Float[Tensor, "batch token in"], matrices: Float[Tensor, "batch token in out"]
) -> Float[Tensor, "batch token out"]:
    """Every token's vector times its own matrix."""
    products: Tensor = _TokenByToken.apply(vectors, matrices)  # type: ignore[no-untyped-call]
    return products


class _TokenByToken(torch.autograd.Function):
    """Products with many changes at a time share the matrix; vmap by itself would copy it."""

    @staticmethod
    def forward(vectors: Tensor, matrices: Tensor) -> Tensor:
        return (vectors.unsqueeze(-2) @ matrices).squeeze(-2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        del output
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (matrices,) = ctx.saved_tensors
        return token_by_token(grads[0], matrices.mT), None

    @staticmethod
    def vmap(
        info: object, in_dims: tuple[int | None, ...], vectors: Tensor, matrices: Tensor
    ) -> tuple[Tensor, int]:
        del info
        assert in_dims[0] is not None
        many = vectors.movedim(in_dims[0], -2)  # (batch, token, change, in)
        return (many @ matrices).movedim(-2, 0), 0


def _require_apart(after: Tensor, before: Tensor, context: Tensor) -> None:
    """Refuse a layer whose tokens meet outside its heads.

    Tokens are divided in two by each bit of their numbers, so that any two tokens are on different
    sides once. A gradient at one side must be exactly zero at the other: the smallest leak is seen.
    """
    number = torch.arange(after.shape[1], device=after.device)
    bits = 2 ** torch.arange(max(1, int(number[-1]).bit_length()), device=after.device)
    side = (number & bits.unsqueeze(1)) > 0
    sides = torch.cat([side, ~side])
    chance = torch.randn(after.shape, generator=generator(0)).to(after)
    back = _backwards(after, before, context)
    gradients = side_by_side(lambda chosen: back(chosen.unsqueeze(-1) * chance), sides)
    direct, heads = gradients[0], _by_token(gradients[1])
    if any(bool(gradient[~sides.unsqueeze(1)].any()) for gradient in (direct, heads)):
        raise BrokenInvariantError("Tokens meet outside the heads of a layer; it is not folded.")


def _matrices(
    after: Tensor, before: Tensor, context: Tensor
) -> tuple[Float[Tensor, "batch token state out"], Float[Tensor, "batch token heads out"]]:
    """B and C of all tokens: one cotangent for each entry of a state, at all tokens at once."""
    back = _backwards(after, before, context)
    entries = torch.eye(after.shape[-1], dtype=after.dtype, device=after.device)
    gradients = side_by_side(lambda entry: back(entry.expand_as(after)), entries, TOGETHER)
    direct, heads = gradients[0], _by_token(gradients[1])
    return direct.permute(1, 2, 3, 0).contiguous(), heads.permute(1, 2, 3, 0).contiguous()


def _backwards(
    after: Tensor, before: Tensor, context: Tensor
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """From a cotangent of the new states to those of the old ones and of the context."""
    return lambda cotangent: torch.autograd.grad(
        after, (before, context), cotangent, retain_graph=True, materialize_grads=True
    )


def _by_token(context: Float[Tensor, "*any head token width"]) -> Float[Tensor, "*any token all"]:
    """What all heads averaged for a token, as one vector."""
    return context.transpose(-3, -2).flatten(-2)
