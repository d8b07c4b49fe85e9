"""Does the answer rest on where the heads look?

Level the heads of a pass: sinks keep their weight, the rest of each row is spread evenly
(``levelled_maps.py``). What the answer loses when all of them are is the reliance on attention as a
whole, and each head has a share in it. Two games are played with the same maps, rows and points
(``head_game.py``): with all other maps frozen, a head's share is what it *carries*; with maps free
to follow, what it moves by moving others comes on top, and the difference is what it *steers*.

1. Which rows play: all of an encoder's; of a causal model those that the answer is read from, which
   is where it looks when it answers.
2. With at most 12 heads, all sets of heads are tried: the Shapley value, exactly. Otherwise all
   heads move together from levelled to what they were, P(α) = L + α(A − L), and

       φ_h = Σ (A_h − L_h) ⊙ ∫₀¹ ∂F(P(α))/∂P_h dα

   is the share of head h (Aumann–Shapley), edge by edge. The path is walked in panels that are
   halved until the shares add up to what the answer did there (``numerics/paths.py``).
3. The first layers build the tokens, and there the answer may jump. The smallest k is taken for
   which the heads of the layers from k on close within 25 points, in both games if there is one;
   the layers before are one block, "reading the words", whose worth is one number:
   whole = Σ heads + block, up to the gap.
4. Where no k closes, the path goes on with more points, and what it jumps over is shared out by
   sampled orders of heads, with a standard error.
5. Where shares cancel (their sizes add up to three times what they leave), the joint path and the
   mean over orders can differ: orders are tried, and the difference is an error of the share.
6. Every share comes with the effect of the head alone. A head with a large share and a small effect
   alone is *shared*: others stand in for it.

What misses more than 5 % of the whole is *undetermined*, and ``reason`` says why. A share has a
null: a head whose weights had been permuted among its keys would have the mean share 0, with a
spread that follows from the edges in closed form (``null``).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.head_game import (
    SETTINGS as GAME,
)
from exhibit_a.methods.attribution.head_game import (
    Credit,
    HeadGame,
    coalitions,
    maps_of_sites,
    orders,
    staged,
)
from exhibit_a.methods.attribution.levelled_maps import Baseline
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.numerics.paths import PathIntegral, PathLimits, integrate, integrate_sums
from exhibit_a.numerics.precision import float64_sum, to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.numerics.sorting import ascending
from exhibit_a.numerics.spilling import few_heads, spilled
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import Options, SiteHeads, SiteMap
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.trace.answer_rows import answering_rows, one_stack
from exhibit_a.trace.answers import token_name
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, chosen_target, margin_of

By = Literal["auto", "path", "orders", "coalitions"]
GameRows = Literal["answer", "all"]


@dataclass(frozen=True)
class RelianceSettings:
    """How exactly shares are measured, and when they are not determined."""

    few: int = 12  # heads whose sets can all be tried
    blocks: int = 3  # layers at most that are left out of the game
    points: int = 25  # of a path, within which a block must make it close
    most_points: int = 300  # where none does
    following_points: int = 75  # where maps follow
    fewest_points: int = 5
    accepted: float = 0.05  # gap as a share of what is shared out
    floor: float = 0.05  # an answer that hardly moves is compared with this share of its margin,
    least: float = 0.05  # and with this many log-odds at least
    jump_pairs: int = 3  # of opposite orders inside a jump,
    order_pairs: int = 16  # and instead of a path
    checking: float = 8  # passes to check one that cancels, in as many pairs,
    fewest_pairs: int = 2  # but not fewer,
    checked: int = 8  # heads that move one by one in these orders;
    apart: float = 0.5  # of all shares: where they differ by more, the split is arbitrary
    controls: tuple[int, ...] = (8, 16)  # times that all rows are permuted, until it is certain
    moved: float = 0.1  # of the size of the answer: by less it does not move
    certain: float = 2.0  # standard errors, beyond which a number is certain
    carries: float = 0.05  # of the size of the answer: a head with less carries nothing
    cancels: float = 3.0  # times what is left of all shares, or the margin: shares that cancel
    alone: int = 30  # passes within which every head is levelled alone,
    alone_in_rows: int = 10  # … where only some rows play
    first: int = 32  # heads that are, where all take more


SETTINGS = RelianceSettings()


class Block(NamedTuple):
    """The first layers, where they are left out of the game, and what levelling them costs."""

    layers: tuple[int, ...]  # layer calls; none where all heads have shares
    worth: float  # in log-odds of the answer, with all other heads levelled


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reliance(SiteResult):
    """How far the answer rests on where each head looks, in log-odds of the answer."""

    unit_rules: ClassVar[dict[str, Rule]] = {"edges": "sum", "sinks": "all", "sequences": "names"}
    heads: tuple[SiteHeads, ...]  # the share of every head in ``whole``; 0 in the block
    steering: tuple[SiteHeads, ...]  # what its share gains if other maps follow; NaN if not known
    one_head: tuple[SiteHeads, ...]  # what levelling it alone costs; NaN where it was not tried
    steering_alone: tuple[SiteHeads, ...]  # what that gains if other maps follow; NaN if not tried
    standard_error: tuple[SiteHeads, ...]  # of the shares; 0 where nothing was sampled
    null: tuple[SiteHeads, ...]  # spread of the share if the rows had been permuted
    alignment: tuple[SiteHeads, ...]  # correlation of weights and gradients along rows, -1 to 1
    pointing: tuple[SiteHeads, ...]  # cosine of weights and contributions along rows, -1 to 1
    coherence: tuple[SiteHeads, ...]  # how far rows speak for the same side, -1 to 1
    edges: tuple[SiteMap, ...]  # by the path; they add up to the shares, except for jumps
    sinks: tuple[Bool[Tensor, "_head _key"], ...]  # keys whose weight every head kept
    margin: float  # of the answer as it is
    baseline_margin: float  # with all heads levelled
    uniform_margin: float  # with uniform attention in all heads, sinks included
    permuted_margin: float  # with all rows permuted: mean, and its standard error
    permuted_error: float
    gap: float  # what the shares and the block miss of ``whole``
    steering_gap: float  # what shares with following maps miss
    block_layers: tuple[int, ...]
    block_worth: float
    way: str  # path, path and orders, orders, coalitions
    baseline: str  # levelled, uniform
    determined: bool
    reason: str  # why it is not determined; empty if it is
    steering_reason: str  # why what heads steer is not known; empty if it is
    target: str
    answer_tokens: tuple[str, ...] = ()  # of an answer that was also shared out token by token,
    heads_by_token: tuple[Float[Tensor, "token head"], ...] = ()  # … the shares in each of them,
    whole_by_token: Float[Tensor, " token"] | None = None  # … what it loses with all levelled,
    block_by_token: Float[Tensor, " token"] | None = None  # … what of that is the block's,
    gap_by_token: Float[Tensor, " token"] | None = None  # … and what shares and block miss

    @property
    def whole(self) -> float:
        """What the answer loses when all heads are levelled."""
        return self.margin - self.baseline_margin

    @property
    def sink_effect(self) -> float:
        """What the weight on the sinks does by itself: levelled attention less uniform."""
        return self.baseline_margin - self.uniform_margin

    @property
    def block(self) -> Block:
        """The layers that are left out of the game, and what they are worth."""
        return Block(self.block_layers, self.block_worth)

    @property
    def size(self) -> float:
        """The size of the answer, against which shares are small or large."""
        return max(abs(self.margin), abs(self.baseline_margin + self.block_worth))

    def rows_of(self, site: int, head: int) -> Float[Tensor, " query"]:
        """How much a head acts in each row: the sizes of the row's edges, added up."""
        return self.edges[site][head].abs().sum(-1)

    def whole_edges(self, site: int) -> SiteMap:
        """The edges of a site in a map with all its rows; those that did not play have none."""
        edges, queries = self.edges[site], self.sequences[self.sites[site].stack]
        if self.rows is None:
            return edges
        maps = edges.new_zeros(len(edges), len(queries), edges.shape[2])
        if edges.shape[1]:
            maps[:, list(self.rows)] = edges
        return maps

    @property
    def token_scores(self) -> Float[Tensor, " token"]:
        """What looking at each position of the input added, over all heads, layers and queries."""
        keys = [
            edges.sum((0, 1))
            for site, edges in zip(self.sites, self.edges, strict=True)
            if self.tokens_of(site.index)[1] == self.tokens
        ]
        return torch.stack(keys).sum(0)


def game_rows(trace: Trace, target: Target, rows: GameRows | None) -> Trace:
    """The pass with the rows that play.

    Of a causal model these are the ones that the answer is read from, of others all that were kept.
    """
    stacks = {site.stack for site in trace.sites if site.kind == "self"}
    causal = trace.sites[-1].causal and len(stacks - {"encoder"}) == len(stacks)
    if rows == "all" or (rows is None and not causal):
        return trace
    return trace.at_rows(answering_rows(trace, target))


def token_scores(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """What looking at each token added to the answer, over sites, heads and queries.

    Edges come from the path alone, so that no head is levelled by itself.
    """
    sites = one_stack(trace)
    shares = HeadShares(HeadGame(game_rows(trace, target, None), margin_of(target)), "path")
    shares.choose_block()
    edges, places = shares.edges(), {site.index for site in sites}
    keys = [of_site.sum((0, 1)) for site, of_site in enumerate(edges) if site in places]
    return torch.stack(keys).sum(0).cpu()


@method(
    question="Does the answer rest on where the heads look?",
    needs=rows_of("attention", "values", "hidden", "target"),
    cost=Cost(forwards=45, per_layer=6, maps=4, at_once=GAME.tokens_at_once),
    command="reliance",
    tokens=token_scores,
)
def reliance(
    trace: Trace,
    *,
    target: Target | str | int | None = None,
    baseline: Baseline = "levelled",
    rows: GameRows | None = None,
    by: By = "auto",
    budget: int | None = None,
    each_token: bool = False,
    seed: int = 0,
) -> Reliance:
    """The share of every head in what the answer loses when all heads are levelled.

    Everything is measured in the margin: the log-odds of the answer (for a number, the number).

    >>> result = xa.reliance(trace)
    >>> result.way, len(result.heads), tuple(result.heads[0].shape)
    ('path', 6, (12,))
    >>> shares = sum(float(site.sum()) for site in result.heads)
    >>> abs(shares + result.block.worth + result.gap - result.whole) < 1e-3
    True

    Args:
        target: label or token to explain; without, what the model answers.
        baseline: levelled keeps the weight on sinks and spreads the rest; uniform spreads all.
        rows: the rows that play: all, or answer for those that the answer is read from; without,
            the answer's rows of a causal model, and all rows of others.
        by: path, orders or coalitions; auto takes all coalitions of few heads, else the path.
        budget: points of the path, or pairs of orders, at most; without, 300 or 16.
        each_token: play the game of each token of an answer as well.
        seed: same seed, same numbers.
    """
    chosen = chosen_target(trace, target)
    game = HeadGame(game_rows(trace, chosen, rows), margin_of(chosen), baseline)
    shares = HeadShares(game, by, budget, seed)
    shares.measure()
    along, a_set = shares.along(), sum(maps.nbytes for maps in game.own)
    return build_result(
        Reliance,
        game.trace,
        "reliance",
        seed=seed,
        settings={"target": str(game.target), "by": shares.by, "baseline": baseline},
        checks=shares.checks,
        heads=game.by_site(shares.credit),
        steering=game.by_site(shares.steering),
        one_head=game.by_site(shares.one_head),
        steering_alone=game.by_site(shares.steering_alone),
        standard_error=game.by_site(shares.error),
        null=tuple(site.null for site in along),
        alignment=tuple(site.alignment for site in along),
        pointing=tuple(site.pointing for site in along),
        coherence=tuple(site.coherence for site in along),
        edges=tuple(spilled((edges,), of=a_set)[0] for edges in shares.edges()),
        sinks=shares.sinks,
        margin=game.margin,
        baseline_margin=shares.levelled,
        uniform_margin=shares.uniform,
        permuted_margin=float(shares.permuted.mean()),
        permuted_error=float(shares.permuted.std()) / len(shares.permuted) ** 0.5,
        gap=shares.gap,
        steering_gap=shares.steering_gap,
        block_layers=shares.walk.block,
        block_worth=shares.walk.start - shares.levelled,
        way=shares.way,
        baseline=baseline,
        determined=not shares.reason,
        reason=shares.reason,
        steering_reason=shares.steering_reason,
        target=str(game.target),
        **(_by_token(trace, chosen, shares) if each_token else {}),
    )


def _by_token(trace: Trace, answer: Target, whole: "HeadShares") -> Options:
    """The game of each token of an answer, by itself."""
    if answer.position is None:
        raise NotComputableError(
            f"The answer of this model is {ANSWERS[trace.subject.anatomy.answers]}, which has no "
            "tokens to play for."
        )
    names, games = [], []
    for place, index in enumerate(answer.indices):
        name = token_name(trace.subject, index)
        token = replace(
            answer, index=index, position=answer.position + place, name=name, following=()
        )
        game = HeadGame(game_rows(trace, token, "answer"), margin_of(token), whole.game.baseline)
        shares = HeadShares(game, whole.by, whole.budget, whole.seed)
        shares.choose_block()
        shares.share_out()
        names.append(name)
        games.append(shares)
    return {
        "answer_tokens": tuple(names),
        "heads_by_token": tuple(
            site.T for site in whole.game.by_site(torch.stack([each.credit for each in games], 1))
        ),
        "whole_by_token": torch.tensor([each.game.margin - each.levelled for each in games]),
        "block_by_token": torch.tensor([each.walk.start - each.levelled for each in games]),
        "gap_by_token": torch.tensor([each.gap for each in games]),
    }


class Following(NamedTuple):
    """The share of every head with maps that follow, and whether the shares add up."""

    credit: Credit
    gap: float
    reason: str  # why it is not known; empty if it is


class Walk(NamedTuple):
    """The joint path of the heads behind a block of first layers."""

    block: tuple[int, ...]  # layer calls that are left out of the game
    first: int  # the first site that plays
    start: float  # the margin with all heads that play levelled
    path: PathIntegral
    following: Following | None


class HeadShares:
    """The share of every head of one text, measured step by step."""

    def __init__(
        self, game: HeadGame, by: By = "auto", budget: int | None = None, seed: int = 0
    ) -> None:
        if budget is not None and budget < SETTINGS.fewest_points:
            raise BadRequestError(
                f"A budget of {budget} is too small; give {SETTINGS.fewest_points} or more."
            )
        if by == "coalitions" and len(game) > SETTINGS.few:
            raise NotComputableError(
                f"{len(game)} heads form 2^{len(game)} sets; all are tried for at most "
                f'{SETTINGS.few} heads. Take by="path" or by="orders".'
            )
        few = len(game) <= SETTINGS.few
        self.game, self.budget, self.seed = game, budget, seed
        self.by = by if by != "auto" else "coalitions" if few else "path"
        self.levelled = float(game.margins(torch.zeros(1, len(game))))
        self.way: str = self.by
        self.reasons: list[str] = []  # why the shares are not determined
        self.split = 0  # heads whose share depends on how effects are split

    def measure(self) -> None:
        """Everything that a result says."""
        self.choose_block(following=True)
        self.share_out()
        self._check_cancelling()
        self._level_alone()
        self._permute()
        sinks = self.game.baseline == "levelled" and any(len(s.keys) for s in self.game.maps.sinks)
        self.uniform = self.game.uniform_margin() if sinks else self.levelled

    def choose_block(self, *, following: bool = False) -> None:
        """Walk the joint path behind the smallest block behind which it closes (steps 2 and 3).

        With ``following``, the path of maps that follow must close as well, if it does for any.
        """
        game, budget = self.game, None if self.by == "orders" else self.budget
        most = SETTINGS.most_points if budget is None else budget
        calls = sorted({s.call for s in game.trace.sites if game.own[s.index].numel()})
        blocks = SETTINGS.blocks if self.by == "path" else 0
        walks: list[Walk] = []
        for count in range(min(blocks, len(calls) - 1) + 1):
            walk = self._walk(calls[:count], calls[count], min(SETTINGS.points, most))
            if following and not (walk.path.jumps and self.by == "path"):
                walk = walk._replace(following=self._follow(walk))
            walks.append(walk)
            if not walk.path.jumps and not (walk.following and walk.following.reason):
                break
        self.walk = min(walks, key=_unfinished)
        if self.walk.path.jumps and most > SETTINGS.points:  # step 4: nothing closes soon
            walk = self._walk(self.walk.block, calls[len(self.walk.block)], most)
            self.walk = walk._replace(following=self._follow(walk) if following else None)

    def _walk(self, block: Sequence[int], call: int, points: int) -> Walk:
        """The path of the heads from a layer call on."""
        game = self.game
        first = next(site.index for site in game.trace.sites if site.call >= call)
        start = self.levelled
        if block:
            setting = torch.tensor([[float(site < first) for site, _ in game.heads]])
            start = float(game.margins(setting))
        path = integrate_sums(
            lambda alphas, weights: game.gradients(alphas, weights.float(), first),
            (start, game.margin),
            self._limits(points),
            jumps_apart=True,
        )
        return Walk(tuple(block), first, start, path, None)

    def _limits(self, points: int) -> PathLimits:
        aimed = SETTINGS.accepted
        return PathLimits(
            aimed,
            aimed * SETTINGS.floor,
            points,
            least=aimed * SETTINGS.least,
            held=self.game.sums_held,
        )

    def _scale(self, start: float) -> float:
        """What a gap is compared with: what is shared out, unless it is next to nothing."""
        ends = self.game.margin, start
        floor = SETTINGS.floor * max(map(abs, ends))
        return max(abs(ends[0] - ends[1]), floor, SETTINGS.least)

    def _follow(self, walk: Walk) -> Following:
        """The share of every head with maps that follow."""
        game = self.game
        playing = torch.tensor([[float(site < walk.first) for site, _ in game.heads]])
        start = float(game.margins(playing, following=True))
        change = game.margin - start
        if self.by == "path":
            path = integrate(
                lambda alphas: game.followed_gradients(alphas, walk.first),
                (start, game.margin),
                limits=self._limits(SETTINGS.following_points),
            )
            credit, gap = path.integral.float().cpu(), path.gap
            missed = max(abs(gap), path.error if path.jumps else 0.0)
        else:
            pairs = self.budget or SETTINGS.order_pairs
            shapley = (
                coalitions(game, following=True)
                if self.by == "coalitions"
                else orders(game, pairs, generator(self.seed), following=True)
            )
            credit, gap = shapley.credit, change - float(to_float64(shapley.credit).sum())
            missed = max(abs(gap), float(shapley.standard_error.amax()))
        missed /= self._scale(start)
        reason = f"with maps that follow, the shares miss {missed:.0%} of what all heads take"
        return Following(credit, gap, reason if missed > SETTINGS.accepted else "")

    def share_out(self) -> None:
        """The share of every head, and its standard error."""
        game, seeded = self.game, generator(self.seed)
        if self.by == "coalitions":
            exact = coalitions(game, following=False)
            self.credit, self.error = exact.credit, exact.standard_error
        elif self.by == "orders":
            sampled = orders(game, self.budget or SETTINGS.order_pairs, seeded)
            self.credit, self.error = sampled.credit, sampled.standard_error
        else:
            credit = torch.cat([float64_sum(edges, (1, 2)) for edges in self.edges()]).cpu()
            variance = torch.zeros_like(credit)
            for jump in self.walk.path.jumps:  # step 4
                self.way = "path and orders"
                inside = staged(game, jump[:2], SETTINGS.jump_pairs, seeded, self.walk.first)
                credit += inside.credit
                variance += to_float64(inside.standard_error).square()
            self.credit, self.error = credit.float(), variance.sqrt().float()
        missed = abs(self.gap) / self._scale(self.walk.start)
        if missed > SETTINGS.accepted:
            self.reasons.append(f"the shares miss {missed:.0%} of what all heads take")
        largest = float(self.error.nan_to_num(torch.inf).amax())
        if largest > SETTINGS.accepted * max(self.size, SETTINGS.least):
            self.reasons.append(
                f"{self.walk.path.reason or 'orders differ'}, and sampled orders leave a standard "
                f"error of {largest / max(self.size, SETTINGS.least):.0%} of the margin"
            )

    @property
    def size(self) -> float:
        """The size of the answer, against which shares are small or large."""
        return max(abs(self.game.margin), abs(self.walk.start))

    @property
    def steering(self) -> Credit:
        """What the share of every head gains if other maps follow; NaN where it is not known."""
        following = self.walk.following
        if following is None or following.reason:
            return torch.full((len(self.game),), torch.nan)
        return following.credit - self.credit

    def _check_cancelling(self) -> None:
        """Compare shares that cancel with those by orders; what differs is an error (step 5)."""
        game, line = self.game, max(SETTINGS.carries * self.size, SETTINGS.least)
        left = max(abs(game.margin - self.walk.start), abs(game.margin))
        if self.by != "path" or float(self.credit.abs().sum()) <= SETTINGS.cancels * left:
            return
        playing = [head for head, (site, _) in enumerate(game.heads) if site >= self.walk.first]
        clear = [head for head in playing if abs(float(self.credit[head])) >= line]
        clear = sorted(clear, key=lambda head: -abs(float(self.credit[head])))[: SETTINGS.checked]
        rest = [head for head in playing if head not in set(clear)]
        units = [[head] for head in clear] + ([rest] if rest else [])
        of_a_pair = len(units) * game.of_a_pass
        pairs = min(SETTINGS.order_pairs, int(SETTINGS.checking / of_a_pair))
        pairs = max(pairs, SETTINGS.fewest_pairs)
        sampled = orders(game, pairs, generator(self.seed, 1), units)
        apart = (sampled.credit - self.credit).abs()
        differs = apart > SETTINGS.certain * sampled.standard_error
        differs[rest] = False
        self.error = torch.where(differs, torch.hypot(self.error, apart), self.error)
        sure = self.credit.abs() - SETTINGS.certain * self.error >= line
        self.split = len(clear) - int(sure[clear].sum())
        if apart[differs].sum() > SETTINGS.apart * self.credit[clear].abs().sum():
            self.reasons.append(
                "shares depend on how effects are split: they cancel, and by sampled orders they "
                "are others"
            )

    def _level_alone(self) -> None:
        """The effect of heads alone; of those that steer, also with maps that follow (step 6)."""
        game, count, steering = self.game, len(self.game), self.steering
        line = SETTINGS.carries * self.size
        most = torch.maximum(self.credit.abs(), steering.nan_to_num().abs())
        ranked = most.argsort(descending=True, stable=True)
        first = ranked if game.one_by_one <= self.alone else ranked[: SETTINGS.first]
        levelled = 1 - torch.eye(count)
        self.one_head = torch.full((count,), torch.nan)
        self.steering_alone = torch.full((count,), torch.nan)
        self.one_head[first] = game.margin - game.margins(levelled[first])
        steers = first[steering[first].nan_to_num().abs() >= line][: SETTINGS.first]
        if len(steers):
            lost = game.margin - game.margins(levelled[steers], following=True)
            self.steering_alone[steers] = lost - self.one_head[steers]

    @property
    def alone(self) -> int:
        """The passes within which every head is levelled alone."""
        return SETTINGS.alone if self.game.of_a_pass == 1 else SETTINGS.alone_in_rows

    def _permute(self) -> None:
        """The control: all rows permuted, more often where it is not certain what that does."""
        self.permuted = torch.empty(0)
        for repeats in pairwise((0, *SETTINGS.controls)):
            more = self.game.permuted(range(*repeats), self.seed)
            self.permuted = torch.cat([self.permuted, more])
            loss = (self.game.margin - self.permuted) / (self.size or 1.0)
            error = float(loss.std()) / len(loss) ** 0.5
            if abs(float(loss.mean()) - SETTINGS.moved) >= SETTINGS.certain * error:
                break

    @property
    def reason(self) -> str:
        """Why the shares are undetermined; empty where they are not."""
        return "; ".join(self.reasons)

    @property
    def steering_reason(self) -> str:
        """Why it is not known what heads steer; empty where it is."""
        following = self.walk.following
        return "the joint path does not close" if following is None else following.reason

    @property
    def steering_gap(self) -> float:
        """What the shares with maps that follow miss."""
        return math.nan if self.walk.following is None else self.walk.following.gap

    @property
    def gap(self) -> float:
        """What the shares and the block miss of what the answer loses."""
        return self.game.margin - self.walk.start - float(to_float64(self.credit).sum())

    @property
    def sinks(self) -> tuple[Bool[Tensor, "_head _key"], ...]:
        """Which keys kept their weight, for every head."""
        marks = []
        for maps, sinks in zip(self.game.own, self.game.maps.sinks, strict=True):
            kept = torch.zeros(len(maps), maps.shape[2], dtype=torch.bool)
            kept[:, sinks.keys.cpu()] = sinks.kept.cpu()
            marks.append(kept)
        return tuple(marks)

    def edges(self) -> Iterator[SiteMap]:
        """What each edge added along the path, site by site."""
        gradients = maps_of_sites(self.walk.path.integral, self.game.own)
        for site, maps in enumerate(self.game.own):
            yield (maps - self.game.maps.levelled(site)) * gradients[site]

    def along(self) -> list["AlongRows"]:
        """What the rows of every head say, site by site."""
        game, gradients = self.game, maps_of_sites(self.walk.path.integral, self.game.own)
        return [
            along_rows(
                maps,
                game.maps.levelled(site),
                gradients[site],
                game.trace.visible[site] & ~sinks.unsqueeze(1).to(game.trace.visible[site].device),
            )
            for site, (maps, sinks) in enumerate(zip(game.own, self.sinks, strict=True))
        ]

    @property
    def checks(self) -> dict[str, object]:
        """What a reader of the shares may want to look at."""
        path_start, path = self.walk.start, self.walk.path
        return {
            "gap as a share of the whole": abs(self.gap) / self._scale(path_start),
            "gap of steering shares": abs(self.steering_gap),
            "points": path.points,
            "forward passes": round(self.game.passes),
            "jumps": tuple((jump.start, jump.stop, jump.change) for jump in path.jumps),
            "heads whose share depends on the split": self.split,
            "largest standard error": float(self.error.amax()),
            "weight kept on": self._named_sinks(),
            "rows that play": self._named_rows(),
        }

    def _named_sinks(self) -> str:
        """The sinks of the game, and of how many heads."""
        counts: Counter[str] = Counter()
        for site, sinks in enumerate(self.sinks):
            names = self.game.trace.keys_of(site).tokens
            for key in sinks.any(0).nonzero().flatten().tolist():
                counts[f"{names[key]} ({key})"] += int(sinks[:, key].sum())
        named = [f"{name}: {count} heads" for name, count in counts.most_common()]
        return ", ".join(named) or "no key"

    def _named_rows(self) -> str:
        trace = self.game.trace
        tokens = trace.token_names[trace.sites[-1].stack]
        return "all" if trace.rows is None else f"{len(trace.rows)} of {len(tokens)}"


def _unfinished(walk: Walk) -> tuple[bool, bool, float, int]:
    """What is missing from a walk: the least of it is best, and the smallest block."""
    jumps, following = bool(walk.path.jumps), walk.following
    unknown = following is not None and bool(following.reason)
    return jumps, unknown, walk.path.error if jumps else 0.0, len(walk.block)


class AlongRows(NamedTuple):
    """What the rows of every head say together."""

    null: SiteHeads  # spread of the share if the rows had been permuted
    alignment: SiteHeads  # correlation of weights and gradients, pooled over rows
    pointing: SiteHeads  # cosine of weights and contributions, row by row
    coherence: SiteHeads  # how far the rows speak for the same side as the head


def along_rows(
    maps: SiteMap, level: SiteMap, gradients: SiteMap, seen: Bool[Tensor, "#head query key"]
) -> AlongRows:
    """What the rows of every head say together; a few heads at a time, where maps are large.

    ``seen`` are the keys among which weights could be permuted: visible ones that are no sinks.
    """
    every = seen.expand(maps.shape)
    sizes = [len(run) for run in few_heads(maps)]  # the same heads of all, whatever they take
    runs = zip(*(torch.split(each, sizes) for each in (maps, level, gradients, every)), strict=True)
    by_run = [_along_rows(*run) for run in runs]
    return AlongRows(*(torch.cat(numbers) for numbers in zip(*by_run, strict=True)))


def _along_rows(
    maps: SiteMap, level: SiteMap, gradients: SiteMap, seen: Bool[Tensor, "head query key"]
) -> AlongRows:
    """For every head: the null of its share, its alignment, whether it points, and coherently.

    A row's share is Σ_k (A − L)_k g_k. Over all permutations of A among the n keys of the row it
    has the mean 0 and the variance Σ(A − L)² Σ(g − ḡ)² / (n − 1); rows are permuted apart. The
    alignment is the correlation of A and g along rows, pooled with the rows' sizes.

    What a key contributed is A_k (g_k − m), compared with the median key of its row: the mean would
    credit a key without value with what the others speak against the answer. A row points where A
    and these contributions have the same direction (cosine), in the sense of the row's own share: a
    row that speaks against the answer can look at what it speaks of. Whether the rows of a head
    speak for one side is another question: the coherence is what those with the sense of the
    head's share contribute, less what the others do, of all. Rows count by what they contribute.
    """
    marks = seen.to(maps.device, maps.dtype)
    count = marks.sum(-1)
    maps, level, gradients = maps * marks, level * marks, gradients * marks
    mean = gradients.sum(-1, keepdim=True) / count.clamp_min(1).unsqueeze(-1)
    centred = (gradients - mean) * marks
    weights, sizes = (maps - level).square().sum(-1), centred.square().sum(-1)
    variance = (weights * sizes / (count - 1).clamp_min(1)).sum(-1)
    tiny = torch.finfo(maps.dtype).tiny
    row_shares = (maps * centred).sum(-1)
    share = row_shares.sum(-1)
    alignment = share / (weights * sizes).sqrt().sum(-1).clamp_min(tiny)
    contributed = maps * (gradients - _medians(gradients, marks)) * marks
    lengths = maps.square().sum(-1).sqrt() * contributed.square().sum(-1).sqrt()
    cosines = (maps * contributed).sum(-1) / lengths.clamp_min(tiny) * row_shares.sign()
    masses = contributed.abs().sum(-1)
    voices = row_shares.sign() * share.sign()[:, None]
    pointing, coherence = (
        (numbers * masses).sum(-1) / masses.sum(-1).clamp_min(tiny) for numbers in (cosines, voices)
    )
    return AlongRows(*(n.cpu() for n in (variance.sqrt(), alignment, pointing, coherence)))


def _medians(gradients: SiteMap, seen: SiteMap) -> Float[Tensor, "head query 1"]:
    """The median of every row over the keys it may see: between the two middle ones, if two are."""
    in_order = ascending(gradients.masked_fill(seen == 0, torch.inf))
    count = seen.sum(-1).long()
    middle = torch.stack([(count - 1).clamp_min(0) // 2, count // 2], -1)
    low_and_high = in_order.gather(-1, middle.clamp_max(max(gradients.shape[-1] - 1, 0)))
    return low_and_high.mean(-1, keepdim=True).nan_to_num(0, 0, 0)
