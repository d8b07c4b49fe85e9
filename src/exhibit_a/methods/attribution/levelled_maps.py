"""The attention maps of a text, what it means to level them, and heads that average with them.

A *levelled* head keeps what it gives to its sinks and spreads the rest of each row evenly:

    L(A)_ij = A_ij                                  where key j is a sink of the head,
    L(A)_ij = (Σ A_i − Σ_sinks A_i) / |others|      at the other keys that row i may see.

Rows keep their sum. A sink is where a head looks in order to do nothing, so that a map without it
is not a map that looks nowhere. What can be one is known from how a model reads: the first token of
a causal stack, the special tokens of an encoder or, in cross attention, of the source. It is one
for a head that gives it more than an even share of its rows. The ``uniform`` baseline knows no
sinks: all keys get the same.

Between levelled (0) and its own map (1) a head has a share α,

    P(α) = L(A) + α (A − L(A)).

P itself is never formed: what a head averages is P V = L V + α (A V − L V). The maps A are *frozen*
as the pass had them, or *follow*: then A is what the copy itself computes, and L(A) follows it.

Many copies of the text run as one batch. Where they are frozen, the map of a head is the same in
every copy and only the values differ, so that the values of all copies stand next to each other and
one product for each head serves them all. Levelling needs no map of its own: it is the sum of the
values, the same for all rows that see the same keys, and a correction at the sinks. Where only some
rows are computed (``KeptPositions``), all that stands before them is a constant of the head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.numerics.permutations import permute_rows
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context, SharedValues, SiteMap, SiteRows
from exhibit_a.subject.replay_skips import KeptPositions, replay_skips
from exhibit_a.subject.tap import AttentionCall, shared_to_all
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit

Baseline = Literal["levelled", "uniform"]

# Equal copies can be one row, so that the numbers of rows are not compared.
Averaged = Float[Tensor, "_copy _head _query d_head"]
CopyValues = Float[Tensor, "_copy _kv_head _key d_head"]
SiteShares = Float[Tensor, "head copy"]
CopyMaps = Float[Tensor, "*copy head query key"]  # the same for all copies, or of each


def average(maps: SiteMap, value: CopyValues) -> Averaged:
    """What every head averages in every copy, in the precision of the maps.

    >>> from exhibit_a.methods.attribution.levelled_maps import average
    >>> maps, value = torch.rand(4, 3, 5), torch.rand(7, 2, 5, 8)  # two heads share their values
    >>> torch.allclose(average(maps, value), maps @ value.repeat_interleave(2, 1))
    True
    """
    (heads, queries, keys), (copies, shared, _, width) = maps.shape, value.shape
    by_value = maps.reshape(shared, -1, keys)
    side_by_side = value.permute(1, 2, 0, 3).reshape(shared, keys, copies * width)
    product = (by_value @ side_by_side.to(maps.dtype)).view(heads, queries, copies, width)
    return product.permute(2, 0, 1, 3)


@dataclass(frozen=True, eq=False)
class SiteSinks:
    """The sinks of one site, and which keys its rows may see."""

    visible: Bool[Tensor, "query key"]
    keys: Int[Tensor, " sink"]  # that are a sink of some head,
    kept: Bool[Tensor, "head sink"]  # and of which

    @cached_property
    def in_rows(self) -> Bool[Tensor, "head query sink"]:
        """Where a row sees a sink of its head."""
        return self.kept[:, None] & self.visible[:, self.keys]

    @cached_property
    def others(self) -> Int[Tensor, "head query"]:
        """How many keys that are no sinks each row may see."""
        return self.visible.sum(-1) - self.in_rows.sum(-1)

    def level(self, maps: CopyMaps) -> tuple[Tensor, Tensor]:
        """The weight at the other keys of every row, and what sinks have more than that."""
        at_sinks = maps[..., self.keys] * self.in_rows
        rest = maps.sum(-1) - at_sinks.sum(-1)
        weight = rest / self.others.clamp_min(1) * (self.others > 0)
        return weight, at_sinks - weight.unsqueeze(-1) * self.in_rows

    def permutable(self, head: int) -> Bool[Tensor, "query key"]:
        """The keys among which the weights of a head's rows can be permuted."""
        seen = self.visible.clone()
        seen[:, self.keys[self.kept[head]]] = False
        return seen


def sinks_of(trace: Trace, site: int, maps: SiteMap, baseline: Baseline) -> SiteSinks:
    """The sinks of every head of a site: keys that take more than an even share of its rows."""
    visible, at = trace.visible[site].to(maps.device), trace.sites[site]
    keys = trace.keys_of(site)
    if baseline == "uniform" or not len(visible):
        candidates = torch.empty(0, dtype=torch.long)
    elif at.causal and at.kind == "self":
        candidates = keys.real.nonzero().flatten()[:1]
    else:
        candidates = (keys.special & keys.real).nonzero().flatten()
    candidates = candidates.to(maps.device)
    real = trace.queries_of(site).real.to(maps.device)
    looking = visible[:, candidates] & real.unsqueeze(-1)
    even = maps.sum(-1, keepdim=True) / visible.sum(-1).clamp_min(1).unsqueeze(-1)
    more = (maps[..., candidates] - even) * looking
    kept = more.sum(1) > 0
    some = kept.any(0)
    return SiteSinks(visible, candidates[some], kept[:, some])


@dataclass(frozen=True, eq=False)
class GameMaps:
    """The maps of a pass, as they were and levelled."""

    trace: Trace
    own: tuple[SiteMap, ...]
    sinks: tuple[SiteSinks, ...]
    weight: tuple[SiteRows, ...]  # of every visible key in a levelled row that is no sink
    correction: tuple[Float[Tensor, "head _query _sink"], ...]  # at the sinks
    kept: KeptPositions | None  # where only the kept rows are computed

    @classmethod
    def of(cls, trace: Trace, baseline: Baseline, kept: KeptPositions | None) -> "GameMaps":
        """The maps of a pass."""
        trace = trace.keeping("attention", "values", "hidden")
        own = tuple(at_least_float32(maps) for maps in trace.attention)
        sinks = tuple(sinks_of(trace, site, maps, baseline) for site, maps in enumerate(own))
        levels = [each.level(maps) for each, maps in zip(sinks, own, strict=True)]
        weight, correction = zip(*levels, strict=True)
        return cls(trace, own, sinks, weight, correction, kept)

    def levelled(self, site: int) -> SiteMap:
        """The levelled maps of a site; made when used: those of all sites take much memory."""
        weight, sinks = self.weight[site], self.sinks[site]
        maps = weight.unsqueeze(-1) * sinks.visible.to(weight)
        maps[..., sinks.keys] += self.correction[site]
        return maps

    def rows_of(self, site: int) -> tuple[int, ...]:
        """The queries of a site that are frozen or levelled, where not all were kept."""
        return (self.trace.rows or ()) if self.own[site].shape[1] else ()

    def computes_all(self, site: int) -> bool:
        """Whether a replay computes the values of all keys of a site."""
        return self.kept is None or self.kept.visible[site] is None

    def own_average(self, site: int, value: CopyValues) -> Averaged:
        """What every head averages with its own map, of the values that were computed."""
        if self.computes_all(site):
            return average(self.own[site], value)
        return self._constants[site][0] + average(self._in_rows(self.own[site]), value)

    def level_average(self, site: int, value: CopyValues) -> Averaged:
        """What every head averages when it is levelled, of the values that were computed."""
        if not self.computes_all(site):
            return self._constants[site][1] + average(self._in_rows(self.levelled(site)), value)
        return _levelled(self.sinks[site], self.weight[site], self.correction[site], value)

    @cached_property
    def _constants(self) -> dict[int, tuple[Averaged, Averaged]]:
        """What own and levelled maps average at the positions that are not computed."""
        assert self.kept is not None
        constants, rows = {}, self.kept.rows
        for site, own in enumerate(self.own):
            if self.computes_all(site):
                continue
            values = self.kept.values[site].index_fill(2, rows.to(own.device), 0.0)
            pair = average(own, values), average(self.levelled(site), values)
            constants[site] = pair
        return constants

    def _in_rows(self, maps: SiteMap) -> SiteMap:
        assert self.kept is not None
        return maps[..., self.kept.rows.to(maps.device)]


def _levelled(sinks: SiteSinks, weight: Tensor, correction: Tensor, value: CopyValues) -> Averaged:
    """What levelled maps average, from the weights of their rows and what sinks have more.

    Maps may be the same for all copies, (head, query, …), or differ, (copy, head, query, …).
    """
    heads, visible = weight.shape[-2], sinks.visible
    alike = len(visible) > 0 and bool((visible == visible[0]).all())
    marks = (visible[:1] if alike else visible).to(weight)
    summed = shared_to_all(average(marks[None].expand(value.shape[1], -1, -1), value), heads)
    averaged = summed * weight.unsqueeze(-1)
    if not len(sinks.keys):
        return averaged
    at_sinks = shared_to_all(value[:, :, sinks.keys], heads).to(weight)
    return averaged + correction @ at_sinks


class Frozen(Edit):
    """Puts what the heads of some copies average in the place of what the model averages.

    The model's own weights are not computed for that, unless only some rows were kept and all are
    computed, or it cannot know where its attention begins.
    """

    context_only = True

    def __init__(self, maps: GameMaps, copies: int, first: int = 0) -> None:
        super().__init__(range(first, len(maps.own)))
        self.maps, self.copies, self.first = maps, copies, first

    def made(self, site: int, value: CopyValues, call: AttentionCall | None) -> Averaged:
        """What the rows that were kept average; ``call`` is the model's own, if it was made."""
        raise NotImplementedError

    @property
    def gives_contexts(self) -> bool:
        """Whether the model's own weights are not needed."""
        return self.maps.trace.rows is None or self.maps.kept is not None

    def averaged(self, site: int, value: SharedValues) -> Context | None:
        """All rows that are computed, before the model has looked anywhere."""
        if site not in self.sites or not self.gives_contexts or not self._plays(site):
            return None
        equal = replay_skips().sharing
        return self.made(site, value[:1] if equal else value, None).to(value.dtype)

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The rows that were kept, after the model has looked."""
        if call.site not in self.sites or not self._plays(call.site):
            return None
        if self.maps.trace.rows is None or self.maps.kept is not None:
            return self.made(call.site, call.value, call).to(context.dtype)
        rows = torch.tensor(self.maps.rows_of(call.site), dtype=torch.long, device=context.device)
        made = self.made(call.site, call.value, call)
        return context.index_copy(2, rows, made.to(context.dtype))

    def _plays(self, site: int) -> bool:
        """Whether any row of a site is frozen or levelled; a source is not, where rows are few."""
        return self.maps.trace.rows is None or self.maps.own[site].shape[1] > 0


class Permuted(Frozen):
    """Permutes the weights of every row among keys that are no sinks, anew for each repeat."""

    def __init__(self, maps: GameMaps, repeats: Sequence[int], seed: int) -> None:
        super().__init__(maps, len(repeats))
        self.repeats, self.seed = repeats, seed

    def made(self, site: int, value: CopyValues, call: AttentionCall | None) -> Averaged:  # noqa: ARG002
        """Every copy with weights of its own."""
        maps, rows = self.maps, value.expand(self.copies, -1, -1, -1)
        before = None if maps.computes_all(site) else maps.kept
        averages = []
        for copy, repeat in enumerate(self.repeats):
            permuted, values = self._permuted(site, repeat), rows[copy : copy + 1]
            if before is not None:
                values = before.placed(before.values[site], values)
            averages.append(average(permuted, values))
        return torch.cat(averages)

    def _permuted(self, site: int, repeat: int) -> SiteMap:
        """The maps of a site with permuted rows; heads with the same sinks are drawn together."""
        own, sinks = self.maps.own[site], self.maps.sinks[site]
        seeded, permuted = generator(self.seed, site, repeat), torch.empty_like(own)
        alike: dict[tuple[bool, ...], list[int]] = {}
        for head, kept in enumerate(sinks.kept.tolist()):
            alike.setdefault(tuple(kept), []).append(head)
        for heads in alike.values():
            permuted[heads] = permute_rows(own[heads], sinks.permutable(heads[0]), seeded)
        return permuted


class Blend(Frozen):
    """Every head with its share of its own map, the rest levelled.

    With ``following``, own maps are those that the copy computes, and gradients go through them.
    """

    def __init__(
        self,
        maps: GameMaps,
        shares: Sequence[SiteShares],
        *,
        first: int = 0,
        with_gradients: bool = False,
        following: bool = False,
    ) -> None:
        super().__init__(maps, shares[0].shape[1], first)
        self.shares, self.with_gradients, self.following = shares, with_gradients, following
        self.contexts: list[Tensor] = []  # what gradients can be requested, site by site
        self.values_seen: list[Tensor] = []  # what each of its heads averages
        self.moved: list[Tensor] = []  # what is between levelled and not, A V − L V

    @property
    def reads_weights(self) -> bool:
        """Only where maps follow: their sinks are looked at."""
        return self.following

    @property
    def gives_contexts(self) -> bool:
        """Not where heads look where they would."""
        return super().gives_contexts and not self.following

    def made(self, site: int, value: CopyValues, call: AttentionCall | None) -> Averaged:
        """The head's own average and the levelled one, blended."""
        if self.following:
            assert call is not None
            own, level = self._followed(site, call)
        else:
            own, level = self.maps.own_average(site, value), None
        shares = self.shares[site].T.to(own.device)[..., None, None]
        if not self.with_gradients and bool((shares == 1).all()):
            return own.expand(self.copies, -1, -1, -1)
        level = self.maps.level_average(site, value) if level is None else level
        blended = torch.lerp(level, own, shares.to(own))
        if not self.with_gradients or self.following:
            return blended
        context = blended if blended.requires_grad else blended.detach().requires_grad_()
        values = shared_to_all(value.detach(), context.shape[1])
        self.contexts.append(context)
        self.values_seen.append(values.expand(len(context), -1, -1, -1))
        self.moved.append((own - level).detach().expand(context.shape))
        return context

    def _followed(self, site: int, call: AttentionCall) -> tuple[Averaged, Averaged]:
        """What the copies average with maps of their own, and with these levelled."""
        probs = at_least_float32(call.probs)
        if self.maps.trace.rows is not None and self.maps.kept is None:
            rows = torch.tensor(self.maps.rows_of(site), dtype=torch.long, device=probs.device)
            probs = probs[:, :, rows]
        value, sinks = at_least_float32(call.value), self.maps.sinks[site]
        own = probs @ shared_to_all(value, probs.shape[1])
        return own, _levelled(sinks, *sinks.level(probs), value)
