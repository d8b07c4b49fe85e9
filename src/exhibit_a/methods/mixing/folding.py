"""Folds what a layer does with a token outside its attention into two matrices for each token.

Heads are where tokens meet. Everything else in a layer, before and after, is done to every token by
itself, so that to first order the new state of token t is

    h′_t  =  h′_t(now) + B_t · change of h_t + C_t · change of c_t

with h the layer's input and c what its heads averaged. A change pushed through the two matrices
costs 4d² operations a token, through output projection, feed-forward network and norms 18d² or so.
Making the matrices costs as much as d changes, so it pays where many more are pushed.

1. The layer runs with a copy of c that is detached from h, so that B and C can be told apart.
2. That tokens meet nowhere else is not assumed but tested; a layer where they do is refused.
3. B and C of all tokens are found backwards, one pass for each entry of a state.
4. The layer's output is replaced by its value plus the two products.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.mixing.tangent_kernels import change_of
from exhibit_a.numerics.parallel import Together
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.guard import Forward
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.passes import Pass, hidden_of_output

TOGETHER = 64  # rows of a matrix that are found in one pass backwards


class Fold(Tap):
    """Opens every layer at its attention, and replaces what comes after it by two matrices."""

    def __init__(self, run: Pass) -> None:
        self.sites = Counter(site.call for site in run.sites)
        self.open = False
        self.contexts: tuple[Tensor, Tensor] | None = None  # as computed, and its detached copy

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """Let an open layer go on from a detached copy of the context (step 1)."""
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
        output = forward(*args, **kwargs)  # step 1
        if before is None or self.contexts is None:
            return output
        context, detached = self.contexts
        after = hidden_of_output(output)
        _require_apart(after, before, detached)  # step 2
        direct, heads = _matrices(after, before, detached)  # step 3
        folded = (  # step 4
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
