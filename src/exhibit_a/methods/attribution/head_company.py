"""How do copies of several texts run in one batch, each with its heads at shares of its own?

A *copy* is a row of a batch: one of the texts, each of whose heads has a share of what it averaged
and is even for the rest (``frozen_maps.py``).

Copies of all texts that leave the same layers unchanged run together, from the first layer they
change. Texts are padded on the right; their maps are zero there, so that no row of a text sees what
it did not see alone, and what it is given does not depend on the company. One text alone is a
company of one. ``head_game.py`` says what the game is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from exhibit_a.methods.attribution.frozen_maps import Blend, Dealt, Frozen, FrozenMaps, FrozenText
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.numerics.precision import at_least_float32, float64_sum
from exhibit_a.numerics.spilling import copies_at_once, zeros_to_add_to
from exhibit_a.shapes import HasLogits, SiteMap
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.batches import Batch, RowIndex, of_several
from exhibit_a.trace.passes import answering_from
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

TOKENS_AT_ONCE = 4096  # in one pass, copies included
MEMORY_SHARE = 0.25  # of what is free may be taken by maps of the copies
BACKWARDS = 1.1e9  # bytes that copies with a graph may take by a generous count
PASSING = 3  # maps of a site that a copy holds which looks where it would: scores, mask, weights
KEPT = 5  # floats that a layer keeps for a token at most, for each output of its weights

Shares = Float[Tensor, "copy head"]  # of its own map, for every head of every site
Margins = Float[Tensor, " copy"]
AllMaps = Float[Tensor, " _edge"]  # of all sites, one after the other


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
        self.maps = FrozenMaps(self.texts)
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
            at_once = self._at_once(PASSING if following else 0)
            for chunk in torch.split((first == site).nonzero().flatten(), at_once):
                by_site = self.by_site(shares[chunk].T)
                output = self._replayed(
                    Blend(self.maps, places[chunk], by_site, first=site, following=following)
                )
                margins[chunk] = self._reached(output, places[chunk]).float().cpu()
                probabilities[chunk] = self._probability(output, places[chunk]).float().cpu()
        return Play(margins, probabilities)

    @torch.no_grad()
    def permuted(
        self, places: RowIndex, deals: Sequence[int], seed: int
    ) -> Float[Tensor, "text deal"]:
        """The margins of texts with the weights of every row dealt anew, by numbers of deals."""
        reached = []
        copies = [(place, deal) for place in places.tolist() for deal in deals]
        at_once = self._at_once()
        for start in range(0, len(copies), at_once):
            dealt = Dealt(self.maps, copies[start : start + at_once], seed)
            reached.append(self._reached(self._replayed(dealt), dealt.places).float().cpu())
        return torch.cat(reached).reshape(len(places), len(deals))

    def gradients(
        self, places: RowIndex, alphas: Sequence[float], weights: Float[Tensor, "sum copy"]
    ) -> tuple[Margins, Margins, list[AllMaps]]:
        """With all heads of a copy at the same share α: margins, dF/dα, weighted sums of ∂F/∂P.

        Each row of ``weights`` makes one sum over copies, in maps as large as the padded attention.
        """
        self.subject.require_gradients()
        margins, steepness = [], []
        like = tuple(maps[0] for maps in self.maps.own)
        flat = [zeros_to_add_to(sum(map(Tensor.numel, like)), like[0]) for _ in weights]
        sums = [by_site(each, like) for each in flat]
        heads = sum(site.heads for site in self.sites)
        for chunk in torch.split(torch.arange(len(alphas)), self._at_once(backwards=True)):
            shares = torch.tensor(alphas)[chunk, None].expand(-1, heads)
            blend = Blend(self.maps, places[chunk], self.by_site(shares.T), with_gradients=True)
            with torch.enable_grad():
                reached = self._reached(self._replayed(blend), places[chunk])
                gradients = torch.autograd.grad(
                    reached.sum(), blend.contexts, materialize_grads=True
                )
            margins.append(reached.detach().float().cpu())
            steep = torch.zeros(len(chunk), dtype=torch.double)
            seen = zip(gradients, blend.values_seen, blend.moved, strict=True)
            for site, (gradient, value, moved) in enumerate(seen):
                by_context, values = (
                    at_least_float32(gradient),
                    at_least_float32(value),
                )  # ∂F/∂P is their product
                steep += float64_sum(by_context * moved, (1, 2, 3)).cpu()
                for total, row in zip(sums, weights[:, chunk], strict=True):
                    copies = row.nonzero().flatten().to(gradient.device)
                    weighted = by_context[copies] * row.to(by_context)[copies, None, None, None]
                    total[site].add_(torch.einsum("chqd,chkd->hqk", weighted, values[copies]))
            steepness.append(steep)
        return torch.cat(margins), torch.cat(steepness), flat

    def _rows(self, places: RowIndex) -> Batch:
        return self.batch.rows(places.to(self.batch.real.device))

    def _count(self, places: RowIndex, first_call: int) -> None:
        """Count the passes of copies that run from a layer call on."""
        share = 1 - first_call / len(self.layers)
        for place, copies in enumerate(places.bincount(minlength=len(self)).tolist()):
            self.passes[place] += copies * share

    def _replayed(self, frozen: Frozen) -> HasLogits:
        first, sites = frozen.first, self.sites
        self._count(frozen.places, sites[first].call if first < len(sites) else len(self.layers))
        edit = frozen if frozen.sites else None  # an edit that names no site may change them all
        output: HasLogits = replay(self._rows(frozen.places), edit, read=self.read)
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

    def _at_once(self, maps: int = 0, *, backwards: bool = False) -> int:
        """How many copies fit: by tokens, by the maps of a site that each holds, by what it keeps.

        Frozen maps are those of the text, and no copy holds any.
        """
        own = self.maps.own
        tokens = max(max(site.shape[2:]) for site in own)
        fitting = TOKENS_AT_ONCE / tokens
        if maps:
            held = maps * max(site[0].nbytes for site in own)
            fitting = min(fitting, MEMORY_SHARE * free_bytes(self.batch.real.device) / held)
            fitting = min(fitting, copies_at_once(sum(site[0].nbytes for site in own), held))
        if backwards:
            fitting = min(fitting, BACKWARDS / (4 * self._kept_by_layers(tokens)))
        return max(1, int(fitting))

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


def by_site(edges: AllMaps, like: Sequence[SiteMap]) -> tuple[SiteMap, ...]:
    """The maps of every site, which share their memory with all of them."""
    parts = torch.split(edges, [maps.numel() for maps in like])
    return tuple(part.view(maps.shape) for part, maps in zip(parts, like, strict=True))
