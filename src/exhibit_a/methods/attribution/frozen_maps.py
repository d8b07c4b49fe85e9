"""What do the heads of a copy average, if their maps are put there?

The attention maps of every text are frozen, as they were (A) and even (U). A *copy* is a row of a
batch: one of the texts, with a share α for each of its heads,

    P(α) = U + α (A − U).

P itself is never formed: what a head averages is P V = U V + α (A V − U V), and each product serves
all copies of a text (``frozen_average.py``). Where the other maps may *follow* a change, A V is
what the model averages by itself. Texts are padded on the right; their maps are zero there.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import pad

from exhibit_a.methods.attribution.frozen_average import (
    Averaged,
    CopyValues,
    average,
    even_average,
)
from exhibit_a.numerics.permutations import permute_rows
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context, SharedValues, SiteMap, SiteRows
from exhibit_a.subject.replay_skips import replay_skips
from exhibit_a.subject.tap import AttentionCall, shared_to_all
from exhibit_a.trace.batches import RowIndex
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.targets import Target

HELD = 2e8  # bytes that sums of gradients of a text may take, each as large as all its maps

SiteShares = Float[Tensor, "head copy"]


@dataclass(frozen=True, eq=False)
class FrozenText:
    """A text whose attention maps are frozen: as they were, and even."""

    trace: Trace
    target: Target
    own: tuple[SiteMap, ...]
    level: tuple[SiteRows, ...]  # the weight of every visible key in an even row

    @classmethod
    def of(cls, trace: Trace, target: Target) -> "FrozenText":
        """The maps of a pass."""
        kept = trace.keeping("attention", "values", "hidden")
        attention = tuple(at_least_float32(maps) for maps in kept.attention)
        level = tuple(
            maps.sum(-1) / seen.sum(-1).clamp_min(1).to(maps)
            for maps, seen in zip(attention, kept.visible, strict=True)
        )
        return cls(kept, target, attention, level)

    def even(self, site: int) -> SiteMap:
        """The even maps of a site; made when they are used, for all sites are as large as own."""
        return self.level[site].unsqueeze(-1) * self.trace.visible[site].to(self.level[site])

    @property
    def sums_held(self) -> int:
        """How many sums of gradients may be held at a time, whatever the company."""
        return max(2, int(HELD / (4 * sum(maps.numel() for maps in self.own))))


class FrozenMaps:
    """The frozen maps of several texts, and what their copies average with them."""

    def __init__(self, texts: Sequence[FrozenText]) -> None:
        self.texts = tuple(texts)
        self.rows = self.texts[0].trace.rows  # the queries that were kept; None where all were
        every = range(len(self.texts[0].own))
        self.own = tuple(_padded([text.own[site] for text in texts]) for site in every)
        self.level = tuple(
            _padded([text.level[site][..., None] for text in texts])[..., 0] for site in every
        )
        self.seen = tuple(
            _padded([text.trace.visible[site][None] for text in texts])[:, 0] for site in every
        )

    def average(self, site: int, places: RowIndex, value: CopyValues) -> Averaged:
        """What the heads of some copies average with the maps as they were."""
        own = self.own[site]
        return self._by_text(places, value, lambda text, values: average(own[text], values))

    def even_average(self, site: int, places: RowIndex, value: CopyValues) -> Averaged:
        """What the heads of some copies average when they look evenly."""
        level, seen = self.level[site], self.seen[site]
        return self._by_text(
            places, value, lambda text, values: even_average(level[text], seen[text], values)
        )

    def dealt_average(
        self, site: int, place: int, value: CopyValues, seeded: torch.Generator
    ) -> Averaged:
        """What the heads of a text average with the weights of every row dealt to other keys."""
        text = self.texts[place]
        maps = permute_rows(text.own[site], text.trace.visible[site], seeded)
        return average(_padded([maps], self.own[site].shape[1:])[0], value)

    def rows_of(self, site: int) -> tuple[int, ...]:
        """The queries of a site that are frozen or even, where not all were kept."""
        return (self.rows or ()) if self.own[site].shape[2] else ()

    def _by_text(
        self,
        places: RowIndex,
        value: CopyValues,
        product: Callable[[int, CopyValues], Averaged],
    ) -> Averaged:
        """The product of every text with the values of its copies, in the order of the copies."""
        if len(self.texts) == 1:
            return product(0, value)
        texts = sorted(set(places.tolist()))
        copies = [(places == text).nonzero().flatten().to(value.device) for text in texts]
        products = [product(text, value[rows]) for text, rows in zip(texts, copies, strict=True)]
        return torch.cat(products)[torch.cat(copies).argsort()]


class Frozen(Edit):
    """Puts what the heads of some copies average in the place of what the model averages.

    The model's own weights are not computed for that, unless only some rows were kept, or it cannot
    be told where its attention begins.
    """

    context_only = True

    def __init__(self, maps: FrozenMaps, places: RowIndex, first: int = 0) -> None:
        super().__init__(range(first, len(maps.own)))
        self.maps, self.places, self.first = maps, places, first

    @abstractmethod
    def made(self, site: int, value: CopyValues, own: Averaged | None) -> Averaged:
        """What the rows that were kept average; ``own`` is what the model averages, if known."""

    @property
    def gives_contexts(self) -> bool:
        """Whether the model's own weights are not needed."""
        return self.maps.rows is None

    def averaged(self, site: int, value: SharedValues) -> Context | None:
        """All rows, before the model has looked anywhere."""
        if site not in self.sites or not self.gives_contexts:
            return None
        equal = replay_skips().sharing and len(self.maps.texts) == 1
        return self.made(site, value[:1] if equal else value, None).to(value.dtype)

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The rows that were kept, after the model has looked."""
        if call.site not in self.sites:
            return None
        value = call.value
        if len(value) < len(context) and len(self.maps.texts) > 1:
            value = replay_skips().repeated(value)
        if self.maps.rows is None:
            return self.made(call.site, value, context).to(context.dtype)
        rows = torch.tensor(self.maps.rows_of(call.site), dtype=torch.long, device=context.device)
        made = self.made(call.site, value, context.index_select(2, rows))
        return context.index_copy(2, rows, made.to(context.dtype))


class Dealt(Frozen):
    """Deals the weights of every row anew: for each copy a text, and the number of the deal."""

    def __init__(self, maps: FrozenMaps, copies: Sequence[tuple[int, int]], seed: int) -> None:
        super().__init__(maps, torch.tensor([place for place, _ in copies]))
        self.copies, self.seed = copies, seed

    def made(self, site: int, value: CopyValues, own: Averaged | None) -> Averaged:  # noqa: ARG002
        """Every copy with weights of its own."""
        rows = value.expand(len(self.copies), -1, -1, -1)
        return torch.cat(
            [
                self.maps.dealt_average(
                    site, place, rows[copy : copy + 1], generator(self.seed, site, deal)
                )
                for copy, (place, deal) in enumerate(self.copies)
            ]
        )


class Blend(Frozen):
    """Every head with its share of what it averaged, the rest even.

    With ``following``, heads that keep their share look where they would.
    """

    def __init__(
        self,
        maps: FrozenMaps,
        places: RowIndex,
        shares: Sequence[SiteShares],
        *,
        first: int = 0,
        with_gradients: bool = False,
        following: bool = False,
    ) -> None:
        super().__init__(maps, places, first)
        self.shares, self.with_gradients, self.following = shares, with_gradients, following
        self.contexts: list[Tensor] = []  # what gradients can be asked for, site by site
        self.values_seen: list[Tensor] = []  # one for each of its heads
        self.moved: list[Tensor] = []  # what is between even and not, A V − U V

    @property
    def gives_contexts(self) -> bool:
        """Not where heads look where they would."""
        return super().gives_contexts and not self.following

    def made(self, site: int, value: CopyValues, own: Averaged | None) -> Averaged:
        """What is averaged as it was, or by the model itself, blended with what is even."""
        if not self.following or own is None:
            own = self.maps.average(site, self.places, value)
        own, shares = at_least_float32(own), self.shares[site].T.to(own.device)[..., None, None]
        if not self.with_gradients and bool((shares == 1).all()):
            return own.expand(len(self.places), -1, -1, -1)
        even = self.maps.even_average(site, self.places, value)
        blended = torch.lerp(even, own, shares.to(own))
        return self._noted(blended, value, own - even) if self.with_gradients else blended

    def _noted(self, context: Averaged, value: CopyValues, moved: Averaged) -> Averaged:
        """The context, which a gradient can be asked for."""
        context = context if context.requires_grad else context.detach().requires_grad_()
        values = shared_to_all(value.detach(), context.shape[1])
        self.contexts.append(context)
        self.values_seen.append(values.expand(len(context), -1, -1, -1))
        self.moved.append(moved.detach().expand(context.shape))
        return context


def _padded(
    maps: Sequence[Shaped[Tensor, "_head _query _key"]], to: Sequence[int] | None = None
) -> Shaped[Tensor, "_text _head _query _key"]:
    """Maps of several texts as one tensor, with zeros where a text is shorter than the longest."""
    queries, keys = (to or [max(m.shape[axis] for m in maps) for axis in range(3)])[1:]
    if all(m.shape[1:] == (queries, keys) for m in maps):
        return maps[0][None] if len(maps) == 1 else torch.stack(list(maps))
    grown = [pad(m, (0, keys - m.shape[2], 0, queries - m.shape[1])) for m in maps]
    return torch.stack(grown)
