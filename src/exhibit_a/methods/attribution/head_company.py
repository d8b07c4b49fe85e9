"""How do copies of several texts run in one batch, each with its heads at shares of its own?

The attention maps of every text are frozen, as they were (A) and even (U). A *copy* is a row of a
batch: one of the texts, with a share α for each of its heads,

    P(α) = U + α (A − U).

Copies of all texts that leave the same layers unchanged run together, from the first layer they
change. Texts are padded on the right; their maps are zero there, so that no row of a text sees what
it did not see alone, and what it is given does not depend on the company. One text alone is a
company of one. ``head_game.py`` says what the game is.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad

from exhibit_a.methods.explanation.shuffling import shuffled
from exhibit_a.numerics.exact import exact_sum, wide
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.numerics.seeds import generator
from exhibit_a.numerics.spilling import copies_at_once, zeros_to_add_to
from exhibit_a.shapes import Attention, Context, HasLogits, SiteMap, SiteRows
from exhibit_a.subject.fused import FusedCall
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.batches import Batch, RowIndex, of_several
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.passes import answering_from
from exhibit_a.trace.reading import rows_read
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

TOKENS_AT_ONCE = 4096  # in one pass, copies included
MEMORY_SHARE = 0.25  # of what is free may be taken by maps of the copies
BACKWARDS = 1.1e9  # bytes that copies with a graph may take by a generous count
PASSING = 4  # maps of a site that a copy without a graph holds: scores, weights, even ones, blend
HELD = 2e8  # bytes that sums of slopes of a text may take, each as large as all its maps
KEPT = 5  # floats that a layer keeps for a token at most, for each output of its weights

Shares = Float[Tensor, "copy head"]  # of its own map, for every head of every site
Margins = Float[Tensor, " copy"]
CopyMaps = Float[Tensor, "#copy head query key"]  # one fits any number of copies of one text
AllMaps = Float[Tensor, " _edge"]  # of all sites, one after the other


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
        attention = tuple(wide(maps) for maps in kept.attention)
        level = tuple(
            maps.sum(-1) / seen.sum(-1).clamp_min(1).to(maps)
            for maps, seen in zip(attention, kept.visible, strict=True)
        )
        return cls(kept, target, attention, level)

    def even(self, site: int) -> SiteMap:
        """The even maps of a site; made when they are used, for all sites are as large as own."""
        return _spread(self.level[site], self.trace.visible[site])

    @property
    def sums_held(self) -> int:
        """How many sums of slopes may be held at a time, whatever the company."""
        return max(2, int(HELD / (4 * sum(maps.numel() for maps in self.own))))

    def dealt(self, site: int, seeded: torch.Generator) -> SiteMap:
        """The maps of a site with the weights of every row dealt anew to the keys it may see."""
        maps, seen = self.own[site][None], self.trace.visible[site][None, None]
        draws = torch.rand(maps.shape, generator=seeded).to(maps.device)
        return shuffled(maps, seen.to(maps.device), draws)[0]


@dataclass(frozen=True, eq=False)
class Play:
    """What came of some settings of the heads, copy by copy."""

    margins: Margins
    probabilities: Margins  # of the answer, where it has one; else the margins


class Company:
    """Texts whose copies run together."""

    def __init__(self, texts: Sequence[FrozenText]) -> None:
        self.texts = tuple(texts)
        first = self.texts[0].trace
        self.sites, self.layers, self.subject = first.sites, first.layers, first.subject
        positions = [text.target.position for text in self.texts]
        earliest = min((place for place in positions if place is not None), default=None)
        together = of_several([text.trace for text in self.texts])
        self.batch, start = answering_from(together, earliest)
        later = (earliest or 0) - (start or 0)  # so many answers are left out
        self.targets = [
            text.target if place is None else replace(text.target, position=place - later)
            for text, place in zip(self.texts, positions, strict=True)
        ]
        every = range(len(self.sites))
        self.own = tuple(_padded([text.own[site] for text in self.texts]) for site in every)
        self.level = tuple(
            _padded([text.level[site][..., None] for text in self.texts])[..., 0] for site in every
        )
        self.seen = tuple(
            _padded([text.trace.visible[site][None] for text in self.texts]) for site in every
        )
        self.passes = [0.0] * len(self.texts)  # forward passes of the whole model so far
        self.read = rows_read(self.batch, self._asked)

    def __len__(self) -> int:
        return len(self.texts)

    def by_site(self, numbers: Shaped[Tensor, " head *copy"]) -> tuple[Tensor, ...]:
        """Numbers of all heads, site by site."""
        return torch.split(numbers, [site.heads for site in self.sites])

    def first_sites(self, shares: Shares) -> Int[Tensor, " copy"]:
        """The first site that each copy changes; one past the last where it changes none."""
        changed = [(site != 1).any(0) for site in self.by_site(shares.T)]
        changed.append(torch.ones(len(shares), dtype=torch.bool))
        return torch.stack(changed, 1).to(torch.int8).argmax(1)

    @torch.no_grad()
    def play(self, places: RowIndex, shares: Shares, *, following: bool = False) -> Play:
        """The answers of copies of the texts at ``places``, with every head at its share.

        With ``following``, maps are not frozen: heads that keep their share look where they would.
        """
        margins, probabilities = torch.empty(len(shares)), torch.empty(len(shares))
        first = self.first_sites(shares)
        for site in sorted(set(first.tolist())):
            for chunk in torch.split((first == site).nonzero().flatten(), self._at_once()):
                blend = _Blend(self, places[chunk], shares[chunk], following=following)
                output = self._replayed(blend)
                margins[chunk] = self._reached(output, places[chunk]).float().cpu()
                probabilities[chunk] = self._probability(output, places[chunk]).float().cpu()
        return Play(margins, probabilities)

    @torch.no_grad()
    def permuted(self, places: RowIndex, repeats: int, seed: int) -> Float[Tensor, "text repeat"]:
        """The margins of texts with the weights of every row dealt anew, some times."""
        reached = []
        copies = [(place, repeat) for place in places.tolist() for repeat in range(repeats)]
        for start in range(0, len(copies), self._at_once()):
            dealt = _Dealt(self, copies[start : start + self._at_once()], seed)
            reached.append(self._reached(self._replayed(dealt), dealt.places).float().cpu())
        return torch.cat(reached).reshape(len(places), repeats)

    def slopes(
        self, places: RowIndex, alphas: Sequence[float], weights: Float[Tensor, "sum copy"]
    ) -> tuple[Margins, Margins, list[AllMaps]]:
        """With all heads of a copy at the same share α: margins, dF/dα, weighted sums of ∂F/∂P.

        Each row of ``weights`` makes one sum over copies, in maps as large as the padded attention.
        """
        self.subject.require_gradients()
        margins, steepness = [], []
        like = tuple(maps[0] for maps in self.own)
        flat = [zeros_to_add_to(sum(map(Tensor.numel, like)), like[0]) for _ in weights]
        sums = [by_site(each, like) for each in flat]
        heads = sum(site.heads for site in self.sites)
        for chunk in torch.split(torch.arange(len(alphas)), self._at_once(backwards=True)):
            shares = torch.tensor(alphas)[chunk, None].expand(-1, heads)
            blend = _Blend(self, places[chunk], shares, sloping=True)
            with torch.enable_grad():
                reached = self._reached(self._replayed(blend), places[chunk])
                slopes = torch.autograd.grad(reached.sum(), blend.contexts, materialize_grads=True)
            margins.append(reached.detach().float().cpu())
            steep = torch.zeros(len(chunk), dtype=torch.double)
            for site, (slope, seen) in enumerate(zip(slopes, blend.values_seen, strict=True)):
                by_context, values = wide(slope), wide(seen)  # ∂F/∂P is their product
                moved = self.frozen(site, places[chunk]) - self.even(site, places[chunk])
                steep += exact_sum(by_context * (moved @ values), (1, 2, 3)).cpu()
                for total, row in zip(sums, weights[:, chunk], strict=True):
                    copies = row.nonzero().flatten().to(slope.device)
                    weighted = by_context[copies] * row.to(by_context)[copies, None, None, None]
                    total[site].add_(torch.einsum("chqd,chkd->hqk", weighted, values[copies]))
            steepness.append(steep)
        return torch.cat(margins), torch.cat(steepness), flat

    def frozen(self, site: int, places: RowIndex) -> CopyMaps:
        """The maps of the texts of some copies, as they were."""
        return self._of_copies(self.own[site], places)

    def even(self, site: int, places: RowIndex) -> CopyMaps:
        """The even maps of the texts of some copies."""
        level, seen = (self._of_copies(of[site], places) for of in (self.level, self.seen))
        return _spread(level, seen)

    def _of_copies(self, rows: Tensor, places: RowIndex) -> Tensor:
        """The rows of the texts of some copies; that of a text alone fits any number of them."""
        return rows if len(self) == 1 else rows[places.to(rows.device)]

    def rows_of(self, site: int) -> tuple[int, ...]:
        """The queries of a site that are frozen or even, where not all were kept."""
        return (self.asked_rows or ()) if self.own[site].shape[2] else ()

    @property
    def asked_rows(self) -> tuple[int, ...] | None:
        """The queries whose maps were kept, in a text alone; None where all were."""
        return self.texts[0].trace.rows

    def _rows(self, places: RowIndex) -> Batch:
        return self.batch.rows(places.to(self.batch.real.device))

    def _count(self, places: RowIndex, first_call: int) -> None:
        """Count the passes of copies that run from a layer call on."""
        share = 1 - first_call / len(self.layers)
        for place, copies in enumerate(places.bincount(minlength=len(self)).tolist()):
            self.passes[place] += copies * share

    def _replayed(self, frozen: "_Frozen") -> HasLogits:
        self._count(frozen.places, frozen.first_call)
        output: HasLogits = replay(self._rows(frozen.places), frozen, read=self.read)
        return output

    def _asked(self, output: HasLogits) -> Margins:
        """All that is asked of the answers to the texts themselves, as one number for each."""
        every = torch.arange(len(self))
        return self._reached(output, every) + self._probability(output, every)

    def _reached(self, output: HasLogits, places: RowIndex) -> Margins:
        """What every copy reaches of its own text's target."""
        return _by_text(self.targets, output, places)

    def _probability(self, output: HasLogits, places: RowIndex) -> Margins:
        asked = [
            target if target.scale == "logit" else replace(target, scale="probability")
            for target in self.targets
        ]
        return _by_text(asked, output, places)

    def _at_once(self, *, backwards: bool = False) -> int:
        """How many copies fit: by tokens, and by the maps that a pass holds."""
        tokens = max(max(maps.shape[2:]) for maps in self.own)
        sizes = [maps[0].nbytes for maps in self.own]
        held = 3 * sum(sizes) if backwards else PASSING * max(sizes)
        fitting = MEMORY_SHARE * free_bytes(self.batch.real.device) / held
        fitting = min(fitting, copies_at_once(sum(sizes), sum(sizes) if backwards else held))
        if backwards:
            fitting = min(fitting, BACKWARDS / (held + 4 * self._kept_by_layers(tokens)))
        return max(1, min(int(fitting), TOKENS_AT_ONCE // tokens))

    def _kept_by_layers(self, tokens: int) -> float:
        """About as many floats as the layers keep of one copy for the way back."""
        layers = (self.subject.model.get_submodule(layer.module) for layer in self.layers)
        weights = sum(weight.numel() for layer in layers for weight in layer.parameters())
        return KEPT * weights / self.subject.anatomy.d_model * tokens


@dataclass(frozen=True)
class _Answers:
    """The answers to some rows of a batch."""

    logits: Tensor


def _by_text(targets: Sequence[Target], output: HasLogits, places: RowIndex) -> Margins:
    """The number that each text's target makes of the answers to its copies."""
    if len(targets) == 1:
        return targets[0](output)
    logits = output.logits
    rows = [(places == place).nonzero().flatten() for place in sorted(set(places.tolist()))]
    numbers = [
        targets[int(places[copies[0]])](_Answers(logits[copies.to(logits.device)]))
        for copies in rows
    ]
    return torch.cat(numbers)[torch.cat(rows).argsort().to(logits.device)]


def _padded(
    maps: Sequence[Shaped[Tensor, "_head _query _key"]], to: Sequence[int] | None = None
) -> Shaped[Tensor, "_text _head _query _key"]:
    """Maps of several texts as one tensor, with zeros where a text is shorter than the longest."""
    queries, keys = (to or [max(m.shape[axis] for m in maps) for axis in range(3)])[1:]
    if all(m.shape[1:] == (queries, keys) for m in maps):
        return maps[0][None] if len(maps) == 1 else torch.stack(list(maps))
    grown = [pad(m, (0, keys - m.shape[2], 0, queries - m.shape[1])) for m in maps]
    return torch.stack(grown)


class _Frozen(Edit):
    """Puts other maps in place of a site's when the site is reached, and of no other before.

    Where only some rows were kept, these are averaged anew after all others.
    """

    def __init__(self, company: Company, places: RowIndex, first: int) -> None:
        super().__init__(range(first, len(company.sites)))
        self.company, self.places = company, places
        sites, layers = company.sites, company.layers
        self.first_call = sites[first].call if first < len(sites) else len(layers)

    @abstractmethod
    def maps(self, call: AttentionCall) -> Attention:
        """The maps of the call's site, or the rows that were kept of them, copy by copy."""

    @property
    def reads_weights(self) -> bool:
        """Not where some rows are averaged anew."""
        return self.company.asked_rows is None

    def weighting(self, call: AttentionCall) -> Attention | None:
        """The maps, where all rows are replaced."""
        if call.site not in self.sites or not self.reads_weights:
            return None
        return self.maps(call).to(call.probs.dtype)

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The same context; or with the rows that were kept averaged anew."""
        if self.reads_weights:
            return self.noted(call, context)
        if call.site not in self.sites:
            return None
        rows = torch.tensor(self.company.rows_of(call.site), dtype=torch.long)
        averaged = self.maps(call).to(context.dtype) @ call.values
        return context.index_copy(2, rows.to(context.device), self.noted(call, averaged))

    def noted(self, call: AttentionCall, context: Context) -> Context:  # noqa: ARG002
        """What was averaged, which is looked at."""
        return context


class _Dealt(_Frozen):
    """Deals the weights of every row anew: for each copy a text, and the number of the deal."""

    def __init__(self, company: Company, copies: Sequence[tuple[int, int]], seed: int) -> None:
        super().__init__(company, torch.tensor([place for place, _ in copies]), first=0)
        self.copies, self.seed = copies, seed

    def maps(self, call: AttentionCall) -> Attention:
        """Every copy's maps, dealt anew."""
        site, texts = call.site, self.company.texts
        dealt = [
            texts[place].dealt(site, generator(self.seed, site, n)) for place, n in self.copies
        ]
        return _padded(dealt, self.company.own[site].shape[1:])


class _Blend(_Frozen):
    """Blends the maps of every head with its share of evenness."""

    def __init__(
        self,
        company: Company,
        places: RowIndex,
        shares: Shares,
        *,
        sloping: bool = False,
        following: bool = False,
    ) -> None:
        super().__init__(company, places, 0 if sloping else int(company.first_sites(shares).amin()))
        self.shares = company.by_site(shares.T)  # per site (head, copy)
        self.sloping, self.following = sloping, following
        self.contexts: list[Tensor] = []
        self.values_seen: list[Tensor] = []

    def maps(self, call: AttentionCall) -> Attention:
        """The frozen maps, or those of the call, blended with even ones."""
        even = self.company.even(call.site, self.places)
        own = (
            self._followed(call).to(even.dtype)
            if self.following
            else self.company.frozen(call.site, self.places)
        )
        shares = self.shares[call.site].T.to(own)[..., None, None]
        return torch.lerp(even, own, shares)

    def _followed(self, call: AttentionCall) -> Attention:
        """Where the rows look in this call."""
        if self.reads_weights:
            return call.probs
        rows = torch.tensor(self.company.rows_of(call.site), device=call.values.device)
        return call.asked(rows).probs() if isinstance(call, FusedCall) else call.probs[:, :, rows]

    def noted(self, call: AttentionCall, context: Context) -> Context:
        """The context, which a slope can be asked for."""
        if not self.sloping:
            return context
        if not context.requires_grad:
            context = context.detach().requires_grad_()
        self.contexts.append(context)
        self.values_seen.append(call.values.detach())
        return context


def by_site(edges: AllMaps, like: Sequence[SiteMap]) -> tuple[SiteMap, ...]:
    """The maps of every site, which share their memory with all of them."""
    parts = torch.split(edges, [maps.numel() for maps in like])
    return tuple(part.view(maps.shape) for part, maps in zip(parts, like, strict=True))


def _spread(level: Float[Tensor, "... query"], seen: Bool[Tensor, "... query key"]) -> Tensor:
    """Even maps: in every row, the same weight for every key that it may see."""
    return level.unsqueeze(-1) * seen.to(level)
