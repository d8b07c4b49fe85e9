"""Leaves out of a replay what need not be computed twice, or at all.

Four things, and to leave them out changes no number beyond its rounding:

* **Copies.** A batch often holds many copies of one text, each with an edit of its own. Until the
  edit acts they are equal: weights meet every text once, and what comes out is repeated. What is
  given to the first layer is compared first, so that rows which differ are never taken for copies.
* **Rows.** Behind its attention, a layer treats every token by itself. Where few rows of the last
  layer are read, the others end there:

  1. the layer runs until its attention is known, and is stopped;
  2. it runs again on the rows that are read alone, and where it asks for attention it is given
     theirs. Rows that are not read are zero.

  That a layer is like this is not believed but tried, text by text (``trace/answer_rows.py``).
* **Queries and keys**, where what heads average is given (``weight_makers.py``).
* **Earlier positions.** In a causal model nothing that happens at a position reaches an earlier
  one. Where only some rows are edited, the model is given these positions alone, and their queries
  meet the keys and values that the others had (``KeptPositions``).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from exhibit_a.errors import BadRequestError
from exhibit_a.subject.guard import Forward, giving_zeros, wrap_forward

RowIndex = Int[Tensor, " _row"]


class _AttentionKnown(Exception):  # noqa: N818 - it is not an error
    """The attention of the layer is known, and the rest of it need not run."""


@dataclass(frozen=True, eq=False)
class KeptPositions:
    """Keys and values of a pass, for a replay in which only some rows are computed."""

    rows: RowIndex
    keys: Sequence[Tensor]  # of every site, (1, kv_head, key, width)
    values: Sequence[Tensor]
    visible: Sequence[Tensor | None]  # (row, key); None where the site looks at another stack

    @property
    def part(self) -> float:
        """How many of all positions are computed."""
        return len(self.rows) / self.keys[-1].shape[2]

    def completed(
        self, site: int, key: Tensor, value: Tensor, mask: object
    ) -> tuple[Tensor, Tensor, object]:
        """The keys, values and mask of a call, at all positions and not only at those computed."""
        seen = self.visible[site]
        if seen is None:
            return key, value, mask
        hidden = torch.zeros(seen.shape, dtype=key.dtype, device=key.device)
        hidden.masked_fill_(~seen.to(key.device), torch.finfo(key.dtype).min)
        key, value = self.placed(self.keys[site], key), self.placed(self.values[site], value)
        return key, value, hidden[None, None]

    def placed(self, kept: Tensor, computed: Tensor) -> Tensor:
        """What was kept of all positions, with what was computed at its rows."""
        every = kept.to(computed).expand(len(computed), -1, -1, -1)
        return every.index_copy(2, self.rows.to(computed.device), computed)


class ReplaySkips:
    """What one replay leaves out."""

    def __init__(
        self,
        texts: RowIndex | None = None,
        read: Sequence[int] | None = None,
        sites: int = 0,
        idle: Sequence[nn.Module] = (),
        kept: KeptPositions | None = None,
    ) -> None:
        self.kept = kept  # where only some rows are computed
        self.idle = idle  # modules that need not run
        self.read = None if read is None else torch.tensor(read, dtype=torch.long)
        self.sites = sites  # of the last layer
        self.held: list[Tensor] | None = None  # the contexts of the last layer, in step 1
        self.known: list[Tensor] = []  # and those that are given to it, in step 2
        self.sharing = False  # whether the rows are still what they are copies of
        self.first, self.place = _copies(texts)

    def distinct(self, rows: Tensor) -> Tensor:
        """One row of each text; what has no row for every copy, and no states, as it is."""
        by_copy = rows.ndim > 2 and len(rows) == len(self.place)
        return rows[self.first.to(rows.device)] if by_copy else rows

    def repeated(self, texts: Tensor) -> Tensor:
        """The rows of all copies, from one of each text."""
        return texts[self.place.to(texts.device)]

    @contextmanager
    def active(self, first: nn.Module | None) -> Iterator[None]:
        """Leave out what can be while the block runs; ``first`` is the first layer computed."""
        token = _sparing.set(self)
        leaves: list[nn.Module] = []
        if first is not None and len(self.first) < len(self.place):
            leaves = [
                part
                for part in first.modules()
                if not part._modules and any(w is not None for w in part._parameters.values())
            ]
        try:
            with wrap_forward(leaves, self._once), ExitStack() as resting:
                for module in self.idle:
                    resting.enter_context(giving_zeros(module))
                yield
        finally:
            _sparing.reset(token)

    def enter(self, forward: Forward, *args: object, **kwargs: object) -> object:
        """Run the first layer, whose states are the same for all copies unless they differ."""
        states = _states(args, kwargs)
        if states is not None and len(states) == len(self.place) > len(self.first):
            self.sharing = torch.equal(states, self.repeated(self.distinct(states)))
        try:
            return forward(*args, **kwargs)
        finally:
            self.sharing = False

    def finish(self, forward: Forward, *args: object, **kwargs: object) -> object:
        """Run the last layer, for the rows that are read."""
        states = _states(args, kwargs)
        if self.read is None or states is None:
            return forward(*args, **kwargs)
        wanted, last = self.read.tolist(), states.shape[1] - 1
        if not wanted or not 0 <= min(wanted) <= max(wanted) <= last:
            raise BadRequestError(f"The last layer has rows 0 to {last}; {wanted} were to be read.")
        self.held = []
        try:
            return forward(*args, **kwargs)  # a layer whose attention is not seen runs to its end
        except _AttentionKnown:
            self.known = self.held
        finally:
            self.held = None
        count, rows = states.shape[1], self.read.to(states.device)

        def read(tensor: Tensor) -> Tensor:
            by_token = tensor.ndim in (2, 3) and tensor.shape[1] == count
            return tensor[:, rows] if by_token else tensor

        def put_back(tensor: Tensor) -> Tensor:
            if tensor.ndim != 3 or tensor.shape[1] != len(rows):
                return tensor
            whole = tensor.new_zeros(len(tensor), count, tensor.shape[2])
            return whole.index_copy(1, rows, tensor)

        few, named = tree_map_only(Tensor, read, (tuple(args), dict(kwargs)))
        try:
            return tree_map_only(Tensor, put_back, forward(*few, **named))
        finally:
            self.known = []

    def attended(self, context: Tensor) -> None:
        """Note what a site averaged, (row, query, head, width); stops in step 1 when all are."""
        self.sharing = False  # from here on an edit may have acted
        if self.held is None or self.read is None:
            return
        if context.shape[1] != len(self.read):
            context = context[:, self.read.to(context.device)]
        self.held.append(context)
        if len(self.held) == self.sites:
            raise _AttentionKnown

    @property
    def requested(self) -> RowIndex | None:
        """The rows that are read of the attention at which the last layer stops, in step 1."""
        stops = self.held is not None and len(self.held) == self.sites - 1
        return self.read if stops else None

    def _once(self, forward: Forward) -> Forward:
        """A module with weights, which meets every text once while copies are equal."""

        def once(*args: object, **kwargs: object) -> object:
            given = args[0] if len(args) == 1 and not kwargs else None
            if not self.sharing or not isinstance(given, Tensor) or given.ndim != 3:
                return forward(*args, **kwargs)
            texts = self.distinct(given)
            made = forward(texts)
            by_token = isinstance(made, Tensor) and made.shape[:2] == texts.shape[:2]
            return self.repeated(made) if by_token else forward(given)

        return once


def replay_skips() -> ReplaySkips:
    """What the replay that runs leaves out; outside of replays nothing."""
    return _sparing.get()


def _copies(texts: RowIndex | None) -> tuple[RowIndex, RowIndex]:
    """The first row of every text, and for every row the place of its text among these."""
    if texts is None:
        return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    numbers = texts.tolist()
    first = {number: row for row, number in reversed(list(enumerate(numbers)))}
    places = {number: place for place, number in enumerate(first)}
    return torch.tensor(list(first.values())), torch.tensor([places[n] for n in numbers])


def _states(args: Sequence[object], kwargs: dict[str, object]) -> Tensor | None:
    """The states (row, token, width) that a layer is given."""
    states = args[0] if args else kwargs.get("hidden_states")
    is_states = isinstance(states, Tensor) and states.ndim == 3 and states.is_floating_point()
    return states if is_states else None  # type: ignore[return-value]


NOTHING = ReplaySkips()  # it has no copies and no rows, and so it never changes
_sparing: ContextVar[ReplaySkips] = ContextVar("exhibit_a_sparing", default=NOTHING)
