"""Each head's share in what the answer loses with uniform attention, and whether it holds.

Heads of a frozen pass are made uniform (``head_game.py``), in four steps:

1. The answer as it is, and with all heads uniform: between them lies what is shared.
2. The joint path of all heads from uniform to what they were, in panels (``numerics/paths.py``).
3. What the path jumps over, by sampled orders (``head_orders.py``). With few heads all coalitions
   are tried instead, and where orders were requested, they are the whole of it.
4. The controls: every head uniform alone, and all rows permuted; more often where it is not certain
   whether that moves the answer.

Shares that miss too much of the whole, or whose standard error is large, are undetermined, and
``reason`` says why.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.head_game import HeadGame, maps_of_sites
from exhibit_a.methods.attribution.head_orders import coalitions, orders, staged
from exhibit_a.numerics.paths import PathLimits, integrate_sums
from exhibit_a.numerics.precision import float64_sum, to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.numerics.sorting import ascending
from exhibit_a.numerics.spilling import few_heads
from exhibit_a.shapes import SiteHeads, SiteMap, SiteVisible
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, margin_of

FEW = 12  # heads whose sets can all be tried
POINTS = 300  # on a path, at most
TOLERANCE, ACCEPTED = 0.05, 0.05  # gaps as a share of the size of the answer: aimed at, allowed
FLOOR = 0.05  # an answer that hardly moves is compared with this share of its margin
JUMP_PAIRS, ORDER_PAIRS = 3, 16  # of opposite orders: inside a jump, and instead of a path
CONTROLS = (8, 16)  # times that all rows are permuted, until it is certain what that does
MOVED = 0.1  # of the size of the answer: by less it does not move
CERTAIN = 2.0  # standard errors, beyond which a number is certain
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

    def estimator(self, heads: int) -> str:
        """The estimator for a number of heads."""
        if self.by == "coalitions" and heads > FEW:
            raise NotComputableError(
                f"{heads} heads form 2^{heads} sets; all are tried for at most {FEW} heads. "
                'Take by="path" or by="orders".'
            )
        return self.by if self.by != "auto" else ("coalitions" if heads <= FEW else "path")


class HeadShares:
    """The share of every head of one text, measured step by step."""

    def __init__(self, game: HeadGame, options: Options) -> None:
        self.game, self.seed, self.passes = game, options.seed, options.passes
        self.by, self.budget = options.estimator(len(game)), options.budget
        self.points = self._affordable(
            POINTS if options.budget is None or options.by == "orders" else options.budget
        )
        # step 1
        ends = game.margins(torch.stack([game.setting(), game.setting(rest=0.0)]))
        self.margin, self.even_margin = map(float, ends)
        self.size = max(abs(self.margin), abs(self.even_margin))
        self.scale = max(abs(self.margin - self.even_margin), FLOOR * self.size)

    def follow_path(self) -> None:
        """Walk the joint path of all heads from uniform to what they were (step 2)."""
        game, ends = self.game, (self.even_margin, self.margin)
        limits = PathLimits(TOLERANCE, TOLERANCE * FLOOR, self.points, game.sums_held)
        self.path = integrate_sums(
            lambda alphas, weights: game.gradients(alphas, weights.float()),
            ends,
            limits,
            jumps_apart=True,
        )

    def measure(self) -> None:
        """All four steps."""
        self.follow_path()
        self.credit, self.error = self._shares(self.budget)  # step 3
        # step 4
        self.one_head = self.margin - self.game.margins(1 - torch.eye(len(self.game)))
        self.permuted = torch.empty(0)
        for repeats in pairwise((0, *CONTROLS)):
            more = self.game.permuted(range(*repeats), self.seed)
            self.permuted = torch.cat([self.permuted, more])
            if self._controls_conclusive:
                break

    @property
    def _controls_conclusive(self) -> bool:
        """Whether it is certain that permuted rows move the answer, or do not; or passes end.

        They do where they are counted, and for a path that took more than its first points.
        """
        loss = (self.margin - self.permuted) / (self.size or 1.0)
        error = float(loss.std()) / len(loss) ** 0.5
        spent = self.passes is not None or self.path.points > FEWEST_POINTS
        return spent or abs(float(loss.mean()) - MOVED) >= CERTAIN * error

    @property
    def gap(self) -> float:
        """What the shares miss of what the answer loses with uniform attention in all heads."""
        return self.margin - self.even_margin - float(to_float64(self.credit).sum())

    @property
    def edges(self) -> Iterator[SiteMap]:
        """What each edge added along the path, site by site."""
        gradients = maps_of_sites(self.path.integral, self.game.own)
        for site, maps in enumerate(self.game.own):
            yield (maps - self.game.uniform(site)) * gradients[site]

    @property
    def along(self) -> list["AlongRows"]:
        """What the rows of every head say, site by site."""
        game, gradients = self.game, maps_of_sites(self.path.integral, self.game.own)
        return [
            along_rows(maps, game.uniform(site), gradients[site], game.trace.visible[site])
            for site, maps in enumerate(game.own)
        ]

    @property
    def way(self) -> str:
        """How the shares were measured."""
        sampled = self.by == "path" and not self._closes and self._shares_jumps
        return "path and orders" if sampled else self.by

    @property
    def reason(self) -> str:
        """Why the shares are undetermined; empty where they are not."""
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
            "gap as a share of the whole": abs(self.gap) / self.scale if self.scale else 0.0,
            "points": self.path.points,
            "forward passes": round(self.game.passes),
            "jumps": tuple((jump.start, jump.stop, jump.change) for jump in self.path.jumps),
            "largest standard error": float(self.error.amax()),
        } | ({} if self._closes or self._shares_jumps else {"left out": NO_ORDERS})

    @property
    def _reserved(self) -> float:
        """The passes that are needed besides the path."""
        return 2 + CONTROLS[0] + self.game.one_by_one

    def _affordable(self, points: int) -> int:
        """As many points of the path as the passes allow."""
        if self.passes is None:
            return points
        left = int(self.passes - self._reserved)
        if left < FEWEST_POINTS:
            raise NotComputableError(
                f"Making each of {len(self.game)} heads uniform alone takes "
                f"{self.game.one_by_one:.0f} forward passes; with what else is needed, that is "
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


def measured(trace: Trace, target: Target, options: Options) -> HeadShares:
    """The share of every head in the margin of a target."""
    shares = HeadShares(HeadGame(trace, margin_of(target)), options)
    shares.measure()
    return shares


class AlongRows(NamedTuple):
    """What the rows of every head say together."""

    null: SiteHeads  # spread of the share if the rows had been permuted
    alignment: SiteHeads  # correlation of weights and gradients, pooled over rows
    pointing: SiteHeads  # cosine of weights and contributions, row by row
    coherence: SiteHeads  # how far the rows speak for the same side as the head


def along_rows(
    maps: SiteMap, uniform: SiteMap, gradients: SiteMap, visible: SiteVisible
) -> AlongRows:
    """What the rows of every head say together; a few heads at a time, where maps are large."""
    runs = zip(few_heads(maps), few_heads(uniform), few_heads(gradients), strict=True)
    by_run = [_along_rows(*run, visible) for run in runs]
    return AlongRows(*(torch.cat(numbers) for numbers in zip(*by_run, strict=True)))


def _along_rows(
    maps: SiteMap, uniform: SiteMap, gradients: SiteMap, visible: SiteVisible
) -> AlongRows:
    """For every head: the null of its share, its alignment, whether it points, and coherently.

    A row's share is Σ_k (A − U)_k g_k. Over all permutations of A among the n keys of the row it
    has the mean 0 and the variance Σ(A − U)² Σ(g − ḡ)² / (n − 1); rows are permuted apart. The
    alignment is the correlation of A and g along rows, pooled with the rows' sizes.

    What a key contributed is A_k (g_k − m), compared with the median key of its row: the mean would
    credit a key without value with what the others speak against the answer. A row points where A
    and these contributions have the same direction (cosine), in the sense of the row's own share: a
    row that speaks against the answer can look at what it speaks of. Whether the rows of a head
    speak for one side is another question: the coherence is what those with the sense of the
    head's share contribute, less what the others do, of all. Rows count by what they contribute.
    """
    seen = visible.to(maps.device, maps.dtype)
    count = seen.sum(-1)
    gradients = gradients * seen
    centred = (gradients - gradients.sum(-1, keepdim=True) / count.clamp_min(1)[:, None]) * seen
    weights, sizes = (maps - uniform).square().sum(-1), centred.square().sum(-1)
    variance = (weights * sizes / (count - 1).clamp_min(1)).sum(-1)
    tiny = torch.finfo(maps.dtype).tiny
    row_shares = (maps * centred).sum(-1)
    share = row_shares.sum(-1)
    alignment = share / (weights * sizes).sqrt().sum(-1).clamp_min(tiny)
    contributed = maps * (gradients - _medians(gradients, seen)) * seen
    lengths = maps.square().sum(-1).sqrt() * contributed.square().sum(-1).sqrt()
    cosines = (maps * contributed).sum(-1) / lengths.clamp_min(tiny) * row_shares.sign()
    masses = contributed.abs().sum(-1)
    voices = row_shares.sign() * share.sign()[:, None]
    pointing, coherence = (
        (numbers * masses).sum(-1) / masses.sum(-1).clamp_min(tiny) for numbers in (cosines, voices)
    )
    return AlongRows(*(n.cpu() for n in (variance.sqrt(), alignment, pointing, coherence)))


def _medians(gradients: SiteMap, seen: Float[Tensor, "query key"]) -> Float[Tensor, "head query 1"]:
    """The median of every row over the keys it may see: between the two middle ones, if two are."""
    in_order = ascending(gradients.masked_fill(seen == 0, torch.inf))
    count = seen.sum(-1).long().expand(gradients.shape[:2])
    middle = torch.stack([(count - 1).clamp_min(0) // 2, count // 2], -1)
    low_and_high = in_order.gather(-1, middle.clamp_max(max(gradients.shape[-1] - 1, 0)))
    return low_and_high.mean(-1, keepdim=True).nan_to_num(0, 0, 0)
