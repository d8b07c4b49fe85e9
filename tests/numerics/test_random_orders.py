"""Rankings against random orders: p-values agree with all orders, and are uniform under chance."""

from itertools import permutations

import pytest
import torch
from scipy.stats import kstest

from exhibit_a.numerics.random_orders import REACHED, OrderPlan, compare, plan_orders, sequential_p


class Runs:
    """Losses of sets of things that do not simply add up, and which sets were asked for."""

    def __init__(self, count, seed=0):
        seeded = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(count, generator=seeded, dtype=torch.double)
        self.asked = set()

    def __call__(self, subsets):
        self.asked |= set(subsets)
        sums = [self.weights[sorted(subset)].sum() for subset in subsets]
        return torch.stack(sums).exp()


def by_all_permutations(count, sizes, losses, ranking):
    """The share of all orders of the things that lose as much as the ranking."""

    def total(order):
        return sum(float(losses([frozenset(order[:size])])[0]) for size in sizes)

    own = total(ranking)
    orders = list(permutations(range(count)))
    return sum(total(order) >= own - 1e-9 for order in orders) / len(orders)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_few_things_are_compared_with_all_their_orders(count):
    losses, ranking = Runs(count), list(range(count))
    plan = plan_orders(count, rankings=1, budget=250)
    assert plan.exact
    found = compare(plan, [ranking], losses, seed=0)
    expected = by_all_permutations(count, plan.sizes, losses, ranking)
    assert float(found.p_value[0]) == pytest.approx(expected)
    assert float(found.percentile[0]) == pytest.approx(1 - expected)
    assert len(found.random) == plan.orders


@pytest.mark.parametrize("count", [18, 40, 400])
def test_the_budget_holds_and_leaves_room_for_a_hundred_orders(count):
    losses = Runs(count)
    rankings = [torch.randperm(count).tolist() for _ in range(8)]
    best = losses.weights.argsort(descending=True).tolist()
    plan = plan_orders(count, rankings=9, budget=240)
    found = compare(plan, [*rankings, best], losses, seed=0)
    assert len(losses.asked) <= 240
    assert len(found.random) == plan.orders >= (100 if count < 400 else 50)
    assert float(found.p_value[-1]) == pytest.approx(plan.finest)


def test_orders_end_when_no_ranking_is_better_than_chance():
    losses = Runs(40)
    worst = losses.weights.argsort().tolist()
    found = compare(plan_orders(40, 1, 240), [worst], losses, seed=0)
    assert len(found.random) == 20
    assert float(found.p_value[0]) == 1


def test_the_sequential_p_value_is_that_of_the_tenth_order_that_reaches():
    reached = torch.zeros(100, dtype=torch.bool)
    reached[::4] = True  # the tenth is number 37
    assert float(sequential_p(reached)) == pytest.approx(REACHED / 37)
    assert float(sequential_p(reached[:37])) == pytest.approx(REACHED / 37)
    assert float(sequential_p(reached[:36])) == pytest.approx(10 / 37)


def test_p_values_of_random_rankings_are_uniform():
    """No more than a share α of them is below α, with and without an early end."""
    losses, p_values = Runs(20, seed=5), []
    plan = OrderPlan(sizes=(4, 10), orders=99, exact=False)
    for seed in range(300):
        ranking = torch.randperm(20, generator=torch.Generator().manual_seed(10_000 + seed))
        found = compare(plan, [ranking.tolist()], losses, seed=seed)
        p_values.append(float(found.p_value[0]))
    shares = [sum(p <= alpha for p in p_values) / 300 for alpha in (0.05, 0.1, 0.2, 0.5)]
    for share, alpha in zip(shares, (0.05, 0.1, 0.2, 0.5), strict=True):
        assert share <= alpha + 3 * (alpha * (1 - alpha) / 300) ** 0.5
    too_small = kstest(p_values, "uniform", alternative="greater")
    assert too_small.pvalue > 0.05
    assert sum(p <= 0.5 for p in p_values) / 300 > 0.4  # and not much too large
