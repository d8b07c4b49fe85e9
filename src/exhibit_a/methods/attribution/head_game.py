"""What the model would answer if some of its heads were levelled: a game whose players are heads.

Every head has a share α of its own map, from 1 (as it was) to 0 (levelled, ``levelled_maps.py``),
and the answer is read as a margin: the log-odds of the model's answer, which does not saturate
where a probability does. Values are computed anew, so that a change below reaches everything above
it. The game is played in two ways:

``frozen``     the other maps are those of the pass: what is lost is what a head carries
``following``  the other maps are those that the copy computes: a head that moves where others look
               loses that as well

Copies of the text run in batches, from the first layer that they change. Where few rows play in a
causal model, nothing before them changes: these rows alone are computed, and a copy costs as much
of a pass as they are of the text. That this gives the answer of the pass is tried first.

A share of a change is credited by turns: heads move from one setting to another one after the
other, and each is credited with what the answer changes when it moves. The mean over all orders is
the Shapley value, which depends on no order, shares the whole change, gives equal heads the same
and idle heads nothing:

``coalitions``  all 2^H sets of heads, exactly; for few heads
``orders``      sampled orders, each walked forwards and backwards (the second order of such a pair
                makes up for much of the luck of the first), with a standard error over pairs
``staged``      the same for many heads: whole sites take turns, and only the sites that move the
                answer are opened, head by head (the Owen value); the heads of a site that was not
                opened share its small credit equally
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from exhibit_a.methods.attribution.levelled_maps import (
    Baseline,
    Blend,
    Frozen,
    GameMaps,
    Permuted,
)
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.numerics.precision import at_least_float32, float64_sum, to_float64
from exhibit_a.numerics.spilling import copies_at_once, zeros_to_add_to
from exhibit_a.shapes import HasLogits, SiteMap
from exhibit_a.subject.replay_skips import KeptPositions
from exhibit_a.trace.answer_rows import kept_positions, rows_read
from exhibit_a.trace.batches import of_one
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

Head = tuple[int, int]  # site, head
Shares = Float[Tensor, "copy head"]  # of its own map, for every head of every site
Margins = Float[Tensor, " copy"]
AllMaps = Float[Tensor, " _edge"]  # of all sites, one after the other
Credit = Float[Tensor, " head"]


@dataclass(frozen=True)
class GameSettings:
    """How many copies run together, and how orders are sampled."""

    tokens_at_once: int = 4096  # in one pass, copies included
    tokens_of_one: int = 48  # up to here a pass takes the time that its weights take to be read
    memory_share: float = 0.25  # of what is free may be taken by maps of the copies
    backwards: float = 1.1e9  # bytes that copies with a graph may take by a generous count
    passing: int = 3  # maps of a site that a copy holds which looks where it would
    kept: int = 5  # floats that a layer keeps for a token at most, for each output of its weights
    kept_maps: int = 2  # maps of all sites that a copy keeps for the way back, where maps follow
    kept_states: float = 3e8  # bytes of all keys and values that copies with a graph may take
    held: float = 2e8  # bytes that sums of gradients of a text may take, each as large as its maps
    rounding: float = 1e-3  # log-odds by which an answer from a few rows may differ
    opened: float = 0.05  # a site that takes less than this share of the change is not opened
    fewest_pairs: int = 2  # of orders: without two there is no standard error


SETTINGS = GameSettings()


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to some settings of the heads, copy by copy."""

    margins: Margins
    probabilities: Margins  # of the answer, where it has one; else the margins


@dataclass(frozen=True, eq=False)
class Shapley:
    """Every head's share, and its standard error."""

    credit: Credit
    standard_error: Credit
    pairs: int  # of orders; 0: exact


class HeadGame:
    """One text, whose heads can be levelled: in the rows that the trace kept, or in all."""

    def __init__(self, trace: Trace, target: Target, baseline: Baseline = "levelled") -> None:
        self.target, self.baseline = target, baseline
        likely = target if target.scale == "logit" else replace(target, scale="probability")
        self.likely = likely
        self.passes = 0.0  # forward passes of the whole model so far
        trace = trace.keeping("attention", "values", "hidden")
        self.margin = float(target.value(trace))
        self.heads: tuple[Head, ...] = tuple(
            (site.index, head) for site in trace.sites for head in range(site.heads)
        )
        kept = kept_positions(trace)
        if kept is None or not self._computes_alone(trace, kept):
            self._lay_out(trace, None)

    def uniform_margin(self) -> float:
        """The margin with uniform attention in all heads, sinks included."""
        maps = GameMaps.of(self.trace, "uniform", self.kept)
        levelled = self.by_site(torch.zeros(len(self), 1))
        with torch.no_grad():
            return float(self._answers(self._replayed(Blend(maps, levelled)))[0])

    def _lay_out(self, trace: Trace, kept: KeptPositions | None) -> None:
        """The maps of the game, and the pass that is replayed."""
        self.trace, self.kept = trace, kept
        self.maps = GameMaps.of(trace, self.baseline, kept)
        self.own = self.maps.own
        tokens = max(max(site.shape[1:]) for site in self.own)
        self.computed = tokens if kept is None else len(kept.rows)  # positions of a copy
        self.of_a_pass = self.computed / tokens
        if kept is not None:
            self.batch, self.read = replace(of_one(trace), first_logit=int(kept.rows[0])), None
            return
        self.batch = self.target.narrowed(of_one(trace))
        self.read = rows_read(self.batch, lambda output: torch.stack(self._answers(output)).sum(0))

    @torch.no_grad()
    def _computes_alone(self, trace: Trace, kept: KeptPositions) -> bool:
        """Whether the kept rows, computed alone, give the answer of the pass in both games."""
        rows = kept.rows.tolist()
        if rows != list(range(rows[0], rows[0] + len(rows))):
            return False
        first = self.target.position
        if first is not None and not rows[0] <= first <= rows[-1] - len(self.target.following):
            return False
        self._lay_out(trace, kept)
        try:
            own = torch.ones(1, len(self))
            answers = [
                self._played(own, 0, following=following).margins for following in (False, True)
            ]
        except Exception:  # a model that cannot take a few rows alone can fail in any way
            return False
        allowed = SETTINGS.rounding * max(1.0, abs(self.margin))
        return all(float((answer - self.margin).abs()) <= allowed for answer in answers)

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def sums_held(self) -> int:
        """How many sums of gradients may be held at a time."""
        return max(2, int(SETTINGS.held / (4 * sum(maps.numel() for maps in self.own))))

    @property
    def one_by_one(self) -> float:
        """The passes that it takes to level every head alone."""
        layers = len(self.trace.layers)
        rows = sum(site.heads * (layers - site.call) / layers for site in self.trace.sites)
        return rows * self.of_a_pass

    def setting(self, levelled: Sequence[int] = (), *, rest: float = 1.0) -> Credit:
        """The shares with the heads of these numbers levelled, and all others at ``rest``."""
        shares = torch.full((len(self),), rest)
        shares[list(levelled)] = 0.0
        return shares

    def by_site(self, numbers: Shaped[Tensor, " head *copy"]) -> tuple[Tensor, ...]:
        """Numbers of all heads, site by site."""
        return torch.split(numbers, [site.heads for site in self.trace.sites])

    @torch.no_grad()
    def play(self, shares: Shares, *, following: bool = False) -> Answers:
        """The answers with every head of every copy at its share; equal copies run once."""
        different, place = torch.unique(shares, dim=0, return_inverse=True)
        margins, probabilities = torch.empty(len(different)), torch.empty(len(different))
        first = self._first_sites(different)
        in_order = first.argsort(stable=True)
        at_once = self._at_once(SETTINGS.passing if following else 0)
        for chunk in self._together(first[in_order].tolist(), at_once):
            copies = in_order[chunk.start : chunk.stop]
            site = int(first[copies[0]])
            answers = self._played(different[copies], site, following=following)
            margins[copies], probabilities[copies] = answers.margins, answers.probabilities
        return Answers(margins[place], probabilities[place])

    def _together(self, first: Sequence[int], at_once: int) -> Iterator[range]:
        """Copies that run together, of all in the order of their first sites.

        Those with the same first site do, and of others as many as cost no more than one copy.
        """
        start = 0
        for place in range(1, len(first) + 1):
            few = (place - start) * self.computed < SETTINGS.tokens_of_one
            same = place < len(first) and (few or first[place] == first[start])
            if not same or place - start == at_once:
                yield range(start, place)
                start = place

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
        self, alphas: Sequence[float], weights: Float[Tensor, "sum copy"], first: int = 0
    ) -> tuple[Margins, Margins, list[AllMaps]]:
        """With the heads from site ``first`` on at α: margins, dF/dα, weighted sums of ∂F/∂P.

        Each row of ``weights`` makes one sum over copies, in maps as large as all attention.
        """
        self.trace.subject.require_gradients()
        margins, steepness = [], []
        sums = [zeros_to_add_to(sum(map(Tensor.numel, self.own)), self.own[0]) for _ in weights]
        totals = [maps_of_sites(each, self.own) for each in sums]
        for chunk in torch.split(torch.arange(len(alphas)), self._at_once(backwards=True)):
            shares = self._along(torch.tensor(alphas)[chunk], first)
            blend = Blend(self.maps, self.by_site(shares.T), first=first, with_gradients=True)
            with torch.enable_grad():
                reached = self.target.value(self.batch, self._replayed(blend))
                gradients = torch.autograd.grad(
                    reached.sum(), blend.contexts, materialize_grads=True
                )
            margins.append(reached.detach().float().cpu())
            steep = torch.zeros(len(chunk), dtype=torch.double)
            playing = [site for site in range(first, len(self.own)) if self.own[site].numel()]
            by_site = zip(playing, gradients, blend.values_seen, blend.moved, strict=True)
            for site, gradient, value, moved in by_site:
                by_context, values = at_least_float32(gradient), at_least_float32(value)
                steep += float64_sum(by_context * moved, (1, 2, 3)).cpu()
                for total, row in zip(totals, weights[:, chunk], strict=True):
                    copies = row.nonzero().flatten().to(gradient.device)
                    weighted = by_context[copies] * row.to(by_context)[copies, None, None, None]
                    self._add_edges(total[site], site, weighted, values[copies])
            steepness.append(steep)
        return torch.cat(margins), torch.cat(steepness), sums

    def _add_edges(self, total: SiteMap, site: int, gradients: Tensor, values: Tensor) -> None:
        """Add ∂F/∂P = (∂F/∂C) Vᵀ, summed over copies in the same product."""
        edges = torch.einsum("chqd,chkd->hqk", gradients, values)
        if self.maps.computes_all(site):
            total.add_(edges)
            return
        assert self.kept is not None
        before = self.trace.values[site].to(gradients)  # the same for all copies
        edges_before = torch.einsum("chqd,hkd->hqk", gradients, before)
        rows = self.kept.rows.to(edges.device)
        total.add_(edges_before.index_copy(2, rows, edges))

    def followed_gradients(
        self, alphas: Sequence[float], first: int = 0
    ) -> tuple[Margins, Float[Tensor, "copy head"]]:
        """With maps that follow and the heads from a site on at α: margins, and dF/dα by head."""
        self.trace.subject.require_gradients()
        margins, by_head = [], []
        at_once = min(self._at_once(backwards=True), self._at_once(SETTINGS.passing))
        a_set = sum(maps.nbytes for maps in self.own)
        at_once = min(at_once, copies_at_once(a_set, SETTINGS.kept_maps * a_set))
        if self.kept is not None:  # the graph holds keys and values of all positions, by head
            sites = self.trace.sites
            graph = sum(
                8 * maps.shape[2] * site.heads * site.d_head
                for maps, site in zip(self.own, sites, strict=True)
            )
            at_once = max(1, min(at_once, int(SETTINGS.kept_states / graph)))
        for chunk in torch.split(torch.arange(len(alphas)), at_once):
            shares = self._along(torch.tensor(alphas)[chunk], first).requires_grad_()
            by_site = self.by_site(shares.T)
            blend = Blend(self.maps, by_site, first=first, with_gradients=True, following=True)
            with torch.enable_grad():
                reached = self.target.value(self.batch, self._replayed(blend))
                (gradients,) = torch.autograd.grad(reached.sum(), shares, materialize_grads=True)
            margins.append(reached.detach().float().cpu())
            by_head.append(gradients.detach())
        return torch.cat(margins), torch.cat(by_head)

    def _along(self, alphas: Margins, first: int) -> Shares:
        """The shares of copies with the heads from a site on at α, all others as they were."""
        playing = torch.tensor([site >= first for site, _ in self.heads])
        return torch.where(playing, alphas[:, None], 1.0)

    def _played(self, shares: Shares, first: int, *, following: bool) -> Answers:
        """The answers of copies that run together, from the first site that they change."""
        by_site = self.by_site(shares.T)
        output = self._replayed(Blend(self.maps, by_site, first=first, following=following))
        margins, probabilities = self._answers(output)
        return Answers(margins.cpu(), probabilities.cpu())

    def _first_sites(self, shares: Shares) -> Int[Tensor, " copy"]:
        """The first site that each copy changes; one past the last where it changes none."""
        changed = [(site != 1).any(0) for site in self.by_site(shares.T)]
        changed.append(torch.ones(len(shares), dtype=torch.bool))
        return torch.stack(changed, 1).to(torch.int8).argmax(1)

    def _replayed(self, frozen: Frozen) -> HasLogits:
        """The answers of copies that run from the first site they change."""
        sites, layers = self.trace.sites, len(self.trace.layers)
        call = sites[frozen.first].call if frozen.first < len(sites) else layers
        self.passes += frozen.copies * (1 - call / layers) * self.of_a_pass
        copies = torch.zeros(frozen.copies, dtype=torch.long, device=self.batch.real.device)
        edit = frozen if frozen.sites else None  # an edit that names no site may change them all
        output: HasLogits = replay(self.batch.rows(copies), edit, read=self.read, kept=self.kept)
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
        fitting = SETTINGS.tokens_at_once / self.computed
        if maps:
            keys = max(site.shape[2] for site in self.own)
            widest = max(site.heads * site.d_head for site in self.trace.sites)
            held = max(site.nbytes for site in self.own) * maps
            if self.kept is not None:  # a copy holds keys and values of all positions
                held += 2 * keys * widest * 4
            fitting = min(
                fitting, SETTINGS.memory_share * free_bytes(self.batch.real.device) / held
            )
            fitting = min(fitting, copies_at_once(sum(site.nbytes for site in self.own), held))
        if backwards:
            # about as many floats as the layers keep of one copy for the way back
            model = self.trace.subject.model
            layers = (model.get_submodule(layer.module) for layer in self.trace.layers)
            weights = sum(weight.numel() for layer in layers for weight in layer.parameters())
            kept = SETTINGS.kept * weights / self.trace.subject.anatomy.d_model * self.computed
            fitting = min(fitting, SETTINGS.backwards / (4 * kept))
        return max(1, int(fitting))


def maps_of_sites(edges: AllMaps, like: Sequence[SiteMap]) -> tuple[SiteMap, ...]:
    """The maps of every site, which share their memory with all of them."""
    parts = torch.split(edges, [maps.numel() for maps in like])
    return tuple(part.view(maps.shape) for part, maps in zip(parts, like, strict=True))


def coalitions(game: HeadGame, *, following: bool) -> Shapley:
    """Every head's exact share of what is lost when all heads are levelled."""
    count = len(game)
    sets = (torch.arange(2**count)[:, None] >> torch.arange(count)) & 1  # 1: levelled
    margins = to_float64(game.margins(1.0 - sets.float(), following=following))
    sizes = sets.sum(1)
    weights = torch.tensor([1 / (count * comb(count - 1, size)) for size in range(count)])
    credit = torch.zeros(count, dtype=torch.double)
    for head in range(count):
        without = (sets[:, head] == 0).nonzero().flatten()
        lost = margins[without] - margins[without + 2**head]
        credit[head] = (weights[sizes[without]] * lost).sum()
    return Shapley(credit.float(), torch.zeros(count), 0)


def orders(
    game: HeadGame,
    pairs: int,
    seeded: torch.Generator,
    units: Sequence[Sequence[int]] | None = None,
    *,
    following: bool = False,
) -> Shapley:
    """Every head's share of what is lost when all heads are levelled, by sampled orders.

    Heads of a unit move together and share equally what it is credited with; those of none keep
    their maps.
    """
    units = units or [[head] for head in range(len(game))]
    moving = {head for unit in units for head in unit}
    still = [head for head in range(len(game)) if head not in moving]
    drawn = _antithetic(len(units), pairs, seeded)
    walks = [([units[place] for place in order], still) for order in drawn]
    return _mean(_walked(game, walks, (0.0, 1.0), following=following))


def staged(
    game: HeadGame,
    stretch: tuple[float, float],
    pairs: int,
    seeded: torch.Generator,
    first: int = 0,
) -> Shapley:
    """Every head's share of what changes while heads move from one share of their map to another.

    Sites before ``first`` keep their maps.
    """
    numbers = game.by_site(torch.arange(len(game)))
    sites = [site.tolist() for site in numbers[first:]]
    still = [head for site in numbers[:first] for head in site.tolist()]
    drawn = _antithetic(len(sites), 1, seeded)
    rough = _walked(game, [([sites[i] for i in order], still) for order in drawn], stretch).mean(0)
    by_site = torch.stack([rough[heads].sum() for heads in sites])
    line = SETTINGS.opened * by_site.abs().sum()
    walks: list[tuple[list[list[int]], list[int]]] = []
    for order in _antithetic(len(sites), pairs, seeded):
        units: list[list[int]] = []
        for place in order:
            heads = sites[place]
            opened = [heads[i] for i in torch.randperm(len(heads), generator=seeded)]
            units += [[head] for head in opened] if by_site[place].abs() > line else [heads]
        walks.append((units, still))
    return _mean(_walked(game, walks, stretch))


def _antithetic(count: int, pairs: int, seeded: torch.Generator) -> list[list[int]]:
    """Random orders, each followed by itself backwards."""
    drawn = [torch.randperm(count, generator=seeded).tolist() for _ in range(pairs)]
    return [order for forwards in drawn for order in (forwards, forwards[::-1])]


def _walked(
    game: HeadGame,
    walks: Sequence[tuple[Sequence[Sequence[int]], Sequence[int]]],
    stretch: tuple[float, float],
    *,
    following: bool = False,
) -> Float[Tensor, "walk head"]:
    """What the answer gains when units of heads move along a stretch in the order of each walk.

    A walk is its units in their order, and the heads that keep their maps. All run together.
    """
    settings: list[Shares] = []
    for units, still in walks:
        steps: Shares = torch.full((len(units) + 1, len(game)), stretch[0])
        steps[:, list(still)] = 1.0
        for step, unit in enumerate(units, start=1):
            steps[step:, list(unit)] = stretch[1]
        settings.append(steps)
    margins = to_float64(game.margins(torch.cat(settings), following=following))
    credit = torch.zeros(len(walks), len(game), dtype=torch.double)
    of_walks = torch.split(margins, [len(steps) for steps in settings])
    for row, (units, _), along in zip(credit, walks, of_walks, strict=True):
        for gain, unit in zip(along.diff(), units, strict=True):
            row[list(unit)] = gain / len(unit)
    return credit


def _mean(walks: Float[Tensor, "order head"]) -> Shapley:
    """The mean over orders, and its standard error over pairs of opposite ones."""
    pairs = walks.reshape(-1, 2, walks.shape[1]).mean(1)
    error = torch.full_like(pairs[0], torch.nan)
    if len(pairs) >= SETTINGS.fewest_pairs:
        error = pairs.std(0) / len(pairs) ** 0.5
    return Shapley(pairs.mean(0).float(), error.float(), len(pairs))
