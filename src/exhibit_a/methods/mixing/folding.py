"""What does a layer do with a token once its attention has spoken? One matrix for each token says.

Heads are where tokens meet. Everything else in a layer, before and after, is done to every token by
itself, so that to first order the new state of token t is

    h′_t  =  h′_t(now) + B_t · change of h_t + C_t · change of c_t

with h the layer's input and c what its heads averaged. A change pushed through the two matrices
costs 4d² operations a token, through output projection, feed-forward network and norms 18d² or so.
Making the matrices costs as much as d changes, so it pays where many more are pushed.

Whether tokens really are kept apart is not believed but tried: see ``_require_apart``.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.mixing.tangent_kernels import change_of
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.guard import Forward
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.layers import hidden_of_output

TOGETHER = 64  # rows of a matrix that are found in one pass backwards


class Fold(Tap):
    """Opens every layer at its attention, and replaces what comes after it by two matrices."""

    def __init__(self, trace: Trace) -> None:
        self.sites = Counter(site.call for site in trace.sites)
        self.open = False
        self.said: tuple[Tensor, Tensor] | None = None

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """Let the layer go on from a context that does not remember where it comes from."""
        del call
        if not self.open:
            return None
        self.said = context, context.detach().requires_grad_()
        return self.said[1]

    def through(
        self, call: int, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The output of a layer call, as two matrices where that can be."""
        before = first_hidden(args, kwargs)
        # Of two sites in one layer, the second asks with what the first has said: not to be cut.
        self.open = self.sites[call] == 1 and before is not None and before.requires_grad
        self.said = None
        output = forward(*args, **kwargs)
        if before is None or self.said is None:
            return output
        context, cut = self.said
        after = hidden_of_output(output)
        _require_apart(after, before, cut)
        direct, heads = _matrices(after, before, cut)
        folded = (
            after.detach()
            + token_by_token(change_of(before), direct)
            + token_by_token(change_of(_by_token(context)), heads)
        )
        return folded if isinstance(output, Tensor) else (folded, *output[1:])


def side_by_side(
    way: Callable[[Tensor], tuple[Tensor, ...]], changes: Tensor, size: int | None = None
) -> tuple[Tensor, ...]:
    """What every change comes to, ``size`` of them at a time (vmap)."""
    with warnings.catch_warnings():  # the few kernels that take one at a time are merely slower
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        found: tuple[Tensor, ...] = torch.func.vmap(way, chunk_size=size)(changes)
    return found


def token_by_token(
    given: Float[Tensor, "batch token in"], matrices: Float[Tensor, "batch token in out"]
) -> Float[Tensor, "batch token out"]:
    """Every token's vector times its own matrix."""
    found: Tensor = _TokenByToken.apply(given, matrices)  # type: ignore[no-untyped-call]
    return found


class _TokenByToken(torch.autograd.Function):
    """Products with many changes at a time share the matrix; vmap by itself would copy it."""

    @staticmethod
    def forward(given: Tensor, matrices: Tensor) -> Tensor:
        return (given.unsqueeze(-2) @ matrices).squeeze(-2)

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
        info: Any, in_dims: tuple[int | None, ...], given: Tensor, matrices: Tensor
    ) -> tuple[Tensor, int]:
        del info
        assert in_dims[0] is not None
        many = given.movedim(in_dims[0], -2)  # (batch, token, change, in)
        return (many @ matrices).movedim(-2, 0), 0


def _require_apart(after: Tensor, before: Tensor, cut: Tensor) -> None:
    """Refuse a layer whose tokens meet outside its heads.

    Nothing may flow back from some tokens to others, and any two tokens are told apart by a bit of
    their numbers. It would have to be zero exactly, so the smallest leak is seen.
    """
    number = torch.arange(after.shape[1], device=after.device)
    bits = 2 ** torch.arange(max(1, int(number[-1]).bit_length()), device=after.device)
    some = (number & bits.unsqueeze(1)) > 0
    asked = torch.cat([some, ~some])
    chance = torch.randn(after.shape, generator=generator(0)).to(after)
    back = _backwards(after, before, cut)
    direct, heads = side_by_side(lambda chosen: back(chosen.unsqueeze(-1) * chance), asked)
    if any(bool(part[~asked.unsqueeze(1)].any()) for part in (direct, _by_token(heads))):
        raise BrokenInvariantError("Tokens meet outside the heads of a layer; it is not folded.")


def _matrices(
    after: Tensor, before: Tensor, cut: Tensor
) -> tuple[Float[Tensor, "batch token state out"], Float[Tensor, "batch token heads out"]]:
    """B and C of all tokens: one cotangent for each entry of a state, at all tokens at once."""
    back = _backwards(after, before, cut)
    entries = torch.eye(after.shape[-1], dtype=after.dtype, device=after.device)
    found = side_by_side(lambda entry: back(entry.expand_as(after)), entries, TOGETHER)
    direct, heads = found[0], _by_token(found[1])
    return direct.permute(1, 2, 3, 0).contiguous(), heads.permute(1, 2, 3, 0).contiguous()


def _backwards(
    after: Tensor, before: Tensor, cut: Tensor
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """From a cotangent of the new states to those of the old ones and of the context."""
    return lambda cotangent: torch.autograd.grad(
        after, (before, cut), cotangent, retain_graph=True, materialize_grads=True
    )


def _by_token(context: Float[Tensor, "*any head token width"]) -> Float[Tensor, "*any token all"]:
    return context.transpose(-3, -2).flatten(-2)
