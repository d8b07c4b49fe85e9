"""What is each head's share in what the answer loses when heads look evenly, and does it hold?

Heads of a frozen pass are made even (``head_game.py``), for one text or for several that share
batches, in four steps:

1. The answer as it is, and with all heads even: between them lies what is shared.
2. The joint path of all heads from even to what they were, in panels (``numerics/paths.py``), round
   by round for all texts.
3. What a path jumps over, by sampled orders (``head_orders.py``), text by text: there are many
   settings, and few such texts. With few heads all coalitions are tried instead, and where orders
   were asked for, they are the whole of it.
4. The controls: every head even alone, and all rows permuted; more often where it is not certain
   whether that moves the answer.

A text whose answer depends on the company it is in goes alone. Shares that miss too much of the
whole, or whose standard error is large, are in doubt, and ``doubt`` says why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.along_rows import AlongRows, along_rows
from exhibit_a.methods.attribution.head_company import AllMaps, by_site
from exhibit_a.methods.attribution.head_game import HeadGame, games_of, margin_of
from exhibit_a.methods.attribution.head_orders import coalitions, orders, staged
from exhibit_a.numerics.panels import side_by_side
from exhibit_a.numerics.paths import Limits, PathIntegral, Request, Sums, integrate_together
from exhibit_a.numerics.precision import float64_sum, to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import SiteMap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, target_value

FEW = 12  # heads whose sets can all be tried
POINTS = 300  # on a path, at most
TOLERANCE, ACCEPTED = 0.05, 0.05  # gaps as a share of the size of the answer: aimed at, allowed
FLOOR = 0.05  # an answer that hardly moves is compared with this share of its margin
JUMP_PAIRS, ORDER_PAIRS = 3, 16  # of opposite orders: inside a jump, and instead of a path
CONTROLS = (8, 16)  # times that all rows are permuted, until it is certain what that does
MOVED = 0.1  # of the size of the answer: by less it does not move
DOUBT = 2.0  # standard errors, within which nothing is certain
FEWEST_POINTS = 5
NO_ORDERS = "what the path jumps over is not shared out: that takes more passes than are allowed"


@dataclass(frozen=True)
class Options:
    """How shares are to be measured: the options of `reliance`."""

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


class HeadShares:
    """The share of every head of one text, measured step by step."""

    def __init__(self, game: HeadGame, options: Options, ends: tuple[float, float]) -> None:
        self.game, self.seed, self.passes = game, options.seed, options.passes
        self.by, self.budget = options.way(len(game)), options.budget
        self.points = self._affordable(
            POINTS if options.budget is None or options.by == "orders" else options.budget
        )
        self.margin, self.even_margin = ends
        self.size = max(abs(self.margin), abs(self.even_margin))
        self.scale = max(abs(self.margin - self.even_margin), FLOOR * self.size)

    @property
    def undisturbed(self) -> bool:
        """Whether the answer in company is the one that the text got by itself."""
        if len(self.game.company) == 1:
            return True
        alone = float(target_value(self.game.trace, self.game.target))
        noise: float = torch.finfo(self.game.trace.subject.dtype).eps ** 0.5
        return abs(alone - self.margin) <= noise * max(1.0, abs(alone))

    def take(self, path: PathIntegral) -> None:
        """Take the path, and share out what it jumps over."""
        self.path = path
        self.credit, self.error = self._shares(self.budget)

    def control(self, alone: Float[Tensor, " head"], permuted: Float[Tensor, " repeat"]) -> None:
        """Take the margins with every head even alone, and with all rows permuted."""
        self.one_head, self.permuted = self.margin - alone, permuted

    def knows(self, permuted: Float[Tensor, " repeat"]) -> bool:
        """Whether it is certain that permuted rows move the answer, or do not; or passes end.

        They do where they are counted, and for a path that took more than its first points.
        """
        loss = (self.margin - permuted) / (self.size or 1.0)
        error = float(loss.std()) / len(loss) ** 0.5
        spent = self.passes is not None or self.path.points > FEWEST_POINTS
        return spent or abs(float(loss.mean()) - MOVED) >= DOUBT * error

    @property
    def gap(self) -> float:
        """What the shares miss of what the answer loses when all heads look evenly."""
        return self.margin - self.even_margin - float(to_float64(self.credit).sum())

    @property
    def edges(self) -> Iterator[SiteMap]:
        """What each edge added along the path, site by site."""
        return edges_along(self.game, self.path)

    @property
    def along(self) -> list[AlongRows]:
        """What the rows of every head say, site by site."""
        game, gradients = self.game, by_site(self.path.integral, self.game.own)
        return [
            along_rows(maps, game.even(site), gradients[site], game.trace.visible[site])
            for site, maps in enumerate(game.own)
        ]

    @property
    def way(self) -> str:
        """How the shares were measured."""
        sampled = self.by == "path" and not self._closes and self._shares_jumps
        return "path and orders" if sampled else self.by

    @property
    def doubt(self) -> str:
        """Why the shares are not to be relied upon; empty where they are."""
        missed = abs(self.gap)
        if missed > ACCEPTED * self.scale:
            return f"the shares miss {missed / self.scale:.0%} of the whole"
        largest = float(self.error.nan_to_num(torch.inf).amax())
        if largest > ACCEPTED * self.size:
            return (
                f"{self.path.reason}, and sampled orders leave a standard error of "
                f"{largest / self.size:.0%} of the margin"
            )
        return ""

    @property
    def checks(self) -> dict[str, object]:
        """What a reader of the shares may want to look at."""
        return {
            "parity": self.game.trace.subject.anatomy.parity,
            "gap as a share of the whole": abs(self.gap) / self.scale if self.scale else 0.0,
            "points": self.path.points,
            "forward passes": round(self.game.passes),
            "jumps": tuple((jump.start, jump.stop, jump.change) for jump in self.path.jumps),
            "largest standard error": float(self.error.amax()),
        } | ({} if self._closes or self._shares_jumps else {"left out": NO_ORDERS})

    @property
    def _reserved(self) -> float:
        """The passes that are needed beside the path."""
        return 2 + CONTROLS[0] + self.game.one_by_one

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
        credit = torch.cat([float64_sum(edges, (1, 2)) for edges in self.edges]).cpu()
        variance = torch.zeros_like(credit)
        if self._closes:
            return credit.float(), variance.float()
        for jump in self.path.jumps if self._shares_jumps else ():
            inside = staged(game, jump.start, jump.stop, JUMP_PAIRS, seeded)
            credit += inside.credit
            variance += to_float64(inside.standard_error).square()
        return credit.float(), variance.sqrt().float()

    @property
    def _closes(self) -> bool:
        """Whether gradients alone account for the answer."""
        return not self.path.jumps

    @property
    def _shares_jumps(self) -> bool:
        """Whether there are passes left to share out what the path jumps over."""
        sites, walks = len(self.game.trace.sites), 2 * JUMP_PAIRS
        needed = 2 * (sites + 1) + walks * (len(self.game) + 1)
        return self.passes is None or self._reserved + self.path.points + needed <= self.passes


def measured(
    texts: Sequence[tuple[Trace, Target]], groups: Sequence[Sequence[int]], options: Options
) -> Iterator[tuple[int, HeadShares]]:
    """The shares of every text with its place; the texts of a group share batches."""
    for group in groups:
        for seat, shares in _measured_together([texts[place] for place in group], options):
            yield group[seat], shares


def _measured_together(
    texts: Sequence[tuple[Trace, Target]], options: Options
) -> Iterator[tuple[int, HeadShares]]:
    """The shares of texts that share batches; whose answer depends on the company goes alone."""
    games = games_of([trace for trace, _ in texts], [margin_of(target) for _, target in texts])
    company, every = games[0].company, torch.arange(len(texts))
    # step 1
    ends = torch.stack([games[0].setting(), games[0].setting(rest=0.0)])
    reached_ends = company.play(every.repeat_interleave(2), ends.repeat(len(texts), 1)).margins
    works = [
        HeadShares(game, options, (margin, even_margin))
        for game, (margin, even_margin) in zip(
            games, reached_ends.reshape(-1, 2).tolist(), strict=True
        )
    ]
    calm = [place for place, work in enumerate(works) if work.undisturbed]
    if len(calm) < len(works):
        apart = [[place] for place in range(len(works)) if place not in calm]
        yield from measured(texts, [*apart, *([calm] if calm else [])], options)
        return
    for work, path in zip(works, joint_paths(works), strict=True):  # steps 2 and 3
        work.take(path)
    # step 4
    heads = len(games[0])
    alone = company.play(
        every.repeat_interleave(heads), (1 - torch.eye(heads)).repeat(len(texts), 1)
    )
    one_by_one = alone.margins.reshape(len(texts), heads)
    permuted = _permuted(works, options.seed)
    for place, work in enumerate(works):
        work.control(one_by_one[place], permuted[place])
        yield place, work


def _permuted(works: Sequence[HeadShares], seed: int) -> list[Float[Tensor, " _repeat"]]:
    """The margins of every text with all rows permuted, as often as it takes."""
    company, unsure = works[0].game.company, list(range(len(works)))
    margins = [torch.empty(0)] * len(works)
    for times in pairwise((0, *CONTROLS)):
        more = company.permuted(torch.tensor(unsure), range(*times), seed)
        for place, some in zip(unsure, more, strict=True):
            margins[place] = torch.cat([margins[place], some])
        unsure = [place for place in unsure if not works[place].knows(margins[place])]
        if not unsure:
            break
    return margins


def joint_paths(works: Sequence[HeadShares]) -> list[PathIntegral]:
    """The joint path of every text, all of its heads from even to what they were."""
    company = works[0].game.company

    def summed(requests: list[Request]) -> list[Sums]:
        counts = [len(request.alphas) for request in requests]
        places = torch.tensor([request.path for request in requests])
        margins, steepness, sums = company.gradients(
            places.repeat_interleave(torch.tensor(counts)),
            [alpha for request in requests for alpha in request.alphas],
            side_by_side([request.weights.float() for request in requests]),
        )
        padded = tuple(maps[0] for maps in company.maps.own)
        firsts = [0, *accumulate(len(request.weights) for request in requests)]
        cut = [
            [_cut(sums[place], padded, works[request.path].game.own) for place in range(*ends)]
            for request, ends in zip(requests, pairwise(firsts), strict=True)
        ]
        split = (torch.split(margins, counts), torch.split(steepness, counts), cut)
        return list(zip(*split, strict=True))

    limits = [
        Limits(TOLERANCE, TOLERANCE * FLOOR, work.points, work.game.sums_held) for work in works
    ]
    ends = [(work.even_margin, work.margin) for work in works]
    return integrate_together(summed, ends, limits, jumps_apart=True)


def edges_along(game: HeadGame, path: PathIntegral) -> Iterator[SiteMap]:
    """What each edge added along the path, site by site."""
    gradients = by_site(path.integral, game.own)
    for site, maps in enumerate(game.own):
        yield (maps - game.even(site)) * gradients[site]


def _cut(edges: AllMaps, padded: Sequence[SiteMap], own: Sequence[SiteMap]) -> AllMaps:
    """The maps of a text, without what it was padded by."""
    if [maps.shape for maps in padded] == [maps.shape for maps in own]:
        return edges
    sizes = [maps.shape[1:] for maps in own]
    pairs = zip(by_site(edges, padded), sizes, strict=True)
    return torch.cat([maps[:, :queries, :keys].flatten() for maps, (queries, keys) in pairs])
