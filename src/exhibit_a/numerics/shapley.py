"""Shapley values: each player's fair share of a game.

A game v says what any coalition of n players is worth. The Shapley value of a player is the mean,
over all orders in which players may arrive, of what v gains when that player does. With few players
all coalitions are evaluated; with more, the values are those of the best additive game, where each
size of coalition counts by the kernel (n - 1) / (s (n - s)) (Lundberg & Lee, 2017):

1. the smallest coalitions and their complements count most and are few: size after size is
   evaluated completely, as far as the budget goes;
2. of the other sizes, coalitions are drawn together with their complements, each size as often as
   it counts;
3. weighted least squares under the condition that the values add up to v(all) - v(none);
4. the draws are drawn again from themselves (bootstrap): the spread of the values is their
   standard error. The sum says nothing about it, because the fit imposes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb, factorial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator

REDRAWS = 64  # of the bootstrap
TRIES = 20  # draws for each new coalition that is wanted, before giving up

Coalitions = Bool[Tensor, "coalition player"]
Game = Callable[[Coalitions], Float[Tensor, " coalition"]]


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """The share of every player, and how sure it is."""

    values: Float[Tensor, " player"]
    standard_error: Float[Tensor, " player"]  # 0 where all coalitions were evaluated
    change: float  # v(all) - v(none)
    coalitions: int  # that were evaluated, besides all and none
    exact: bool


def shapley_values(game: Game, players: int, *, budget: int, seed: int = 0) -> ShapleyValues:
    """The Shapley values of a game, from at most ``budget`` coalitions besides all and none.

    >>> from exhibit_a.numerics.shapley import shapley_values
    >>> def majority(coalitions):
    ...     return (coalitions.sum(1) >= 2).float()
    >>> shapley_values(majority, 3, budget=100).values
    tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    >>> def pairs(coalitions):  # the first two together, and the last one alone
    ...     return coalitions[:, :2].all(1) * 2.0 + coalitions[:, -1]
    >>> found = shapley_values(pairs, 12, budget=300)
    >>> found.exact, bool(found.standard_error.max() < 0.1)
    (False, True)

    Args:
        game: what each coalition is worth; a row says which players are in it.
        players: how many there are.
        budget: how many coalitions may be evaluated; with 2^players - 2 the values are exact.
        seed: same seed, same numbers.
    """
    if 2**players - 2 <= budget:
        # The definition: every coalition counts by the orders that lead through it.
        numbers = torch.arange(2**players)
        coalitions = (numbers[:, None] >> torch.arange(players)) % 2 == 1
        worth = to_float64(game(coalitions))
        orders = [factorial(size) * factorial(players - 1 - size) for size in range(players)]
        share = torch.tensor([count / factorial(players) for count in orders], dtype=torch.float64)
        sizes = coalitions.sum(1)
        joining = torch.where(sizes > 0, share[(sizes - 1).clamp_min(0)], 0.0)
        missing = torch.where(sizes < players, share[sizes.clamp_max(players - 1)], 0.0)
        weights = torch.where(coalitions, joining[:, None], -missing[:, None])
        change = float(worth[-1] - worth[0])
        return ShapleyValues(
            worth.cpu() @ weights, torch.zeros_like(weights[0]), change, len(worth) - 2, True
        )
    complete = _complete_sizes(players, budget // 2)
    draws = _drawn(players, budget // 2 - len(complete.coalitions), complete, generator(seed))
    drawn, place = torch.unique(draws, dim=0, return_inverse=True)
    small = torch.cat([complete.coalitions, drawn])
    ends = torch.stack([torch.zeros(players), torch.ones(players)]).bool()
    worth = to_float64(game(torch.cat([ends, small, ~small]))).cpu()
    low, high = worth[:2].tolist()
    redrawn = torch.randint(len(draws), (REDRAWS, len(draws)), generator=generator(seed, 1))
    chosen = place[torch.cat([torch.arange(len(draws))[None], redrawn])]
    counts = torch.zeros(len(chosen), len(drawn), dtype=torch.float64)
    counts.scatter_add_(1, chosen, torch.ones(chosen.shape, dtype=torch.float64))
    weights = torch.cat(
        [complete.weights.expand(len(chosen), -1), counts * complete.left / len(draws)], 1
    )
    values = _fitted(small, worth[2:] - low, weights, high - low)
    return ShapleyValues(values[0], values[1:].std(0), high - low, 2 * len(small), False)


@dataclass(frozen=True, eq=False)
class _Complete:
    """The coalitions of all sizes that are evaluated completely, each for its complement too."""

    coalitions: Coalitions
    weights: Float[Tensor, " coalition"]
    sizes: int  # 1 … sizes are complete
    left: float  # the weight of all other sizes


def _kernel(players: int) -> Float[Tensor, " size"]:
    """How much the coalitions of each size and their complements count, for sizes 1 … n / 2."""
    sizes = torch.arange(1, players // 2 + 1, dtype=torch.float64)
    weights = 1 / (sizes * (players - sizes))
    if players % 2 == 0:
        weights[-1] /= 2  # they are their own complements
    return weights / weights.sum()


def _complete_sizes(players: int, pairs: int) -> _Complete:
    """The smallest sizes, as long as a size costs no more than its share of the pairs left."""
    kernel, left, size = _kernel(players), 1.0, 0
    rows: list[Tensor] = []
    weights: list[Tensor] = []
    for weight in kernel.tolist():
        count = comb(players, size + 1) // (2 if 2 * (size + 1) == players else 1)
        fair = max(weight / left, 0.5 if size == 0 else 0.0)  # every player alone, if possible
        if count > pairs * fair + 1e-9:
            break
        size, pairs, left = size + 1, pairs - count, left - weight
        members = torch.tensor(list(combinations(range(players), size))[:count])
        rows.append(torch.zeros(count, players).scatter_(1, members, 1.0).bool())
        weights.append(torch.full((count,), weight / count, dtype=torch.float64))
    empty = torch.zeros(0, players, dtype=torch.bool)
    none = torch.zeros(0, dtype=torch.float64)
    return _Complete(torch.cat([empty, *rows]), torch.cat([none, *weights]), size, left)


def _drawn(players: int, pairs: int, complete: _Complete, seeded: torch.Generator) -> Coalitions:
    """Coalitions of the other sizes, until enough of them differ."""
    kernel = _kernel(players)
    kernel[: complete.sizes] = 0
    attempts = TRIES * max(1, pairs)
    sizes = 1 + torch.multinomial(kernel, attempts, replacement=True, generator=seeded)
    ranks = torch.rand(attempts, players, generator=seeded).argsort(1).argsort(1)
    draws = ranks < sizes[:, None]
    halves = (2 * sizes == players) & ~draws[:, 0]
    draws[halves] = ~draws[halves]  # of a coalition and its complement, the one with the first
    different: set[tuple[bool, ...]] = set()
    for number, draw in enumerate(draws.tolist()):
        different.add(tuple(draw))
        if len(different) > max(1, pairs):
            return draws[:number]
    return draws


def _fitted(
    small: Bool[Tensor, "pair player"],
    worth: Float[Tensor, " 2*pair"],
    weights: Float[Tensor, "fit pair"],
    change: float,
) -> Float[Tensor, "fit player"]:
    """The additive games nearest to what coalitions and complements are worth.

    The values minimise Σ w (worth - Σ values of members)² among those that add up to the change.
    """
    members = to_float64(torch.cat([small, ~small]))
    both = torch.cat([weights, weights], 1)
    gram = members.T @ (both[:, :, None] * members)
    inverse = torch.linalg.pinv(gram, hermitian=True)
    free = (inverse @ ((both * worth) @ members)[:, :, None]).squeeze(2)
    ones = inverse.sum(2)
    values: Tensor = free - ones * ((free.sum(1) - change) / ones.sum(1))[:, None]
    return values
