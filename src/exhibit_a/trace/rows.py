"""The rows of attention that were requested, and what is kept of them.

All maps of a pass are layers × heads × n², which a long text has no room for. With rows requested,
the model runs on its own fused kernel (``subject/fused.py``), and of every site are kept: the
queries of these rows, all keys and values, and what masks the rows. The maps of the rows are
computed from them whenever they are used. Where the model has no fused kernel, its eager maps are
cut down to the rows at once.

1. Rows are positions of the stack that answers; sites of another stack keep no rows.
2. A language model gives its answers from the first requested row on, and no others.
3. The averaged values of the requested rows are compared with what the kernel gave: this is the
   trace's parity, and where it is not rounding, no trace is given.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.shapes import Context, Inputs, SiteVisible
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.fused import FusedCall, RequestedRows
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Operands, shared_to_all
from exhibit_a.trace.passes import (
    AT_SITES,
    LATER,
    AtSites,
    PartialPass,
    Recorder,
    leaves_answers_out,
)

ANSWER = "answer"  # the rows that the answer is predicted from
ROUNDING = 1e-4  # of the largest averaged value: how far two orders of summation may be apart
ENTRIES = 2**24  # of maps that are formed at a time, to compare them

Rows = str | int | slice | Iterable[int]  # as requested
Made = TypeVar("Made")


class LazySequence(Sequence[Made]):
    """Tensors by site, each made from what is kept of it whenever it is requested."""

    def __init__(self, kept: Sequence[Any], make: Callable[[Any], Made]) -> None:
        self._kept, self._make = kept, make

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, place: int) -> Made: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Made, ...]: ...

    def __getitem__(self, place: int | slice) -> Made | tuple[Made, ...]:
        if isinstance(place, slice):
            return tuple(map(self._make, self._kept[place]))
        return self._make(self._kept[place])


def row_request(subject: Subject, prompt: Prompt, rows: Rows) -> "RowRequest":
    """The request for rows of this prompt; what can be checked before the pass is."""
    if isinstance(rows, str):
        if rows != ANSWER:
            raise BadRequestError(
                f'There are no rows {rows!r}; give "{ANSWER}", positions, or a slice of them.'
            )
        if prompt.reply is not None:
            rows = slice(prompt.reply.position, prompt.reply.position + len(prompt.reply.ids))
        elif subject.anatomy.answers == "tokens" and subject.anatomy.sites[-1].stack == "decoder":
            mask = prompt.inputs.get("attention_mask")
            last = -1 if mask is None else int(mask[0].nonzero()[-1])
            rows = (-1,) if subject.model.config.is_encoder_decoder else (last,)
        else:
            raise BadRequestError(
                "Which rows the answer of this model is read from is not known beforehand; name "
                "them, as rows=[0]."
            )
    elif isinstance(rows, int):
        rows = [rows]
    request = RowRequest(_positions(rows))
    count = written_length(subject, prompt.inputs)
    if count is not None:
        request.of(count)
    return request


def _positions(rows: slice | Iterable[int]) -> slice | tuple[int, ...]:
    """Rows as whole numbers; anything else is refused."""
    try:
        if not isinstance(rows, slice):
            return tuple(map(index, rows))
        ends = (rows.start, rows.stop, rows.step)
        return slice(*(None if end is None else index(end) for end in ends))
    except TypeError as problem:
        raise BadRequestError(
            f'Rows are positions, a slice of them, or "{ANSWER}"; {rows!r} is none of these.'
        ) from problem


@dataclass(frozen=True)
class RowRequest:
    """Rows as they were requested, which become positions once the length is known."""

    rows: slice | tuple[int, ...]

    def of(self, count: int) -> tuple[int, ...]:
        """The positions, in their order, in a stack of that length."""
        if isinstance(self.rows, slice):
            if self.rows.step == 0:
                raise BadRequestError("Rows cannot be taken in steps of 0; leave the step out.")
            positions = set(range(count)[self.rows])
        else:
            beyond = [row for row in self.rows if not -count <= row < count]
            if beyond:
                raise BadRequestError(
                    f"There is no row {beyond[0]}; the text has 0 to {count - 1}."
                )
            positions = {row % count for row in self.rows}
        if not positions:
            raise BadRequestError("No row was requested; name at least one.")
        return tuple(sorted(positions))


def written_length(subject: Subject, inputs: Inputs) -> int | None:
    """How many positions the stack that answers has, where ids say so."""
    decodes = subject.model.config.is_encoder_decoder
    ids = inputs.get("decoder_input_ids" if decodes else "input_ids")
    return None if ids is None else int(ids.shape[1])


def later_answers(subject: Subject, inputs: Inputs, request: RowRequest) -> tuple[Inputs, int]:
    """Inputs that give the answers from the first requested row on, and its position (step 2)."""
    count = written_length(subject, inputs)
    if count is None or LATER in inputs or not leaves_answers_out(subject):
        return inputs, 0
    first = request.of(count)[0]
    return ({**inputs, LATER: count - first} if first else inputs), first


class _KeptCall(NamedTuple):
    """What is kept of one call."""

    probs: Callable[[], Tensor]
    query: Tensor | None
    key: Tensor | None  # shared, as the values
    value: Tensor
    heads: int


class RowRecorder(Recorder):
    """Keeps what the requested rows need of every attention call."""

    fused = True

    def __init__(self, keep: Iterable[str], request: RowRequest, sites: Sequence[Site]) -> None:
        super().__init__(())
        self.keep = tuple(name for name in AT_SITES if name in tuple(keep))
        self.request, self.stacks = request, [site.stack for site in sites]
        self.rows: tuple[int, ...] = ()
        self.calls: list[_KeptCall] = []
        self.visible: list[SiteVisible] = []
        self.sizes: list[tuple[int, int]] = []
        self.parity = 0.0

    def weighting(self, call: AttentionCall) -> None:
        """Nothing: an eager call is looked at when its context is known, as a fused one is."""

    def result(self, call: AttentionCall, context: Context) -> None:
        """Remember the requested rows of the call, and compare them with what came of it."""
        count, answers = context.shape[2], self.stacks[call.site] == self.stacks[-1]
        self.rows = self.request.of(count) if answers else self.rows
        positions = self.rows if answers else ()
        rows = torch.tensor(positions, dtype=torch.long, device=context.device)
        query, key = call.query, call.key
        if isinstance(call, FusedCall):
            # Keys and values that do not keep a larger tensor in memory.
            requested = call.requested(rows)
            query, key, value, mask = requested.given
            mask = None if mask is None else _own_memory(mask)
            kept = replace(
                requested, given=Operands(query, _own_memory(key), _own_memory(value), mask)
            )
            self.parity = max(self.parity, _apart(kept, context[:, :, rows]))
            query, key, value, _ = kept.given
            probs, visible = kept.probs, kept.visible
        else:
            cut = call.probs[:, :, rows].clone()
            query, value = _cut(query, rows, count), _own_memory(call.value)
            probs, visible = (lambda: cut), _cut(call.visible, rows, count)
        self.calls.append(_KeptCall(probs, query, key, value, context.shape[1]))
        self.sizes.append((count, value.shape[2]))
        # Which keys each row may see in any head.
        every = torch.ones(1, 1, dtype=torch.bool, device=value.device)
        seen = every if visible is None else visible[0].any(0)
        self.visible.append(seen.expand(len(rows), value.shape[2]))

    def at_sites(self) -> AtSites:
        """What was requested, each made when it is used."""
        makers: dict[str, Callable[[_KeptCall], Tensor | None]] = {
            "attention": lambda call: call.probs(),
            "values": lambda call: shared_to_all(call.value, call.heads),
            "queries": lambda call: call.query,
            "keys": lambda call: None if call.key is None else shared_to_all(call.key, call.heads),
        }
        return {name: LazySequence(self.calls, makers[name]) for name in self.keep}

    def partial_pass(self, subject: Subject) -> PartialPass:
        """What is known of the pass, if the rows are what the kernel computed (step 3)."""
        eps = torch.finfo(subject.dtype).eps
        if not self.parity <= max(ROUNDING, 8 * eps):
            raise BrokenInvariantError(
                f"The requested rows of {type(subject.model).__name__} average values that are "
                f"{self.parity:.1g} of the largest away from what its kernel gives; its mask or "
                "scores are not understood. Capture all rows instead."
            )
        sizes = tuple(self.sizes)
        return PartialPass(self.rows, self.stacks[-1], sizes, self.parity, subject.kernels)


def _own_memory(tensor: Tensor) -> Tensor:
    """The tensor, copied if it is a small part of what would be kept with it."""
    whole = tensor.untyped_storage().nbytes()
    return tensor.clone() if whole > 1.5 * tensor.numel() * tensor.element_size() else tensor


def _apart(rows: RequestedRows, context: Context) -> float:
    """The largest difference between recomputed averages and the kernel's, of the largest."""
    if not context.numel():
        return 0.0
    query, key, value, _ = rows.given
    values, worst = shared_to_all(value, query.shape[1]), 0.0
    step = max(1, ENTRIES // (query.shape[1] * key.shape[2]))
    for start in range(0, query.shape[2], step):
        part = slice(start, start + step)
        few = rows.part(part)
        averages = few.probs().to(values.dtype) @ values
        worst = max(worst, float((averages - context[:, :, part]).abs().amax()))
    return worst / max(float(context.abs().amax()), torch.finfo(torch.float32).tiny)


def _cut(by_query: Tensor | None, rows: Tensor, count: int) -> Tensor | None:
    """What belongs to these rows, in memory of its own."""
    if by_query is None:
        return None
    return by_query.expand(-1, -1, count, -1)[:, :, rows].clone()
