"""Tests whether a ranking finds what matters better than random orders do.

Things (words, say) are taken away in the order of the ranking, the first few at each of some cuts,
and the loss is averaged over the cuts. A random order does the same. Runs are dear, so that the
number of different sets that are taken away is limited:

1. Where all sets of the sizes of the cuts fit the budget, all orders are compared: p is exact.
2. Otherwise orders are drawn, each nested like a ranking, and p = (1 + b)/(1 + N), where b of N
   orders lose as much as the ranking. The number of orders is fixed before anything is drawn. The
   plan with most cuts that leaves room for 100 orders is taken. (On 18 sentences, cuts of 10 and
   20 % with 110 orders found as much as those of 10, 20, 30 and 50 %, which need twice the runs.)
   The first cut is one thing alone: runs of it are few, and where a single thing decides, a tenth
   of all things would hold it too often by chance.
3. A ranking that b = 10 orders have reached by order number l needs no more: p = 10/l, which is
   as valid (Besag & Clifford, 1991). When all rankings have come to this, drawing ends.

All rankings are compared with the same orders, which cost as much as one ranking's alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator

CUTS = ((0.0, 0.1, 0.2, 0.3, 0.5), (0.0, 0.1, 0.2), (0.0, 0.2))  # shares; 0 is a single thing
ORDERS = 100  # that a plan with several cuts must leave room for
MOST_ORDERS = 999
REACHED = 10  # orders after which a ranking is known to be ordinary
BATCH = 20  # orders that are run together
CLEARLY = 0.05  # more than a ranking loses, as a share of that
EVEN = 1e-6  # losses nearer than this, as a share of the largest, are the same

Order = Sequence[int]
Subset = frozenset[int]
Losses = Callable[[Sequence[Subset]], Float[Tensor, " subset"]]


@dataclass(frozen=True)
class OrderPlan:
    """How many things are taken away at each cut, and how many orders are compared."""

    sizes: tuple[int, ...]
    orders: int
    exact: bool

    @property
    def finest(self) -> float:
        """The smallest p-value that can come out."""
        return 1 / self.orders if self.exact else 1 / (1 + self.orders)


@dataclass(frozen=True, eq=False)
class OrderComparison:
    """Rankings compared with random orders of the same things."""

    plan: OrderPlan
    losses: Float[Tensor, "ranking cut"]
    random: Float[Tensor, "order cut"]  # of the orders that were run
    percentile: Float[Tensor, " ranking"]  # share of random orders that lose less
    surpassed: Float[Tensor, " ranking"]  # share of random orders that lose clearly more
    p_value: Float[Tensor, " ranking"]


def plan_orders(count: int, rankings: int, budget: int) -> OrderPlan:
    """The cuts and the number of orders, by the number of things and of different sets to run.

    >>> plan_orders(6, rankings=3, budget=250)
    OrderPlan(sizes=(1, 2, 3), orders=120, exact=True)
    >>> plan_orders(18, rankings=10, budget=250)
    OrderPlan(sizes=(1, 2, 4), orders=106, exact=False)
    """
    plans = [_plan(_sizes(count, shares), count, rankings, budget) for shares in CUTS]
    return next((plan for plan in plans if plan.exact or plan.orders >= ORDERS), plans[-1])


def compare(
    plan: OrderPlan,
    rankings: Sequence[Order],
    losses: Losses,
    *,
    seed: int,
    enough: Callable[[], bool] = lambda: False,
) -> OrderComparison:
    """Compare rankings with random orders.

    Args:
        plan: the cuts, and how many orders.
        rankings: for each, all things, those that matter most first.
        losses: what is lost without each set of things.
        seed: of the random orders.
        enough: called between batches; where it is true, no more orders are drawn.
    """
    ranked = _nested(rankings, plan.sizes, losses)
    if plan.exact:
        # The losses of all orders, from the losses of all sets.
        count = len(rankings[0])
        subsets = [
            frozenset(things) for size in plan.sizes for things in combinations(range(count), size)
        ]
        known = dict(zip(subsets, to_float64(losses(subsets)).tolist(), strict=True))
        rows = [[known[subset] for subset in chain] for chain in _chains(count, plan.sizes)]
        random = torch.tensor(rows, dtype=torch.double)
        p_value = to_float64(_reaching(ranked, random)).mean(-1)
    else:
        random = _drawn(ranked, rankings[0], plan, losses, seed, enough)
        p_value = torch.stack([sequential_p(row) for row in _reaching(ranked, random)])
    percentile = to_float64(~_reaching(ranked, random)).mean(-1)
    clearly = ranked.mean(-1) + CLEARLY * ranked.mean(-1).abs()
    surpassed = to_float64(random.mean(-1)[None] > clearly[:, None]).mean(-1)
    return OrderComparison(plan, ranked, random, percentile, surpassed, p_value)


def sequential_p(reached: Tensor) -> Float[Tensor, ""]:
    """The p-value of a ranking, from which of the random orders lose as much, one after the other.

    >>> float(sequential_p(torch.tensor([True, False, False])))
    0.5
    >>> float(sequential_p(torch.ones(50, dtype=torch.bool)))
    1.0
    """
    counts = reached.cumsum(0)
    if len(counts) and int(counts[-1]) >= REACHED:
        last = int((counts < REACHED).sum()) + 1
        return torch.tensor(REACHED / last, dtype=torch.double)
    return torch.tensor((1 + int(reached.sum())) / (1 + len(reached)), dtype=torch.double)


def _sizes(count: int, shares: Sequence[float]) -> tuple[int, ...]:
    return tuple(sorted({max(1, math.ceil(share * count - 1e-9)) for share in shares}))


def _plan(sizes: tuple[int, ...], count: int, rankings: int, budget: int) -> OrderPlan:
    """All orders where they fit; else as many as fit with the rankings' own sets."""
    subsets = [math.comb(count, size) for size in sizes]
    if sum(subsets) <= budget:
        # In how many ways the things can leave, where only the sets at the cuts count.
        ways, before = 1, 0
        for size in sizes:
            ways *= math.comb(count - before, size - before)
            before = size
        return OrderPlan(sizes, ways, exact=True)
    orders = 0
    while (
        orders < MOST_ORDERS and sum(min(orders + 1 + rankings, most) for most in subsets) <= budget
    ):
        orders += 1
    return OrderPlan(sizes, orders, exact=False)


def _nested(
    orders: Sequence[Order], sizes: Sequence[int], losses: Losses
) -> Float[Tensor, "order cut"]:
    subsets = [frozenset(order[:size]) for order in orders for size in sizes]
    return to_float64(losses(subsets)).reshape(len(orders), len(sizes))


def _chains(
    count: int, sizes: Sequence[int], taken: Subset = frozenset()
) -> Iterator[tuple[Subset, ...]]:
    """All ways to take things away up to each cut, each cut holding what was taken before."""
    if not sizes:
        yield ()
        return
    left = sorted(set(range(count)) - taken)
    for things in combinations(left, sizes[0] - len(taken)):
        more = taken | frozenset(things)
        for rest in _chains(count, sizes[1:], more):
            yield (more, *rest)


def _drawn(
    ranked: Float[Tensor, "ranking cut"],
    things: Order,
    plan: OrderPlan,
    losses: Losses,
    seed: int,
    enough: Callable[[], bool],
) -> Float[Tensor, "order cut"]:
    """The losses of random orders, until every ranking is settled or the plan is done."""
    seeded = generator(seed)
    random = torch.empty(0, len(plan.sizes), dtype=torch.double)
    while len(random) < plan.orders:
        more = min(BATCH, plan.orders - len(random))
        orders = [torch.randperm(len(things), generator=seeded).tolist() for _ in range(more)]
        random = torch.cat([random, _nested(orders, plan.sizes, losses)])
        if enough() or bool((_reaching(ranked, random).sum(-1) >= REACHED).all()):
            break
    return random


def _reaching(losses: Float[Tensor, "ranking cut"], random: Float[Tensor, "order cut"]) -> Tensor:
    """Which random orders lose as much as each ranking, up to rounding."""
    ranked, drawn = losses.mean(-1), random.mean(-1)
    scale = max(float(ranked.abs().amax()), float(drawn.abs().amax()) if len(drawn) else 0.0)
    return drawn[None] >= ranked[:, None] - EVEN * scale
