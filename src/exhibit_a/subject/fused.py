"""Sees a few rows of attention while a model runs its own fused kernel.

Fused kernels (sdpa, flash) never form the n × n probabilities, which is why long texts fit at all.
For each of them we register a name of ours, under which the kernel itself is called with exactly
what the model gave it, so that the answer is the model's own, bit for bit; the tap is served at
every point but ``weighting``. The call it sees, a ``FusedCall``, holds queries, keys and values as
the kernel got them (turned, normed, grouped), and gives any rows of the probabilities:

1. the mask of these rows is read from what the kernel was given: a mask over (query, key), padding
   alone, or the promise to mask the future itself;
2. the family's own eager attention is run on these queries alone, so that scaling, soft-caps,
   sinks and biases are what they always are. Memory is rows × keys.

What was misread would show: the caller compares the averaged values with the kernel's own.
A part of a model that has no fused kernel runs its eager attention through our tap as usual.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
)

from exhibit_a.errors import UnsupportedModelError
from exhibit_a.shapes import Attention, Queries, SharedKeys, SharedValues
from exhibit_a.subject.tap import (
    MASKED,
    NAME,
    AttentionCall,
    Operands,
    Tap,
    attention_by_part,
    eager_function,
    parts_of,
    serve,
    showing,
)

SDPA = "sdpa"
FUSED = (SDPA, "flash_attention_2", "flash_attention_3", "flash_attention_4")

RowIndex = Int[Tensor, " row"]


@dataclass(frozen=True, slots=True, eq=False)
class RequestedRows:
    """Some queries of a call with all its keys and values, from which their rows are computed."""

    module: nn.Module
    given: Operands
    details: dict[str, object]

    def probs(self) -> Attention:
        """The probabilities, by the family's own eager attention (step 2)."""
        _, probs = eager_function(self.module)(self.module, *self.given, **self.details)
        return probs

    def part(self, rows: slice) -> "RequestedRows":
        """Some of these rows, by their places among them."""
        query, key, value, mask = self.given
        size = (query.shape[2], key.shape[2])
        places = torch.arange(size[0], device=query.device)[rows]
        details = {name: _of_rows(detail, places, size) for name, detail in self.details.items()}
        mask = None if mask is None else mask[:, :, rows]
        return RequestedRows(self.module, Operands(query[:, :, rows], key, value, mask), details)

    @property
    def visible(self) -> Tensor | None:
        """Which keys each row may see, (batch, head, row, key); None where it may see all."""
        return None if self.given.mask is None else self.given.mask > MASKED


@dataclass(frozen=True, slots=True, eq=False)
class FusedCall(AttentionCall):
    """One call of a fused kernel: ``probs`` has no rows, but those of any queries can be had."""

    probs: Float[Tensor, "batch head none key"]
    mask: object = None  # as the kernel was given it
    kernel: str = SDPA

    def requested(self, rows: RowIndex) -> "RequestedRows":
        """The call for these queries alone."""
        assert self.module is not None
        assert self.query is not None
        assert self.key is not None
        size = (self.query.shape[2], self.key.shape[2])
        details = {name: _of_rows(detail, rows, size) for name, detail in self.details.items()}
        given = Operands(self.query[:, :, rows], self.key, self.value, self._mask(rows))
        return RequestedRows(self.module, given, details)

    def _mask(self, rows: RowIndex) -> Tensor | None:
        """What is added to the scores of these rows (step 1)."""
        assert self.query is not None
        assert self.key is not None
        given, count, keys = self.mask, self.query.shape[2], self.key.shape[2]
        if isinstance(given, Tensor) and given.ndim == 4:
            picked = given.expand(-1, -1, count, -1)[:, :, rows, :keys]
            return picked if picked.is_floating_point() else _added(picked, self.query)
        seen = torch.ones(1, 1, len(rows), keys, dtype=torch.bool, device=rows.device)
        if self._masks_the_future(count):
            place = torch.arange(keys, device=rows.device)
            row = (rows + (0 if self.kernel == SDPA else keys - count)).unsqueeze(-1)
            seen = seen & (place <= row)
        window = self.details.get("sliding_window")
        if self.kernel != SDPA and window is not None:  # only flash kernels know one
            apart = rows.unsqueeze(-1) - torch.arange(keys, device=rows.device)
            seen = seen & (apart.abs() < window)
        if isinstance(given, Tensor) and given.ndim == 2:
            seen = seen & given[:, None, None, -keys:].bool()
        elif given is not None:
            raise UnsupportedModelError(
                f"The kernel {self.kernel} was given a mask that cannot be read row by row; "
                "capture all rows instead."
            )
        return None if bool(seen.all()) else _added(seen, self.query)

    def _masks_the_future(self, count: int) -> bool:
        """Whether the kernel masks the future by itself, as transformers decides it."""
        requested = self.details.get("is_causal")
        causal = getattr(self.module, "is_causal", True) if requested is None else requested
        given_one = self.kernel == SDPA and self.mask is not None
        return bool(causal) and count > 1 and not given_one


def _added(seen: Tensor, like: Tensor) -> Tensor:
    """A mask of marks as numbers that are added to scores, as eager attention takes it."""
    mask = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill(~seen, torch.finfo(like.dtype).min)


def _of_rows(argument: object, rows: RowIndex, size: tuple[int, int]) -> object:
    """A bias over (query, key) for these rows; anything else as it is."""
    if isinstance(argument, Tensor) and argument.ndim == 4 and argument.shape[-2:] == size:
        return argument[:, :, rows]
    return argument


@contextmanager
def fused_tapping(model: PreTrainedModel, tap: Tap, first: int = 0) -> Iterator[None]:
    """Show every attention call to ``tap`` while the model runs on its own fused kernels."""
    with attention_by_part(model, _our_name), showing(model, tap, first):
        yield


def kernels_of(model: PreTrainedModel) -> tuple[str, ...]:
    """The fused kernels of the parts of a model, each once: its own, or else sdpa."""
    kernels = (_kernel(*part) for part in parts_of(model))
    return tuple(dict.fromkeys(kernel for kernel in kernels if kernel is not None))


def _kernel(built_on: str, model: PreTrainedModel) -> str | None:
    if built_on in FUSED:
        return built_on
    return SDPA if model._supports_sdpa else None


def _our_name(built_on: str, model: PreTrainedModel) -> str:
    """What stands for the kernel of a part, or for its eager attention where it has none."""
    kernel = _kernel(built_on, model)
    return NAME if kernel is None else f"{NAME}_{kernel}"


class _Kernel:
    """A fused kernel behind a name of ours."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self,
        module: nn.Module,
        query: Queries,
        key: SharedKeys,
        value: SharedValues,
        attention_mask: object = None,
        **details: object,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention by the kernel, with the active tap at its points."""
        given = Operands(query, key, value, attention_mask)
        return serve(AttentionInterface()[self.name], self._seen, module, given, details)

    def _seen(
        self, site: int, module: nn.Module, given: Operands, _: object, details: dict[str, object]
    ) -> FusedCall:
        """A fused call, of which no row was requested yet."""
        query, key = given.query, given.key
        none = query.new_empty(len(query), query.shape[1], 0, key.shape[2])
        return FusedCall(site, module, *given[:3], none, None, details, given.mask, self.name)


for _name in FUSED:
    AttentionInterface.register(f"{NAME}_{_name}", _Kernel(_name))
    AttentionMaskInterface.register(f"{NAME}_{_name}", AttentionMaskInterface()[_name])
