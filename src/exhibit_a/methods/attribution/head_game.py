"""What would the model answer if some of its heads looked evenly?

The attention maps A of one pass are frozen. A head that looks *evenly* spreads the weight of each
of its rows over all keys that the row may see; rows keep their sum, so nothing is scaled. Every
head has a share α of its own map, from 1 (as it was) to 0 (even):

    P(α) = U + α (A − U)

Values are computed anew, so that a change below reaches everything above it; only where heads look
is fixed. The answer is read as a margin: the log-odds of what the model said, which does not
saturate where a probability does.

Where only some rows of attention were kept, these rows are frozen or even, and all others look
where the model lets them: below the first of these rows, nothing changes in a causal model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from exhibit_a.methods.explanation.shuffling import shuffled, uniform
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Attention, Context, HasLogits, SiteMap
from exhibit_a.subject.fused import FusedCall
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.batches import Batch, of_one
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit, ReplaceRows, together
from exhibit_a.trace.edits import replace as replace_maps
from exhibit_a.trace.passes import answering_from
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

TOKENS_AT_ONCE = 4096  # in one pass, copies included
MEMORY_SHARE = 0.25  # of what is free may be taken by maps of the copies
BACKWARDS = 2.1e9  # bytes that copies with a graph may take by a generous count
HELD = 4e8  # bytes that sums of slopes may take, each as large as all maps
KEPT = 5  # floats that a layer keeps for a token at most, for each output of its weights

Shares = Float[Tensor, "copy head"]  # of its own map, for every head of every site
Margins = Float[Tensor, " copy"]
Head = tuple[int, int]  # site, head


@dataclass(frozen=True, eq=False)
class Play:
    """What came of one setting of the heads."""

    margins: Margins
    probabilities: Margins  # of the answer, where it has one; else the margins


class HeadGame:
    """One text, whose heads can be made to look evenly."""

    def __init__(self, trace: Trace, target: Target) -> None:
        kept = trace.keeping("attention", "values", "hidden")
        self.trace = kept
        passed, position = answering_from(of_one(kept), target.position)
        self.batch: Batch = passed
        self.target = replace(target, position=position)
        self.own = tuple(_wide(maps) for maps in kept.attention)
        self.even = tuple(
            uniform(maps[None], seen[None, None].to(maps.device))[0]
            for maps, seen in zip(self.own, kept.visible, strict=True)
        )
        self.heads: tuple[Head, ...] = tuple(
            (site.index, head) for site in kept.sites for head in range(site.heads)
        )
        self.passes = 0.0  # forward passes of the whole model so far

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def one_by_one(self) -> float:
        """The passes that it takes to make every head even alone."""
        layers = len(self.trace.layers)
        return sum(site.heads * (layers - site.call) / layers for site in self.trace.sites)

    def setting(self, even: Sequence[int] = (), *, rest: float = 1.0) -> Float[Tensor, " head"]:
        """The shares with the heads of these numbers even, and all others at ``rest``."""
        shares = torch.full((len(self),), rest)
        shares[list(even)] = 0.0
        return shares

    def by_site(self, numbers: Shaped[Tensor, " head *copy"]) -> tuple[Tensor, ...]:
        """Numbers of all heads, site by site."""
        return torch.split(numbers, [site.heads for site in self.trace.sites])

    def first_sites(self, shares: Shares) -> Int[Tensor, " copy"]:
        """The first site that each copy changes; one past the last where it changes none."""
        changed = [(site != 1).any(0) for site in self.by_site(shares.T)]
        changed.append(torch.ones(len(shares), dtype=torch.bool))
        return torch.stack(changed, 1).to(torch.int8).argmax(1)

    @torch.no_grad()
    def play(self, shares: Shares, *, following: bool = False) -> Play:
        """The answers with every head of every copy at its share.

        Copies that leave the same layers unchanged run together, from the first layer they change.
        With ``following``, maps are not frozen: heads that keep their share look where they would.
        """
        margins, probabilities = torch.empty(len(shares)), torch.empty(len(shares))
        first = self.first_sites(shares)
        for site in sorted(set(first.tolist())):
            for chunk in torch.split((first == site).nonzero().flatten(), self._at_once()):
                blend = _Blend(self, shares[chunk], following=following)
                output = self._replayed(blend, len(chunk))
                margins[chunk] = self.target(output).float().cpu()
                probabilities[chunk] = self._probability(output).float()
        return Play(margins, probabilities)

    def margins(self, shares: Shares, *, following: bool = False) -> Margins:
        """The margins of the answer with every head of every copy at its share."""
        return self.play(shares, following=following).margins

    @torch.no_grad()
    def permuted(self, repeats: int, seed: int) -> Margins:
        """The margins with the weights of every row dealt anew to the keys it may see."""
        reached = []
        for chunk in torch.split(torch.arange(repeats), self._at_once()):
            dealt = [
                torch.stack([_dealt(own, seen, generator(seed, site, int(n))) for n in chunk])
                for site, (own, seen) in enumerate(zip(self.own, self.trace.visible, strict=True))
            ]
            edit = together(*(self._put(site, maps) for site, maps in enumerate(dealt)))
            rows = torch.zeros(len(chunk), dtype=torch.long, device=self.batch.real.device)
            reached.append(self.target(replay(self.batch.rows(rows), edit)).float().cpu())
        self.passes += repeats
        return torch.cat(reached)

    def slopes(
        self, alphas: Sequence[float], weights: Float[Tensor, "sum point"]
    ) -> tuple[Margins, Margins, list[Float[Tensor, " edge"]]]:
        """With all heads at the same share α: margins, dF/dα, and weighted sums of ∂F/∂P.

        Each row of ``weights`` makes one sum over the points, as large as all attention maps; they
        are flat (``by_maps`` cuts them into maps).
        """
        self.trace.subject.require_gradients()
        margins, steepness = [], []
        sums = [self._flat_maps() for _ in weights]
        places = torch.arange(len(alphas))
        for chunk in torch.split(places, self._at_once(backwards=True)):
            shares = torch.tensor(alphas)[chunk, None].expand(-1, len(self))
            blend = _Blend(self, shares, sloping=True)
            with torch.enable_grad():
                reached = self.target(self._replayed(blend, len(chunk)))
                slopes = torch.autograd.grad(reached.sum(), blend.contexts, materialize_grads=True)
            margins.append(reached.detach().float().cpu())
            steep = torch.zeros(len(chunk), dtype=torch.double)
            for site, slope in enumerate(slopes):
                by_weight = _wide(slope) @ _wide(blend.values_seen[site]).mT  # ∂F/∂P
                moved = self.own[site] - self.even[site]
                steep += (by_weight * moved).sum((1, 2, 3), dtype=torch.double).cpu()
                for total, row in zip(sums, weights[:, chunk], strict=True):
                    self.by_maps(total)[site].add_(torch.tensordot(row.to(by_weight), by_weight, 1))
            steepness.append(steep)
        return torch.cat(margins), torch.cat(steepness), sums

    def by_maps(self, edges: Float[Tensor, " edge"]) -> list[SiteMap]:
        """Numbers of all edges, as the maps of each site; nothing is copied."""
        parts = torch.split(edges, [maps.numel() for maps in self.own])
        return [part.view_as(maps) for part, maps in zip(parts, self.own, strict=True)]

    @property
    def sets_held(self) -> int:
        """How many sums of slopes may be held at a time."""
        return max(2, int(HELD / (4 * sum(maps.numel() for maps in self.own))))

    def _flat_maps(self) -> Float[Tensor, " edge"]:
        return self.own[0].new_zeros(sum(maps.numel() for maps in self.own))

    def _put(self, site: int, maps: Attention) -> Edit:
        """An edit that puts maps, or the rows that were kept of them, in their place."""
        if self.trace.rows is None:
            return replace_maps(site, maps)
        return ReplaceRows(site, torch.tensor(self.rows_of(site)), maps)

    def rows_of(self, site: int) -> tuple[int, ...]:
        """The queries of a site that are frozen or even, where not all were kept."""
        return (self.trace.rows or ()) if self.own[site].shape[1] else ()

    def _replayed(self, blend: "_Blend", copies: int) -> HasLogits:
        self.passes += copies * (len(self.trace.layers) - blend.first_call) / len(self.trace.layers)
        rows = torch.zeros(copies, dtype=torch.long, device=self.batch.real.device)
        output: HasLogits = replay(self.batch.rows(rows), blend)
        return output

    def _probability(self, output: HasLogits) -> Margins:
        if self.target.scale == "logit":
            return self.target(output).float().cpu()
        return replace(self.target, scale="probability")(output).cpu()

    def _at_once(self, *, backwards: bool = False) -> int:
        """How many copies fit: by tokens, and by the maps that a pass holds."""
        tokens = max(max(maps.shape[1:]) for maps in self.own)
        largest = max(maps.numel() for maps in self.own)
        held = (3 * sum(maps.numel() for maps in self.own) if backwards else 4 * largest) * 4
        fitting = MEMORY_SHARE * free_bytes(self.batch.real.device) / held
        if backwards:
            fitting = min(fitting, BACKWARDS / (held + 4 * self._kept_by_layers(tokens)))
        return max(1, min(int(fitting), TOKENS_AT_ONCE // tokens))

    def _kept_by_layers(self, tokens: int) -> float:
        """About as many floats as the layers keep of one copy for the way back."""
        subject, width = self.trace.subject, self.trace.subject.anatomy.d_model
        layers = (subject.model.get_submodule(layer.module) for layer in self.trace.layers)
        weights = sum(weight.numel() for layer in layers for weight in layer.parameters())
        return KEPT * weights / width * tokens


def _dealt(maps: SiteMap, visible: Tensor, seeded: torch.Generator) -> SiteMap:
    draws = torch.rand(maps[None].shape, generator=seeded).to(maps.device)
    return shuffled(maps[None], visible[None, None].to(maps.device), draws)[0]


def margin_of(target: Target) -> Target:
    """The target as a margin: log-odds for what has a probability, the number itself otherwise."""
    return target if target.scale == "logit" else replace(target, scale="log_odds")


class _Blend(Edit):
    """Puts frozen maps in place, each head's with its share of evenness.

    Where only some rows were kept, these are averaged anew after all others.
    """

    def __init__(
        self, game: HeadGame, shares: Shares, *, sloping: bool = False, following: bool = False
    ) -> None:
        self.shares = game.by_site(shares.T)  # per site (head, copy)
        first = 0 if sloping else int(game.first_sites(shares).amin())
        super().__init__(range(first, len(self.shares)))
        sites, layers = game.trace.sites, game.trace.layers
        self.first_call = sites[first].call if first < len(sites) else len(layers)
        self.game, self.sloping, self.following = game, sloping, following
        self.contexts: list[Tensor] = []
        self.values_seen: list[Tensor] = []

    @property
    def reads_weights(self) -> bool:
        """Not where some rows are averaged anew."""
        return self.game.trace.rows is None

    def weighting(self, call: AttentionCall) -> Attention | None:
        """The frozen maps, blended with even ones."""
        if call.site not in self.sites or not self.reads_weights:
            return None
        following = call.probs if self.following else None
        return self._blended(call, following).to(call.probs.dtype)

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The same context, kept where slopes are asked for; or with the asked rows blended."""
        if self.reads_weights:
            return self._noted(call, context) if self.sloping else None
        if call.site not in self.sites:
            return None
        rows = torch.tensor(self.game.rows_of(call.site), dtype=torch.long, device=context.device)
        following = _rows_of_call(call, rows) if self.following else None
        averaged = self._blended(call, following).to(context.dtype) @ call.values
        if self.sloping:
            averaged = self._noted(call, averaged)
        return context.index_copy(2, rows, averaged)

    def _blended(self, call: AttentionCall, following: Attention | None) -> Attention:
        own, even = self.game.own[call.site].unsqueeze(0), self.game.even[call.site].unsqueeze(0)
        if self.following and following is not None:
            own = following.to(own.dtype)
        shares = self.shares[call.site].T.to(own)[..., None, None]
        return torch.lerp(even, own, shares)

    def _noted(self, call: AttentionCall, context: Context) -> Context:
        """The context, which a slope can be asked for."""
        if not context.requires_grad:
            context = context.detach().requires_grad_()
        self.contexts.append(context)
        self.values_seen.append(call.values.detach())
        return context


def _rows_of_call(call: AttentionCall, rows: Int[Tensor, " row"]) -> Attention:
    """Where these rows look in this call."""
    return call.asked(rows).probs() if isinstance(call, FusedCall) else call.probs[:, :, rows]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
