"""The changes one can make to attention, by name.

Each function gives an ``Edit`` for one site (or several); ``together`` combines them. A tensor with
a leading batch axis gives every copy of a replay its own change.
"""

import dataclasses
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.shapes import Attention, Context, Queries, SharedKeys, SharedValues
from exhibit_a.subject.anatomy import check_head
from exhibit_a.subject.tap import AttentionCall, Tap


class Edit(Tap):
    """A tap that acts at the sites it names."""

    def __init__(self, sites: Iterable[int]) -> None:
        self.sites = frozenset(sites)

    def acts_at(self, site: int) -> bool:
        """Whether it acts at a site; one that names no site acts everywhere."""
        return not self.sites or site in self.sites


def scale(site: int, factor: float | Float[Tensor, " batch"]) -> Edit:
    """Multiply the attention of a site; 0 silences it, one factor per copy walks a path."""

    def scaled(call: AttentionCall) -> Attention:
        factors = torch.as_tensor(factor, dtype=call.probs.dtype, device=call.probs.device)
        return call.probs * factors.reshape(-1, 1, 1, 1)

    return _Weighting(site, scaled)


def replace(site: int, probs: Float[Tensor, "*batch head query key"]) -> Edit:
    """Put other probabilities in the place of the model's."""
    return _Weighting(site, lambda call: _expanded(probs, call, "map"))


def permute(site: int, order: Int[Tensor, "... key"]) -> Edit:
    """Give each key the weight of another: entry j of a row becomes entry ``order[j]``.

    ``order`` is one permutation for all rows, or has leading axes for heads, queries and copies.
    """
    return _Weighting(site, lambda call: call.probs.gather(-1, _expanded(order, call, "order")))


def drop_heads(heads: Iterable[tuple[int, int]]) -> Edit:
    """Silence heads, given as (site, head) pairs."""
    dropped: dict[int, list[int]] = {}
    for site, head in heads:
        dropped.setdefault(site, []).append(head)
    return _DropHeads(dropped)


def zero_values(site: int, tokens: Bool[Tensor, "*batch key"]) -> Edit:
    """Let the marked keys carry nothing."""
    return _ZeroValues(site, tokens)


def edit_keys(site: int, change: Callable[[SharedKeys], SharedKeys]) -> Edit:
    """Put ``change(keys)`` in the place of the keys, before queries meet them."""
    return _EditKeys(site, change)


def together(*edits: Edit) -> Edit:
    """Several edits in one pass, applied in the order given."""
    return _Together(edits)


class ReplaceRows(Edit):
    """Puts other probabilities in the place of some rows of a site, and leaves all others.

    The rows are averaged anew, and no row but these is looked at: this also works on the model's
    fused kernel.
    """

    def __init__(
        self, site: int, rows: Int[Tensor, " row"], probs: Float[Tensor, "*batch head row key"]
    ) -> None:
        super().__init__([site])
        self.rows, self.probs = rows, probs

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The context, averaged anew in these rows."""
        if call.site not in self.sites:
            return None
        probs = self.probs.to(context).expand(len(context), -1, -1, -1)
        return context.index_copy(2, self.rows.to(context.device), probs @ call.values)


class ContextGradients(Edit):
    """Adds nothing to the context of every call, so that gradients can be requested."""

    def __init__(self) -> None:
        super().__init__(())
        self.seen: list[Tensor] = []  # the contexts themselves, call by call
        self.nudges: list[Tensor] = []  # the zeros that were added, which a gradient can reach

    def result(self, call: AttentionCall, context: Context) -> Context:  # noqa: ARG002
        """The same context."""
        self.seen.append(context.detach())
        self.nudges.append(torch.zeros_like(context).requires_grad_())
        return context + self.nudges[-1]


class _Weighting(Edit):
    def __init__(self, site: int, change: Callable[[AttentionCall], Attention]) -> None:
        super().__init__([site])
        self.change = change

    def weighting(self, call: AttentionCall) -> Attention | None:
        return self.change(call) if call.site in self.sites else None


class _DropHeads(Edit):
    context_only = True

    def __init__(self, dropped: dict[int, list[int]]) -> None:
        super().__init__(dropped)
        self.dropped = dropped

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        if call.site not in self.sites:
            return None
        for head in self.dropped[call.site]:
            check_head(call.site, head, context.shape[1])
        kept = torch.ones(context.shape[1], 1, 1, dtype=context.dtype, device=context.device)
        kept[self.dropped[call.site]] = 0
        return context * kept


class _ZeroValues(Edit):
    def __init__(self, site: int, tokens: Tensor) -> None:
        super().__init__([site])
        self.tokens = tokens

    def values(self, site: int, value: SharedValues) -> SharedValues | None:
        if site not in self.sites:
            return None
        marked = self.tokens.to(value.device).unsqueeze(-1)  # (…, key, 1)
        marked = marked.unsqueeze(-3) if marked.ndim == 3 else marked
        return value.masked_fill(marked, 0)


class _EditKeys(Edit):
    def __init__(self, site: int, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__([site])
        self.change = change

    def scoring(
        self, site: int, query: Queries, key: SharedKeys
    ) -> tuple[Queries, SharedKeys] | None:
        return (query, self.change(key)) if site in self.sites else None


class _Together(Edit):
    def __init__(self, edits: tuple[Edit, ...]) -> None:
        super().__init__(site for edit in edits for site in edit.sites)
        self.edits = edits

    def acts_at(self, site: int) -> bool:
        return any(edit.acts_at(site) for edit in self.edits)

    @property
    def reads_weights(self) -> bool:
        return any(edit.reads_weights for edit in self.edits)

    def scoring(
        self, site: int, query: Queries, key: SharedKeys
    ) -> tuple[Queries, SharedKeys] | None:
        changed = None
        for edit in self.edits:
            changed = edit.scoring(site, *(changed or (query, key))) or changed
        return changed

    def values(self, site: int, value: SharedValues) -> SharedValues | None:
        return self._one_after_the_other(lambda edit, latest: edit.values(site, latest), value)

    def weighting(self, call: AttentionCall) -> Attention | None:
        def weighting(edit: Edit, latest: Tensor) -> Tensor | None:
            return edit.weighting(dataclasses.replace(call, probs=latest))

        return self._one_after_the_other(weighting, call.probs)

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        return self._one_after_the_other(lambda edit, latest: edit.result(call, latest), context)

    def _one_after_the_other(
        self, change: Callable[[Edit, Tensor], Tensor | None], given: Tensor
    ) -> Tensor | None:
        """What all edits make of a tensor, or None where none of them changes it."""
        changed = None
        for edit in self.edits:
            latest = change(edit, given if changed is None else changed)
            changed = changed if latest is None else latest
        return changed


def _expanded(tensor: Tensor, call: AttentionCall, name: str) -> Tensor:
    """A map or an order for every copy, head, query and key of a call."""
    try:
        return tensor.to(call.probs.device).expand(call.probs.shape)
    except RuntimeError as problem:
        raise BadRequestError(
            f"The {name} for site {call.site} has the shape {tuple(tensor.shape)}; the attention "
            f"there has (copy, head, query, key) {tuple(call.probs.shape)}."
        ) from problem
