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
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.head_game import HeadGame, margin_of
from exhibit_a.methods.attribution.head_orders import coalitions, orders, staged
from exhibit_a.methods.explanation.flow import one_stack
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.paths import Limits, PathIntegral, integrate_sums
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import SiteHeads, SiteMap, SiteVisible
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, chosen_target

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
    one_stack(trace)
    game = HeadGame(trace, margin_of(target))
    ends = game.margins(torch.stack([game.setting(rest=0.0), game.setting()])).tolist()
    path = joint_path(game, (ends[0], ends[1]), points)
    return torch.stack([edges.sum((0, 1)) for edges in edges_of(game, path)]).sum(0).cpu()


def joint_path(game: HeadGame, ends: tuple[float, float], points: int) -> PathIntegral:
    """The joint path, all heads from even to what they were; ends are the margins there."""

    def heights(alphas: list[float]) -> Tensor:
        return game.margins(torch.tensor(alphas)[:, None].expand(-1, len(game)))

    return integrate_sums(
        lambda alphas, weights: game.slopes(alphas, weights.float()),
        ends,
        heights=heights,
        limits=Limits(TOLERANCE, TOLERANCE * FLOOR, points, game.sets_held),
        jumps_apart=True,
    )


def edges_of(game: HeadGame, path: PathIntegral) -> tuple[SiteMap, ...]:
    """What each edge added along the path."""
    slopes = game.by_maps(path.integral)
    return tuple((a - u) * g for a, u, g in zip(game.own, game.even, slopes, strict=True))


@method(
    question="Does the answer rest on where the heads look?",
    needs=("attention", "values", "hidden", "target"),
    cost=Cost(forwards=25, per_layer=6, maps=4),
    command="reliance",
    rows=True,
    tokens=token_scores,
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
    if budget is not None and budget < FEWEST_POINTS:
        raise BadRequestError(f"A budget of {budget} is too small; give {FEWEST_POINTS} or more.")
    chosen = chosen_target(trace, target)
    game = HeadGame(trace, margin_of(chosen))
    if by == "coalitions" and len(game) > FEW:
        raise NotComputableError(
            f"{len(game)} heads form 2^{len(game)} sets; all are tried for at most {FEW} heads. "
            'Take by="path" or by="orders".'
        )
    return _Measured(game, by, (budget, passes), seed).result(chosen)


class _Measured:
    """The numbers of one reliance, measured one after the other."""

    def __init__(
        self, game: HeadGame, by: str, limits: tuple[int | None, int | None], seed: int
    ) -> None:
        self.game, self.seed = game, seed
        budget, self.passes = limits
        points = self._affordable(POINTS if budget is None or by == "orders" else budget)
        ends = torch.stack([game.setting(), game.setting(rest=0.0)])
        self.margin, self.even_margin = game.margins(ends).tolist()
        self.size = max(abs(self.margin), abs(self.even_margin))
        whole = abs(self.margin - self.even_margin)
        self.scale = max(whole, FLOOR * self.size)
        few = len(game) <= FEW
        self.by = by if by != "auto" else ("coalitions" if few else "path")
        self.path = joint_path(game, (self.even_margin, self.margin), points)
        self.credit, self.error = self._shares(budget)

    def result(self, target: Target) -> Reliance:
        """Everything, as a result."""
        game, trace = self.game, self.game.trace
        gap = self.margin - self.even_margin - float(self.credit.double().sum())
        one_head = self.margin - game.margins(1 - torch.eye(len(game)))
        permuted = game.permuted(CONTROLS, self.seed)
        slopes = game.by_maps(self.path.integral)
        rows = zip(game.own, game.even, slopes, trace.visible, strict=True)
        along = [along_rows(*each) for each in rows]
        reason = self._doubt(gap)
        return Reliance(
            tokens=trace.tokens,
            layouts=trace.layouts,
            provenance=trace.subject.provenance(
                "reliance", self.seed, target=str(game.target), by=self.by
            ),
            checks=self._checks(gap),
            sites=trace.sites,
            sequences=trace.token_names,
            heads=game.by_site(self.credit),
            one_head=game.by_site(one_head),
            standard_error=game.by_site(self.error),
            null=tuple(site.null for site in along),
            alignment=tuple(site.alignment for site in along),
            pointing=tuple(site.pointing for site in along),
            coherence=tuple(site.coherence for site in along),
            edges=edges_of(game, self.path),
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
            exact = coalitions(game)
            return exact.credit, exact.standard_error
        if self.by == "orders":
            sampled = orders(game, budget or ORDER_PAIRS, seeded)
            return sampled.credit, sampled.standard_error
        slopes = game.by_maps(self.path.integral)
        credit = torch.cat(
            [
                ((a - u) * g).sum((1, 2), dtype=torch.double)
                for a, u, g in zip(game.own, game.even, slopes, strict=True)
            ]
        ).cpu()
        variance = torch.zeros_like(credit)
        if self._closes:
            return credit.float(), variance.float()
        for jump in self.path.jumps if self._shares_jumps else ():
            inside = staged(game, jump.start, jump.stop, JUMP_PAIRS, seeded)
            credit += inside.credit
            variance += inside.standard_error.double().square()
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


class AlongRows(NamedTuple):
    """What the rows of every head say together."""

    null: SiteHeads  # spread of the share if the rows had been permuted
    alignment: SiteHeads  # correlation of weights and slopes, pooled over rows
    pointing: SiteHeads  # cosine of weights and contributions, row by row
    coherence: SiteHeads  # how far the rows speak for the same side as the head


def along_rows(own: SiteMap, even: SiteMap, slopes: SiteMap, visible: SiteVisible) -> AlongRows:
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
    seen = visible.to(own.device, own.dtype)
    count = seen.sum(-1)
    slopes = slopes * seen
    centred = (slopes - slopes.sum(-1, keepdim=True) / count.clamp_min(1)[:, None]) * seen
    weights, sizes = (own - even).square().sum(-1), centred.square().sum(-1)
    variance = (weights * sizes / (count - 1).clamp_min(1)).sum(-1)
    tiny = torch.finfo(own.dtype).tiny
    row_shares = (own * centred).sum(-1)
    share = row_shares.sum(-1)
    alignment = share / (weights * sizes).sqrt().sum(-1).clamp_min(tiny)
    contributed = own * (slopes - _medians(slopes, seen)) * seen
    lengths = own.square().sum(-1).sqrt() * contributed.square().sum(-1).sqrt()
    cosines = (own * contributed).sum(-1) / lengths.clamp_min(tiny) * row_shares.sign()
    masses = contributed.abs().sum(-1)
    voices = row_shares.sign() * share.sign()[:, None]
    pointing, coherence = (
        (numbers * masses).sum(-1) / masses.sum(-1).clamp_min(tiny) for numbers in (cosines, voices)
    )
    return AlongRows(*(n.cpu() for n in (variance.sqrt(), alignment, pointing, coherence)))


def _medians(slopes: SiteMap, seen: Float[Tensor, "query key"]) -> Float[Tensor, "head query 1"]:
    """The median of every row over the keys it may see: between the two middle ones, if two are."""
    known = torch.where(seen > 0, slopes, torch.nan)
    low, high = known.nanmedian(-1).values, -(-known).nanmedian(-1).values
    return ((low + high) / 2).nan_to_num().unsqueeze(-1)
