"""Reaches attention in families that do not look it up by name.

They all still compute a softmax and multiply it with something. A torch function mode sees both:

1. products are remembered: one of them multiplies queries with keys;
2. a softmax over four axes may belong to an attention call; the first remembered product that has
   the shape of its scores made them;
3. the very next product must take those probabilities: it is the averaging, its other operand the
   values. If it does not, the softmax was something else.

The tap's points are served at step 1 (scoring) and step 3 (values, weighting, result). Operands
come as ``(batch, head, …)`` or with both axes folded into one; einsum letters are read from the
equation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from exhibit_a.shapes import Options
from exhibit_a.subject.function_mode import Arguments, Function, FunctionMode
from exhibit_a.subject.packing import refusing_borders
from exhibit_a.subject.tap import MASKED, AttentionCall, Scorers, Tap, attention_implementation

Multiply = Callable[[Tensor, Tensor], Tensor]

_SOFTMAX = {torch.softmax, torch.nn.functional.softmax, Tensor.softmax}
_PRODUCT = {torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__}


@contextmanager
def softmax_tapping(
    model: PreTrainedModel, tap: Tap, *, first: int = 0, scorers: Scorers = ()
) -> Iterator[None]:
    """Show every softmax that averages values to ``tap``.

    Without ``scorers`` the point ``scoring`` is not served: a product can only be recognised as
    queries times keys beforehand when it is known what these look like.
    """
    with (
        attention_implementation(model, "eager"),
        refusing_borders(model),
        _SoftmaxMode(tap, first, scorers),
    ):
        yield


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A softmax whose probabilities no product has taken yet."""

    probs: Tensor
    scores: Tensor
    query: Tensor | None
    key: Tensor | None


class _SoftmaxMode(FunctionMode):
    """Watches products and softmaxes in the order the model makes them."""

    def __init__(self, tap: Tap, first: int, scorers: Scorers) -> None:
        super().__init__()
        self.tap, self.site, self.scorers = tap, first, scorers
        self.pending: _Pending | None = None
        self.products: list[tuple[Tensor, Tensor]] = []  # since the last attention call
        self.scored = False

    def called(self, func: Function, args: Arguments, kwargs: Options) -> object:
        """Serve the tap where ``func`` is part of attention, otherwise just call it."""
        if func in _SOFTMAX:
            return self._softmax(func(*args, **kwargs), args[0])
        if func in _PRODUCT and len(args) == 2 and not kwargs:
            return self._product(func, args[0], args[1])
        if func is Tensor.baddbmm and {"batch1", "batch2"} <= kwargs.keys():
            rest = {name: kwargs[name] for name in kwargs.keys() - {"batch1", "batch2"}}
            return self._product(
                lambda left, right: func(args[0], left, right, **rest),
                kwargs["batch1"],
                kwargs["batch2"],
            )
        if func is torch.einsum and len(args) == 3:
            return self._einsum(*args)
        return func(*args, **kwargs)

    def _product(self, multiply: Multiply, left: Tensor, right: Tensor) -> Tensor:
        if self.pending is not None and _may_be(left, self.pending.probs):
            return self._average(self.pending, multiply, left, right)
        self.pending = None  # whatever that softmax was, the next product did not average with it
        if left.ndim < 3 or left.ndim != right.ndim:
            return multiply(left, right)
        if self._are_queries(left):
            left, right = self._score(left, right)
        self.products.append((left, right))
        return multiply(left, right)

    def _einsum(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        """Average values whose axes stand in the order of the equation."""
        before, values, after = equation.replace(" ", "").replace("->", ",").split(",")
        if self.pending is None or not _may_be(left, self.pending.probs) or len(values) != 4:
            return torch.einsum(equation, left, right)
        batch, head, query, key = tuple(before)
        (width,) = set(values) - set(before)
        value = torch.einsum(f"{values}->{batch}{head}{key}{width}", right)
        context = self._average(self.pending, torch.matmul, left, value)
        return torch.einsum(f"{batch}{head}{query}{width}->{after}", context)

    def _are_queries(self, left: Tensor) -> bool:
        if self.scored or self.site >= len(self.scorers):
            return False
        heads, width = self.scorers[self.site]
        folded = left.ndim == 3 and left.shape[0] % heads == 0
        return left.shape[-1] == width and (folded or (left.ndim == 4 and left.shape[1] == heads))

    def _score(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        self.scored = True
        heads = self.scorers[self.site][0]
        changed = self.tap.scoring(
            self.site, _unfold(left, heads), _unfold(right.transpose(-1, -2), heads)
        )
        if changed is None:
            return left, right
        query, key = changed
        return query.reshape(left.shape), key.transpose(-1, -2).reshape(right.shape)

    def _softmax(self, probs: Tensor, scores: Tensor) -> Tensor:
        if probs.ndim == 4:
            query, key = self._query_and_key(probs)
            self.pending = _Pending(probs, scores, query, key)
        return probs

    def _query_and_key(self, probs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The operands of the product that made the scores behind ``probs``, where it was seen."""
        rows, heads = probs.numel() // probs.shape[-1], probs.shape[1]
        for left, right in self.products:
            scores_made = (
                left.numel() // left.shape[-1] == rows and left.shape[-2] == probs.shape[-2]
            )
            if scores_made and right.shape[-1] == probs.shape[-1]:
                return _unfold(left, heads), _unfold(right.transpose(-1, -2), heads)
        return None, None

    def _average(
        self, pending: _Pending, multiply: Multiply, left: Tensor, right: Tensor
    ) -> Tensor:
        site, heads = self.site, pending.probs.shape[1]
        self.site, self.pending, self.products, self.scored = site + 1, None, [], False

        value = _unfold(right, heads)
        replaced = self.tap.values(site, value)
        if replaced is not None:
            value, right = replaced, replaced.reshape(right.shape)
        scores = pending.scores
        call = AttentionCall(
            site=site,
            module=None,
            query=pending.query,
            key=pending.key,
            value=value,
            probs=left.reshape(pending.probs.shape),
            visible=scores - scores.amax(-1, keepdim=True) > MASKED,
            details={"scores": scores},
        )
        edited = self.tap.weighting(call)
        if edited is not None:
            left = edited.to(right.dtype).reshape(left.shape)
        context = multiply(left, right)
        changed = self.tap.result(call, _unfold(context, heads))
        return context if changed is None else changed.reshape(context.shape)


def _may_be(operand: Tensor, probs: Tensor) -> bool:
    """Whether ``operand`` can be the probabilities, perhaps with batch and head folded."""
    return operand.numel() == probs.numel() and operand.shape[-2:] == probs.shape[-2:]


def _unfold(operand: Tensor, heads: int) -> Tensor:
    """``(batch, head, row, column)`` from an operand that may have batch and head folded."""
    return operand if operand.ndim == 4 else operand.reshape(-1, heads, *operand.shape[1:])
