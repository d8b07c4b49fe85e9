"""Does the answer rest on where the heads look?

Freeze the attention maps of a pass and let heads look *evenly*, each row over all keys it may see
(``head_game.py``). What the answer loses when all of them do is the reliance on attention as a
whole; each head has a share in it:

1. With at most 12 heads, all sets of heads are tried: the Shapley value, exactly.
2. Otherwise all heads move together from even to what they were, P(α) = U + α(A − U), and

       φ_h = Σ (A_h − U_h) ⊙ ∫₀¹ ∂F(P(α))/∂P_h dα

   is the share of head h (Aumann–Shapley), edge by edge. The path is walked in panels that are
   halved until the shares add up to what the answer did there (``numerics/paths.py``).
3. Where the answer jumps, slopes say nothing: there the heads take their turns in sampled orders
   (``head_orders.py``), which has a standard error.
4. Where even that leaves too much open, the reliance is *undetermined*, and says why.

Beside every share stands the effect of the head alone. A head with a large share and no effect
alone is *shared*: others stand in for it. And a share has a null: a head whose weights had been
dealt to its keys at random would have the mean share 0, with a spread that follows from the edges
in closed form (``null``).

Several texts can be asked together (``relied_together``): their copies share batches, and each
walks its own path, with its own panels, jumps and doubts. A text whose answer depends on the
company goes alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.along_rows import along_rows
from exhibit_a.methods.attribution.head_company import TOKENS_AT_ONCE
from exhibit_a.methods.attribution.head_game import HeadGame, games_of, margin_of
from exhibit_a.methods.attribution.head_orders import coalitions, orders, staged
from exhibit_a.methods.explanation.flow import one_stack
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.numerics.exact import exact, exact_sum
from exhibit_a.numerics.paths import (
    Limits,
    PathIntegral,
    Request,
    Sums,
    integrate_together,
    side_by_side,
)
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import SiteHeads, SiteMap
from exhibit_a.trace.batches import can_share
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, chosen_target, reached

By = Literal["auto", "path", "orders", "coalitions"]

FEW = 12  # heads whose sets can all be tried
POINTS = 300  # on a path, at most
TOLERANCE, ACCEPTED = 0.05, 0.05  # gaps as a share of the size of the answer: aimed at, allowed
FLOOR = 0.05  # an answer that hardly moves is compared with this share of its margin
JUMP_PAIRS, ORDER_PAIRS = 3, 16  # of opposite orders: inside a jump, and instead of a path
CONTROLS = 8  # times that all rows are permuted
FEWEST_POINTS = 5
NO_ORDERS = "what the path jumps over is not shared out: that takes more passes than are allowed"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reliance(SiteResult):
    """How far the answer rests on where each head looks, in log-odds of the answer."""

    unit_rules: ClassVar[dict[str, Rule]] = {"edges": "sum", "sequences": "names"}
    heads: tuple[SiteHeads, ...]  # the share of every head in ``whole``
    one_head: tuple[SiteHeads, ...]  # what the answer loses when this head alone looks evenly
    standard_error: tuple[SiteHeads, ...]  # of the shares; 0 where nothing was sampled
    null: tuple[SiteHeads, ...]  # spread of the share if the rows had been permuted
    alignment: tuple[SiteHeads, ...]  # correlation of weights and slopes along rows, -1 to 1
    pointing: tuple[SiteHeads, ...]  # cosine of weights and contributions along rows, -1 to 1
    coherence: tuple[SiteHeads, ...]  # how far rows speak for the same side, -1 to 1
    edges: tuple[SiteMap, ...]  # by the path; they add up to the shares, except for jumps
    margin: float  # of the answer as it is
    even_margin: float  # with all heads even
    permuted_margin: float  # with all rows permuted: mean, and its standard error
    permuted_error: float
    gap: float  # what the shares miss of ``whole``
    way: str  # path, path and orders, orders, coalitions
    determined: bool
    reason: str  # why it is not determined; empty if it is
    target: str

    @property
    def whole(self) -> float:
        """What the answer loses when all heads look evenly."""
        return self.margin - self.even_margin

    @property
    def size(self) -> float:
        """The size of the answer, against which shares are small or large."""
        return max(abs(self.margin), abs(self.even_margin))

    @property
    def token_scores(self) -> Float[Tensor, " token"]:
        """What looking at each position of the input added, over all heads, layers and queries."""
        keys = [
            edges.sum((0, 1))
            for site, edges in zip(self.sites, self.edges, strict=True)
            if self.tokens_of(site.index)[1] == self.tokens
        ]
        return torch.stack(keys).sum(0)


def token_scores(trace: Trace, target: Target, *, points: int = POINTS) -> Float[Tensor, " token"]:
    """What looking at each token added to the answer, over sites, heads and queries.

    Edges come from the path alone, so that no head is made even by itself.
    """
    sites = one_stack(trace)
    (game,) = games_of([trace], [margin_of(target)])
    own, even = game.margins(torch.stack([game.setting(), game.setting(rest=0.0)])).tolist()
    (path,) = _paths([_Measured(game, _Asked("path", points), (own, even))])
    edges = list(_edges(game, path))
    return torch.stack([edges[site.index].sum((0, 1)) for site in sites]).sum(0).cpu()


@dataclass(frozen=True)
class _Asked:
    """How a reliance is to be measured: the options of `reliance`."""

    by: str = "auto"
    budget: int | None = None
    passes: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < FEWEST_POINTS:
            raise BadRequestError(
                f"A budget of {self.budget} is too small; give {FEWEST_POINTS} or more."
            )

    def way(self, heads: int) -> str:
        """The way for so many heads."""
        if self.by == "coalitions" and heads > FEW:
            raise NotComputableError(
                f"{heads} heads form 2^{heads} sets; all are tried for at most {FEW} heads. "
                'Take by="path" or by="orders".'
            )
        return self.by if self.by != "auto" else ("coalitions" if heads <= FEW else "path")


def relied_together(
    traces: Sequence[Trace], *, target: Target | str | int | None = None, **options: Any
) -> list[Reliance]:
    """The reliance of several texts, with the options of `reliance`; their copies share batches."""
    asked = _Asked(**options)
    targets = [chosen_target(trace, target) for trace in traces]
    every = list(range(len(traces)))
    groups = [every] if can_share(traces) else [[place] for place in every]
    return _in_groups(list(zip(traces, targets, strict=True)), groups, asked)


@method(
    question="Does the answer rest on where the heads look?",
    needs=rows_of("attention", "values", "hidden", "target"),
    cost=Cost(forwards=25, per_layer=6, maps=4, at_once=TOKENS_AT_ONCE),
    command="reliance",
    tokens=token_scores,
    together=relied_together,
)
def reliance(
    trace: Trace,
    *,
    target: Target | str | int | None = None,
    by: By = "auto",
    budget: int | None = None,
    passes: int | None = None,
    seed: int = 0,
) -> Reliance:
    """The share of every head in what the answer loses when heads look evenly.

    Everything is measured in the margin: the log-odds of the answer (for a number, the number).

    >>> result = xa.reliance(trace)
    >>> result.way, len(result.heads), tuple(result.heads[0].shape)
    ('path', 6, (12,))
    >>> abs(sum(float(site.sum()) for site in result.heads) + result.gap - result.whole) < 1e-3
    True

    Args:
        target: label or token to explain; without, what the model answers.
        by: path, orders or coalitions; auto takes all coalitions of few heads, else the path.
        budget: points of the path, or pairs of orders, at most; without, 300 or 16.
        passes: forward passes at most. The path has fewer points then, and what it jumps over is
            not shared out; where that is much, the result is not determined.
        seed: same seed, same numbers.
    """
    asked = _Asked(by, budget, passes, seed)
    return _measured([(trace, chosen_target(trace, target))], asked)[0]


def _measured(texts: Sequence[tuple[Trace, Target]], asked: _Asked) -> list[Reliance]:
    """The reliance of texts that share batches, step by step.

    1. As they are, and with all heads even.
    2. The paths, round by round.
    3. What the paths jump over, text by text: there are many settings, and few such texts.
    4. Every head even alone, and all rows permuted.
    """
    games = games_of([trace for trace, _ in texts], [margin_of(target) for _, target in texts])
    company, every = games[0].company, torch.arange(len(texts))
    ends = torch.stack([games[0].setting(), games[0].setting(rest=0.0)])
    reached_ends = company.play(every.repeat_interleave(2), ends.repeat(len(texts), 1)).margins
    works = [
        _Measured(game, asked, (own, even))
        for game, (own, even) in zip(games, reached_ends.reshape(-1, 2).tolist(), strict=True)
    ]
    calm = [place for place, work in enumerate(works) if work.undisturbed]
    if len(calm) < len(works):
        apart = [[place] for place in range(len(works)) if place not in calm]
        return _in_groups(texts, [*apart, *([calm] if calm else [])], asked)
    for work, path in zip(works, _paths(works), strict=True):
        work.take(path)
    heads = len(games[0])
    alone = company.play(
        every.repeat_interleave(heads), (1 - torch.eye(heads)).repeat(len(texts), 1)
    )
    one_by_one = alone.margins.reshape(len(texts), heads)
    permuted = company.permuted(every, CONTROLS, asked.seed)
    return [
        work.result(target, one_by_one[place], permuted[place])
        for place, (work, (_, target)) in enumerate(zip(works, texts, strict=True))
    ]


def _in_groups(
    texts: Sequence[tuple[Trace, Target]], groups: Sequence[Sequence[int]], asked: _Asked
) -> list[Reliance]:
    """The reliance of every text, of which some share batches, in the order of the texts."""
    found: dict[int, Reliance] = {}
    for group in groups:
        measured = _measured([texts[place] for place in group], asked)
        found |= dict(zip(group, measured, strict=True))
    return [found[place] for place in range(len(texts))]


def _paths(works: "Sequence[_Measured]") -> list[PathIntegral]:
    """The joint path of every text, all of its heads from even to what they were."""
    company = works[0].game.company

    def summed(requests: list[Request]) -> list[Sums]:
        counts = [len(request.alphas) for request in requests]
        places = torch.tensor([request.path for request in requests])
        margins, steepness, sums = company.slopes(
            places.repeat_interleave(torch.tensor(counts)),
            [alpha for request in requests for alpha in request.alphas],
            side_by_side([request.weights.float() for request in requests]),
        )
        firsts = [0, *accumulate(len(request.weights) for request in requests)]
        sums.reverse()  # each is dropped as soon as it is flat
        flat = [
            [_flat(sums.pop(), works[request.path].game.own) for _ in range(first, last)]
            for request, (first, last) in zip(requests, pairwise(firsts), strict=True)
        ]
        split = (torch.split(margins, counts), torch.split(steepness, counts), flat)
        return list(zip(*split, strict=True))

    limits = [
        Limits(TOLERANCE, TOLERANCE * FLOOR, work.points, work.game.sums_held) for work in works
    ]
    ends = [(work.even_margin, work.margin) for work in works]
    return integrate_together(summed, ends, limits, jumps_apart=True)


class _Measured:
    """The numbers of one reliance, measured one after the other."""

    def __init__(self, game: HeadGame, asked: _Asked, ends: tuple[float, float]) -> None:
        self.game, self.seed, self.passes = game, asked.seed, asked.passes
        self.by, self.budget = asked.way(len(game)), asked.budget
        self.points = self._affordable(
            POINTS if asked.budget is None or asked.by == "orders" else asked.budget
        )
        self.margin, self.even_margin = ends
        self.size = max(abs(self.margin), abs(self.even_margin))
        self.scale = max(abs(self.margin - self.even_margin), FLOOR * self.size)

    @property
    def undisturbed(self) -> bool:
        """Whether the answer in company is the one that the text got by itself."""
        if len(self.game.company) == 1:
            return True
        own = float(reached(self.game.trace, self.game.target))
        noise: float = torch.finfo(self.game.trace.subject.model.dtype).eps ** 0.5
        return abs(own - self.margin) <= noise * max(1.0, abs(own))

    def take(self, path: PathIntegral) -> None:
        """Take the path, and share out what it jumps over."""
        self.path = path
        self.credit, self.error = self._shares(self.budget)

    def result(
        self, target: Target, alone: Float[Tensor, " head"], permuted: Float[Tensor, " repeat"]
    ) -> Reliance:
        """Everything, with the margins of every head even alone and of all rows permuted."""
        game, trace = self.game, self.game.trace
        gap = self.margin - self.even_margin - float(exact(self.credit).sum())
        slopes = _unflattened(self.path.integral, game.own)
        along = [
            along_rows(own, game.even(site), slopes[site], trace.visible[site])
            for site, own in enumerate(game.own)
        ]
        reason = self._doubt(gap)
        return Reliance(
            tokens=trace.tokens,
            layouts=trace.layouts,
            provenance=trace.subject.provenance(
                "reliance", self.seed, target=str(margin_of(target)), by=self.by
            ),
            checks=self._checks(gap),
            sites=trace.sites,
            sequences=trace.token_names,
            heads=game.by_site(self.credit),
            one_head=game.by_site(self.margin - alone),
            standard_error=game.by_site(self.error),
            null=tuple(site.null for site in along),
            alignment=tuple(site.alignment for site in along),
            pointing=tuple(site.pointing for site in along),
            coherence=tuple(site.coherence for site in along),
            edges=tuple(_edges(game, self.path)),
            margin=self.margin,
            even_margin=self.even_margin,
            permuted_margin=float(permuted.mean()),
            permuted_error=float(permuted.std()) / CONTROLS**0.5,
            gap=gap,
            way=self._named(),
            determined=not reason,
            reason=reason,
            target=str(margin_of(target)),
        )

    @property
    def _reserved(self) -> float:
        """The passes that are needed beside the path."""
        return 2 + CONTROLS + self.game.one_by_one

    def _affordable(self, points: int) -> int:
        """As many points of the path as the passes allow."""
        if self.passes is None:
            return points
        left = int(self.passes - self._reserved)
        if left < FEWEST_POINTS:
            raise NotComputableError(
                f"Making each of {len(self.game)} heads even alone takes "
                f"{self.game.one_by_one:.0f} forward passes; with what is needed beside, that is "
                f"beyond the {self.passes} that are allowed."
            )
        return min(points, left)

    def _shares(self, budget: int | None) -> tuple[Tensor, Tensor]:
        """The share of every head, and its standard error."""
        game, seeded = self.game, generator(self.seed)
        if self.by == "coalitions":
            enumerated = coalitions(game)
            return enumerated.credit, enumerated.standard_error
        if self.by == "orders":
            sampled = orders(game, budget or ORDER_PAIRS, seeded)
            return sampled.credit, sampled.standard_error
        credit = torch.cat([exact_sum(edges, (1, 2)) for edges in _edges(game, self.path)]).cpu()
        variance = torch.zeros_like(credit)
        if self._closes:
            return credit.float(), variance.float()
        for jump in self.path.jumps if self._shares_jumps else ():
            inside = staged(game, jump.start, jump.stop, JUMP_PAIRS, seeded)
            credit += inside.credit
            variance += exact(inside.standard_error).square()
        return credit.float(), variance.sqrt().float()

    @property
    def _closes(self) -> bool:
        """Whether slopes alone account for the answer."""
        return not self.path.jumps

    @property
    def _shares_jumps(self) -> bool:
        """Whether there are passes left to share out what the path jumps over."""
        sites, walks = len(self.game.trace.sites), 2 * JUMP_PAIRS
        needed = 2 * (sites + 1) + walks * (len(self.game) + 1)
        return self.passes is None or self._reserved + self.path.points + needed <= self.passes

    def _named(self) -> str:
        sampled = self.by == "path" and not self._closes and self._shares_jumps
        return "path and orders" if sampled else self.by

    def _doubt(self, gap: float) -> str:
        """Why the shares are not to be relied upon; empty where they are."""
        if abs(gap) > ACCEPTED * self.scale:
            return f"the shares miss {abs(gap) / self.scale:.0%} of the whole"
        largest = float(self.error.nan_to_num(torch.inf).amax())
        if largest > ACCEPTED * self.size:
            return (
                f"{self.path.reason}, and sampled orders leave a standard error of "
                f"{largest / self.size:.0%} of the margin"
            )
        return ""

    def _checks(self, gap: float) -> dict[str, object]:
        return {
            "parity": self.game.trace.subject.anatomy.parity,
            "gap as a share of the whole": abs(gap) / self.scale if self.scale else 0.0,
            "points": self.path.points,
            "forward passes": round(self.game.passes),
            "jumps": tuple((jump.start, jump.stop, jump.change) for jump in self.path.jumps),
            "largest standard error": float(self.error.amax()),
        } | ({} if self._closes or self._shares_jumps else {"left out": NO_ORDERS})


def _edges(game: HeadGame, path: PathIntegral) -> Iterator[SiteMap]:
    """What each edge added along the path, site by site."""
    slopes = _unflattened(path.integral, game.own)
    for site, own in enumerate(game.own):
        yield (own - game.even(site)) * slopes[site]


def _flat(maps: tuple[SiteMap, ...], like: tuple[SiteMap, ...]) -> Float[Tensor, " edge"]:
    """Maps as one row of numbers, without what was padded."""
    sizes = [own.shape[1:] for own in like]
    cut = [m[:, :queries, :keys] for m, (queries, keys) in zip(maps, sizes, strict=True)]
    return torch.cat([site.flatten() for site in cut])


def _unflattened(edges: Float[Tensor, " edge"], like: tuple[SiteMap, ...]) -> list[SiteMap]:
    parts = torch.split(edges, [maps.numel() for maps in like])
    return [part.reshape(maps.shape) for part, maps in zip(parts, like, strict=True)]
