"""Each head's share of a change, when heads take their turns one after the other.

Heads move from one setting to another in a random order, and each is credited with what the answer
changes when it moves. The mean over all orders is the Shapley value: it depends on no order, shares
the whole change, gives equal heads the same and idle heads nothing.

``coalitions``  all 2^H sets of heads, exactly; for few heads
``orders``      sampled orders, each walked forwards and backwards (the second order of such a pair
                makes up for much of the luck of the first), with a standard error over pairs
``staged``      the same for many heads: whole sites take turns, and only the sites that move the
                answer are opened, head by head (the Owen value); the heads of a site that was not
                opened share its small credit equally
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.attribution.head_game import HeadGame, Shares
from exhibit_a.numerics.precision import to_float64

OPENED = 0.05  # a site that takes less than this share of the change is not opened
FEWEST_PAIRS = 2  # of orders: without two there is no standard error

Credit = Float[Tensor, " head"]


@dataclass(frozen=True, eq=False)
class Shapley:
    """Every head's share, and its standard error."""

    credit: Credit
    standard_error: Credit
    pairs: int  # of orders; 0: exact


def coalitions(game: HeadGame) -> Shapley:
    """Every head's exact share of what is lost with uniform attention in all heads."""
    count = len(game)
    sets = (torch.arange(2**count)[:, None] >> torch.arange(count)) & 1  # 1: uniform
    margins = to_float64(game.margins(1.0 - sets.float()))
    sizes = sets.sum(1)
    weights = torch.tensor([1 / (count * comb(count - 1, size)) for size in range(count)])
    credit = torch.zeros(count, dtype=torch.double)
    for head in range(count):
        without = (sets[:, head] == 0).nonzero().flatten()
        lost = margins[without] - margins[without + 2**head]
        credit[head] = (weights[sizes[without]] * lost).sum()
    return Shapley(credit.float(), torch.zeros(count), 0)


def orders(game: HeadGame, pairs: int, seeded: torch.Generator) -> Shapley:
    """Every head's share of what is lost with uniform attention in all heads, by sampled orders."""
    units = [[head] for head in range(len(game))]
    walks = [_walk(game, units, 0.0, 1.0, order) for order in _antithetic(len(game), pairs, seeded)]
    return _mean(torch.stack(walks))


def staged(
    game: HeadGame, start: float, stop: float, pairs: int, seeded: torch.Generator
) -> Shapley:
    """Every head's share of what changes while all move from one share of their map to another."""
    sites = _sites(game)
    rough = torch.stack(
        [_walk(game, sites, start, stop, order) for order in _antithetic(len(sites), 1, seeded)]
    ).mean(0)
    by_site = torch.stack([rough[heads].sum() for heads in sites])
    line = OPENED * by_site.abs().sum()
    walks = []
    for order in _antithetic(len(sites), pairs, seeded):
        units: list[list[int]] = []
        for place in order:
            heads = sites[place]
            opened = [heads[i] for i in torch.randperm(len(heads), generator=seeded)]
            units += [[head] for head in opened] if by_site[place].abs() > line else [heads]
        walks.append(_walk(game, units, start, stop, range(len(units))))
    return _mean(torch.stack(walks))


def _sites(game: HeadGame) -> list[list[int]]:
    """The numbers of the heads of every site."""
    numbers = game.by_site(torch.arange(len(game)))
    return [site.tolist() for site in numbers]


def _antithetic(count: int, pairs: int, seeded: torch.Generator) -> list[list[int]]:
    """Random orders, each followed by itself backwards."""
    drawn = [torch.randperm(count, generator=seeded).tolist() for _ in range(pairs)]
    return [order for forwards in drawn for order in (forwards, forwards[::-1])]


def _walk(
    game: HeadGame,
    units: Sequence[Sequence[int]],
    start: float,
    stop: float,
    order: Sequence[int],
) -> Credit:
    """What the answer gains when units of heads move from ``start`` to ``stop`` in this order."""
    settings: Shares = torch.full((len(order) + 1, len(game)), start)
    for step, place in enumerate(order, start=1):
        settings[step:, list(units[place])] = stop
    gained = to_float64(game.margins(settings)).diff()
    credit = torch.zeros(len(game), dtype=torch.double)
    for gain, place in zip(gained, order, strict=True):
        heads = list(units[place])
        credit[heads] = gain / len(heads)
    return credit


def _mean(walks: Float[Tensor, "order head"]) -> Shapley:
    """The mean over orders, and its standard error over pairs of opposite ones."""
    pairs = walks.reshape(-1, 2, walks.shape[1]).mean(1)
    error = torch.full_like(pairs[0], torch.nan)
    if len(pairs) >= FEWEST_PAIRS:
        error = pairs.std(0) / len(pairs) ** 0.5
    return Shapley(pairs.mean(0).float(), error.float(), len(pairs))
