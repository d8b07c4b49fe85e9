"""Shapley values against their definition, read aloud."""

from itertools import permutations

import pytest
import torch
from torch.testing import assert_close

from exhibit_a.numerics.shapley import shapley_values


def random_game(players, order, seed=0):
    """A game of random parts, each worth something when all of its members are there."""
    seeded = torch.Generator().manual_seed(seed)
    parts = torch.rand(3 * players, players, generator=seeded).argsort(1)[:, :order]
    worth = torch.randn(3 * players, generator=seeded, dtype=torch.float64)
    exact = torch.zeros(players, dtype=torch.float64)
    for part, value in zip(parts, worth, strict=True):
        exact[part] += value / order  # a part is shared by those without whom it is nothing
    return (lambda rows: rows[:, parts].all(2).double() @ worth), exact


def test_few_players_are_asked_in_every_order():
    game, _ = random_game(5, 3)

    def worth(members):
        return float(game(torch.tensor([[i in members for i in range(5)]])))

    expected = torch.zeros(5, dtype=torch.float64)
    orders = list(permutations(range(5)))
    for order in orders:
        for place, player in enumerate(order):
            expected[player] += worth(order[: place + 1]) - worth(order[:place])
    found = shapley_values(game, 5, budget=30)
    assert found.exact
    assert found.coalitions == 30
    assert_close(found.values, expected / len(orders))
    assert not shapley_values(game, 5, budget=29).exact


@pytest.mark.parametrize("players", [9, 10, 13])
def test_pairs_make_interactions_of_two_exact(players):
    """A coalition with its complement sees no interaction of an even order."""
    game, exact = random_game(players, 2)
    found = shapley_values(game, players, budget=4 * players)
    assert_close(found.values, exact, rtol=0, atol=1e-9)


def test_the_sum_is_the_change_and_the_budget_is_kept():
    asked = []
    game, _ = random_game(20, 4)

    def counted(rows):
        asked.append(len(rows.unique(dim=0)))
        return game(rows)

    found = shapley_values(counted, 20, budget=100)
    assert float(found.values.sum()) == pytest.approx(found.change)
    assert sum(asked) <= 102
    assert sum(asked) == found.coalitions + 2 > 90
