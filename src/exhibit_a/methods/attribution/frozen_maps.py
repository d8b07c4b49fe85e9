"""The attention maps of a text, frozen, and what heads average when these are put in place.

Frozen maps are those of the pass (A) and uniform ones (U), whose rows spread their weight over all
keys they may see. Many copies of the text run as one batch, each with a share α for every head,

    P(α) = U + α (A − U).

P itself is never formed: what a head averages is P V = U V + α (A V − U V), and each product serves
all copies. Where the other maps may *follow* a change, A V is what the model averages by itself.

The map of a head is the same in every copy, only the values differ. So the values of all copies
stand side by side, and one product for each head serves them all: a map is read once, and no map is
made for a copy. Uniform maps need no product where all rows see the same keys: the mean of the
values is the same for all of them. Query heads that share values are rows of one map.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.numerics.permutations import permute_rows
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context, SharedValues, SiteMap, SiteRows
from exhibit_a.subject.replay_skips import replay_skips
from exhibit_a.subject.tap import AttentionCall, shared_to_all
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit

# Equal copies can be one row, so that the numbers of rows are not compared.
Averaged = Float[Tensor, "_copy _head _query d_head"]
CopyValues = Float[Tensor, "_copy _kv_head _key d_head"]
SiteShares = Float[Tensor, "head copy"]


def average(maps: SiteMap, value: CopyValues) -> Averaged:
    """What every head averages in every copy, in the precision of the maps.

    >>> from exhibit_a.methods.attribution.frozen_maps import average
    >>> maps, value = torch.rand(4, 3, 5), torch.rand(7, 2, 5, 8)  # two heads share their values
    >>> torch.allclose(average(maps, value), maps @ value.repeat_interleave(2, 1))
    True
    """
    (heads, queries, keys), (copies, shared, _, width) = maps.shape, value.shape
    by_value = maps.reshape(shared, -1, keys)
    side_by_side = value.permute(1, 2, 0, 3).reshape(shared, keys, copies * width)
    product = (by_value @ side_by_side.to(maps.dtype)).view(heads, queries, copies, width)
    return product.permute(2, 0, 1, 3)


def uniform_average(
    weight: SiteRows, seen: Bool[Tensor, "_query key"], value: CopyValues
) -> Averaged:
    """What every head averages in every copy if each row weighs all keys it may see the same.

    ``weight`` is the weight of every key of a row.

    >>> from exhibit_a.methods.attribution.frozen_maps import uniform_average
    >>> weight, seen = torch.rand(4, 5), torch.rand(5, 5) < 0.5
    >>> value, maps = torch.rand(7, 2, 5, 8), weight[..., None] * seen
    >>> torch.allclose(uniform_average(weight, seen, value), average(maps, value), atol=1e-6)
    True
    """
    alike = len(seen) > 0 and bool((seen == seen[0]).all())
    marks = (seen[:1] if alike else seen).to(weight)
    summed = average(marks[None].expand(value.shape[1], -1, -1), value)
    return shared_to_all(summed, len(weight)) * weight[..., None]


@dataclass(frozen=True, eq=False)
class FrozenMaps:
    """The frozen maps of a pass: as they were, and uniform."""

    trace: Trace
    own: tuple[SiteMap, ...]
    uniform_weight: tuple[SiteRows, ...]  # of every visible key in a uniform row

    @classmethod
    def of(cls, trace: Trace) -> "FrozenMaps":
        """The maps of a pass."""
        kept = trace.keeping("attention", "values", "hidden")
        own = tuple(at_least_float32(maps) for maps in kept.attention)
        weight = tuple(
            maps.sum(-1) / seen.sum(-1).clamp_min(1).to(maps)
            for maps, seen in zip(own, kept.visible, strict=True)
        )
        return cls(kept, own, weight)

    def uniform(self, site: int) -> SiteMap:
        """The uniform maps of a site; made when used: those of all sites take much memory."""
        weight = self.uniform_weight[site]
        return weight.unsqueeze(-1) * self.trace.visible[site].to(weight)

    def rows_of(self, site: int) -> tuple[int, ...]:
        """The queries of a site that are frozen or uniform, where not all were kept."""
        return (self.trace.rows or ()) if self.own[site].shape[1] else ()


class Frozen(Edit):
    """Puts what the heads of some copies average in the place of what the model averages.

    The model's own weights are not computed for that, unless only some rows were kept, or it cannot
    know where its attention begins.
    """

    context_only = True

    def __init__(self, maps: FrozenMaps, copies: int, first: int = 0) -> None:
        super().__init__(range(first, len(maps.own)))
        self.maps, self.copies, self.first = maps, copies, first

    @abstractmethod
    def made(self, site: int, value: CopyValues, own: Averaged | None) -> Averaged:
        """What the rows that were kept average; ``own`` is what the model averages, if known."""

    @property
    def gives_contexts(self) -> bool:
        """Whether the model's own weights are not needed."""
        return self.maps.trace.rows is None

    def averaged(self, site: int, value: SharedValues) -> Context | None:
        """All rows, before the model has looked anywhere."""
        if site not in self.sites or not self.gives_contexts:
            return None
        equal = replay_skips().sharing
        return self.made(site, value[:1] if equal else value, None).to(value.dtype)

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The rows that were kept, after the model has looked."""
        if call.site not in self.sites:
            return None
        if self.maps.trace.rows is None:
            return self.made(call.site, call.value, context).to(context.dtype)
        rows = torch.tensor(self.maps.rows_of(call.site), dtype=torch.long, device=context.device)
        made = self.made(call.site, call.value, context.index_select(2, rows))
        return context.index_copy(2, rows, made.to(context.dtype))


class Permuted(Frozen):
    """Permutes the weights of every row among its keys, anew for each numbered repeat."""

    def __init__(self, maps: FrozenMaps, repeats: Sequence[int], seed: int) -> None:
        super().__init__(maps, len(repeats))
        self.repeats, self.seed = repeats, seed

    def made(self, site: int, value: CopyValues, own: Averaged | None) -> Averaged:  # noqa: ARG002
        """Every copy with weights of its own."""
        rows, averages = value.expand(self.copies, -1, -1, -1), []
        for copy, repeat in enumerate(self.repeats):
            seeded = generator(self.seed, site, repeat)
            permuted = permute_rows(self.maps.own[site], self.maps.trace.visible[site], seeded)
            averages.append(average(permuted, rows[copy : copy + 1]))
        return torch.cat(averages)


class Blend(Frozen):
    """Every head with its share of what it averaged, the rest uniform.

    With ``following``, heads that keep their share look where they would.
    """

    def __init__(
        self,
        maps: FrozenMaps,
        shares: Sequence[SiteShares],
        *,
        first: int = 0,
        with_gradients: bool = False,
        following: bool = False,
    ) -> None:
        super().__init__(maps, shares[0].shape[1], first)
        self.shares, self.with_gradients, self.following = shares, with_gradients, following
        self.contexts: list[Tensor] = []  # what gradients can be requested, site by site
        self.values_seen: list[Tensor] = []  # one for each of its heads
        self.moved: list[Tensor] = []  # what is between uniform and not, A V − U V

    @property
    def gives_contexts(self) -> bool:
        """Not where heads look where they would."""
        return super().gives_contexts and not self.following

    def made(self, site: int, value: CopyValues, own: Averaged | None) -> Averaged:
        """What is averaged as it was, or by the model itself, blended with what is uniform."""
        if not self.following or own is None:
            own = average(self.maps.own[site], value)
        own, shares = at_least_float32(own), self.shares[site].T.to(own.device)[..., None, None]
        if not self.with_gradients and bool((shares == 1).all()):
            return own.expand(self.copies, -1, -1, -1)
        seen = self.maps.trace.visible[site]
        uniform = uniform_average(self.maps.uniform_weight[site], seen, value)
        blended = torch.lerp(uniform, own, shares.to(own))
        if not self.with_gradients:
            return blended
        context = blended if blended.requires_grad else blended.detach().requires_grad_()
        values = shared_to_all(value.detach(), context.shape[1])
        self.contexts.append(context)
        self.values_seen.append(values.expand(len(context), -1, -1, -1))
        self.moved.append((own - uniform).detach().expand(context.shape))
        return context
