"""Does the answer rest on where the heads look?

Freeze the attention maps of a pass and make heads *uniform*, each row over all keys it may see
(``head_game.py``). What the answer loses when all of them are is the reliance on attention as a
whole; each head has a share in it (``head_shares.py``):

1. With at most 12 heads, all sets of heads are tried: the Shapley value, exactly.
2. Otherwise all heads move together from uniform to what they were, P(α) = U + α(A − U), and

       φ_h = Σ (A_h − U_h) ⊙ ∫₀¹ ∂F(P(α))/∂P_h dα

   is the share of head h (Aumann–Shapley), edge by edge. The path is walked in panels that are
   halved until the shares add up to what the answer did there (``numerics/paths.py``).
3. Where the answer jumps, gradients say nothing: there the heads take their turns in sampled orders
   (``head_orders.py``), which has a standard error.
4. Where even that leaves too much open, the reliance is *undetermined*, and says why.

Every share comes with the effect of the head alone. A head with a large share and no effect alone
is *shared*: others stand in for it. And a share has a null: a head whose weights had been permuted
among its keys would have the mean share 0, with a spread that follows from the edges in closed form
(``null``).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.attribution.head_game import TOKENS_AT_ONCE, HeadGame
from exhibit_a.methods.attribution.head_shares import POINTS, HeadShares, Options, measured
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import SiteHeads, SiteMap
from exhibit_a.trace.answer_rows import one_stack
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, chosen_target, margin_of

By = Literal["auto", "path", "orders", "coalitions"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Reliance(SiteResult):
    """How far the answer rests on where each head looks, in log-odds of the answer."""

    unit_rules: ClassVar[dict[str, Rule]] = {"edges": "sum", "sequences": "names"}
    heads: tuple[SiteHeads, ...]  # the share of every head in ``whole``
    one_head: tuple[SiteHeads, ...]  # what uniform attention in it alone costs
    standard_error: tuple[SiteHeads, ...]  # of the shares; 0 where nothing was sampled
    null: tuple[SiteHeads, ...]  # spread of the share if the rows had been permuted
    alignment: tuple[SiteHeads, ...]  # correlation of weights and gradients along rows, -1 to 1
    pointing: tuple[SiteHeads, ...]  # cosine of weights and contributions along rows, -1 to 1
    coherence: tuple[SiteHeads, ...]  # how far rows speak for the same side, -1 to 1
    edges: tuple[SiteMap, ...]  # by the path; they add up to the shares, except for jumps
    margin: float  # of the answer as it is
    even_margin: float  # with all heads uniform
    permuted_margin: float  # with all rows permuted: mean, and its standard error
    permuted_error: float
    gap: float  # what the shares miss of ``whole``
    way: str  # path, path and orders, orders, coalitions
    determined: bool
    reason: str  # why it is not determined; empty if it is
    target: str

    @property
    def whole(self) -> float:
        """What the answer loses with uniform attention in all heads."""
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

    Edges come from the path alone, so that no head is made uniform by itself.
    """
    sites = one_stack(trace)
    shares = HeadShares(HeadGame(trace, margin_of(target)), Options("path", points))
    shares.follow_path()
    edges = list(shares.edges)
    return torch.stack([edges[site.index].sum((0, 1)) for site in sites]).sum(0).cpu()


@method(
    question="Does the answer rest on where the heads look?",
    needs=rows_of("attention", "values", "hidden", "target"),
    cost=Cost(forwards=25, per_layer=6, maps=4, at_once=TOKENS_AT_ONCE),
    command="reliance",
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
    """The share of every head in what the answer loses with uniform attention.

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
    shares = measured(trace, chosen_target(trace, target), Options(by, budget, passes, seed))
    game, trace, along = shares.game, shares.game.trace, shares.along
    return build_result(
        Reliance,
        trace,
        "reliance",
        seed=seed,
        settings={"target": str(game.target), "by": shares.by},
        checks=shares.checks,
        heads=game.by_site(shares.credit),
        one_head=game.by_site(shares.one_head),
        standard_error=game.by_site(shares.error),
        null=tuple(site.null for site in along),
        alignment=tuple(site.alignment for site in along),
        pointing=tuple(site.pointing for site in along),
        coherence=tuple(site.coherence for site in along),
        edges=tuple(shares.edges),
        margin=shares.margin,
        even_margin=shares.even_margin,
        permuted_margin=float(shares.permuted.mean()),
        permuted_error=float(shares.permuted.std()) / len(shares.permuted) ** 0.5,
        gap=shares.gap,
        way=shares.way,
        determined=not shares.reason,
        reason=shares.reason,
        target=str(game.target),
    )
