"""What the model would answer if some of its heads had uniform attention.

The attention maps A of one pass are frozen. A *uniform* head spreads the weight of each of its rows
over all keys that the row may see; rows keep their sum, so nothing is scaled. Every head has a
share α of its own map, from 1 (as it was) to 0 (uniform):

    P(α) = U + α (A − U)

Values are computed anew, so that a change below reaches everything above it; only where heads look
is fixed (``frozen_maps.py``). The answer is read as a margin: the log-odds of the model's answer,
which does not saturate where a probability does. Settings of the heads run in batches of copies of
the text, from the first layer that they change.

Where only some rows of attention were kept, these rows are frozen or uniform, and all others look
where the model lets them: below the first of these rows, nothing changes in a causal model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from exhibit_a.methods.attribution.frozen_maps import Blend, Frozen, FrozenMaps, Permuted
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.numerics.precision import at_least_float32, float64_sum
from exhibit_a.numerics.spilling import copies_at_once, zeros_to_add_to
from exhibit_a.shapes import HasLogits, SiteMap
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.batches import of_one
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

TOKENS_AT_ONCE = 4096  # in one pass, copies included
MEMORY_SHARE = 0.25  # of what is free may be taken by maps of the copies
BACKWARDS = 1.1e9  # bytes that copies with a graph may take by a generous count
PASSING = 3  # maps of a site that a copy holds which looks where it would: scores, mask, weights
KEPT = 5  # floats that a layer keeps for a token at most, for each output of its weights
HELD = 2e8  # bytes that sums of gradients of a text may take, each as large as all its maps

Head = tuple[int, int]  # site, head
Shares = Float[Tensor, "copy head"]  # of its own map, for every head of every site
Margins = Float[Tensor, " copy"]
AllMaps = Float[Tensor, " _edge"]  # of all sites, one after the other


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to some settings of the heads, copy by copy."""

    margins: Margins
    probabilities: Margins  # of the answer, where it has one; else the margins


class HeadGame:
    """One text, whose heads can be made uniform."""

    def __init__(self, trace: Trace, target: Target) -> None:
        self.maps, self.target = FrozenMaps.of(trace), target
        self.trace, self.own = self.maps.trace, self.maps.own
        self.heads: tuple[Head, ...] = tuple(
            (site.index, head) for site in trace.sites for head in range(site.heads)
        )
        self.passes = 0.0  # forward passes of the whole model so far
        likely = target if target.scale == "logit" else replace(target, scale="probability")
        self.batch, self.likely = target.narrowed(of_one(self.trace)), likely
        self.read = rows_read(self.batch, lambda output: torch.stack(self._answers(output)).sum(0))

    def __len__(self) -> int:
        return len(self.heads)

    def uniform(self, site: int) -> SiteMap:
        """The uniform maps of a site."""
        return self.maps.uniform(site)

    @property
    def sums_held(self) -> int:
        """How many sums of gradients may be held at a time."""
        return max(2, int(HELD / (4 * sum(maps.numel() for maps in self.own))))

    @property
    def one_by_one(self) -> float:
        """The passes that it takes to make every head uniform alone."""
        layers = len(self.trace.layers)
        return sum(site.heads * (layers - site.call) / layers for site in self.trace.sites)

    def setting(self, uniform: Sequence[int] = (), *, rest: float = 1.0) -> Float[Tensor, " head"]:
        """The shares with the heads of these numbers uniform, and all others at ``rest``."""
        shares = torch.full((len(self),), rest)
        shares[list(uniform)] = 0.0
        return shares

    def by_site(self, numbers: Shaped[Tensor, " head *copy"]) -> tuple[Tensor, ...]:
        """Numbers of all heads, site by site."""
        return torch.split(numbers, [site.heads for site in self.trace.sites])

    @torch.no_grad()
    def play(self, shares: Shares, *, following: bool = False) -> Answers:
        """The answers with every head of every copy at its share.

        With ``following``, maps are not frozen: heads that keep their share look where they would.
        """
        margins, probabilities = torch.empty(len(shares)), torch.empty(len(shares))
        first = self._first_sites(shares)
        for site in sorted(set(first.tolist())):
            at_once = self._at_once(PASSING if following else 0)
            for chunk in torch.split((first == site).nonzero().flatten(), at_once):
                by_site = self.by_site(shares[chunk].T)
                output = self._replayed(Blend(self.maps, by_site, first=site, following=following))
                reached, likely = self._answers(output)
                margins[chunk], probabilities[chunk] = reached.cpu(), likely.cpu()
        return Answers(margins, probabilities)

    def margins(self, shares: Shares, *, following: bool = False) -> Margins:
        """The margins of the answer with every head of every copy at its share."""
        return self.play(shares, following=following).margins

    @torch.no_grad()
    def permuted(self, repeats: Sequence[int], seed: int) -> Float[Tensor, " repeat"]:
        """The margins with the weights of every row permuted, by the numbers of repeats."""
        at_once, margins = self._at_once(), []
        for start in range(0, len(repeats), at_once):
            output = self._replayed(Permuted(self.maps, repeats[start : start + at_once], seed))
            margins.append(self._answers(output)[0].cpu())
        return torch.cat(margins)

    def gradients(
        self, alphas: Sequence[float], weights: Float[Tensor, "sum copy"]
    ) -> tuple[Margins, Margins, list[AllMaps]]:
        """With all heads of a copy at the same share α: margins, dF/dα, weighted sums of ∂F/∂P.

        Each row of ``weights`` makes one sum over copies, in maps as large as all attention.
        """
        self.trace.subject.require_gradients()
        margins, steepness = [], []
        sums = [zeros_to_add_to(sum(map(Tensor.numel, self.own)), self.own[0]) for _ in weights]
        totals = [maps_of_sites(each, self.own) for each in sums]
        for chunk in torch.split(torch.arange(len(alphas)), self._at_once(backwards=True)):
            shares = torch.tensor(alphas)[chunk, None].expand(-1, len(self))
            blend = Blend(self.maps, self.by_site(shares.T), with_gradients=True)
            with torch.enable_grad():
                reached = self.target.value(self.batch, self._replayed(blend))
                gradients = torch.autograd.grad(
                    reached.sum(), blend.contexts, materialize_grads=True
                )
            margins.append(reached.detach().float().cpu())
            steep = torch.zeros(len(chunk), dtype=torch.double)
            by_site = zip(gradients, blend.values_seen, blend.moved, strict=True)
            for site, (gradient, value, moved) in enumerate(by_site):
                by_context, values = at_least_float32(gradient), at_least_float32(value)
                steep += float64_sum(by_context * moved, (1, 2, 3)).cpu()
                for total, row in zip(totals, weights[:, chunk], strict=True):
                    copies = row.nonzero().flatten().to(gradient.device)
                    weighted = by_context[copies] * row.to(by_context)[copies, None, None, None]
                    # ∂F/∂P = (∂F/∂C) Vᵀ, summed over copies in the same product
                    total[site].add_(torch.einsum("chqd,chkd->hqk", weighted, values[copies]))
            steepness.append(steep)
        return torch.cat(margins), torch.cat(steepness), sums

    def _first_sites(self, shares: Shares) -> Int[Tensor, " copy"]:
        """The first site that each copy changes; one past the last where it changes none."""
        changed = [(site != 1).any(0) for site in self.by_site(shares.T)]
        changed.append(torch.ones(len(shares), dtype=torch.bool))
        return torch.stack(changed, 1).to(torch.int8).argmax(1)

    def _replayed(self, frozen: Frozen) -> HasLogits:
        """The answers of copies that run from the first site they change."""
        sites, layers = self.trace.sites, len(self.trace.layers)
        call = sites[frozen.first].call if frozen.first < len(sites) else layers
        self.passes += frozen.copies * (1 - call / layers)
        copies = torch.zeros(frozen.copies, dtype=torch.long, device=self.batch.real.device)
        edit = frozen if frozen.sites else None  # an edit that names no site may change them all
        output: HasLogits = replay(self.batch.rows(copies), edit, read=self.read)
        return output

    def _answers(self, output: HasLogits) -> tuple[Margins, Margins]:
        """The margin and the probability of every copy."""
        numbers = (target.value(self.batch, output) for target in (self.target, self.likely))
        margins, probabilities = (number.float() for number in numbers)
        return margins, probabilities

    def _at_once(self, maps: int = 0, *, backwards: bool = False) -> int:
        """How many copies fit: by tokens, by the maps of a site that each holds, by what it keeps.

        Frozen maps are those of the text, and no copy holds any.
        """
        tokens = max(max(site.shape[1:]) for site in self.own)
        fitting = TOKENS_AT_ONCE / tokens
        if maps:
            held = maps * max(site.nbytes for site in self.own)
            fitting = min(fitting, MEMORY_SHARE * free_bytes(self.batch.real.device) / held)
            fitting = min(fitting, copies_at_once(sum(site.nbytes for site in self.own), held))
        if backwards:
            # about as many floats as the layers keep of one copy for the way back
            model = self.trace.subject.model
            layers = (model.get_submodule(layer.module) for layer in self.trace.layers)
            weights = sum(weight.numel() for layer in layers for weight in layer.parameters())
            kept = KEPT * weights / self.trace.subject.anatomy.d_model * tokens
            fitting = min(fitting, BACKWARDS / (4 * kept))
        return max(1, int(fitting))


def maps_of_sites(edges: AllMaps, like: Sequence[SiteMap]) -> tuple[SiteMap, ...]:
    """The maps of every site, which share their memory with all of them."""
    parts = torch.split(edges, [maps.numel() for maps in like])
    return tuple(part.view(maps.shape) for part, maps in zip(parts, like, strict=True))
