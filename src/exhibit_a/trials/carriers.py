"""Finds the few heads that carry the answer, and confirms them.

1. Heads are ranked by their share. The smallest set of the first k heads is looked for that,
   levelled together, takes at least half of what all heads that have shares take.
2. The same is done with sets of k other heads, drawn at random: the set was well named if they take
   much less.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.attribution.head_game import Head, HeadGame
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.numerics.seeds import generator

ENOUGH = 0.5  # of what all heads take
RANDOM_SETS = 12
AT_A_TIME = 4  # sizes that are tried together
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True)
class MinimalHeadSet:
    """The smallest set of heads found that carries the answer, and what other sets do."""

    heads: tuple[Head, ...]  # site, head; empty where no set carries half of it
    loss: float  # of the margin with these levelled
    probability: float  # of the answer then; the number itself, where the answer is one
    random_loss: float  # mean over random sets of as many other heads
    random_error: float  # its standard error
    random_sets: int

    @property
    def confirmed(self) -> bool:
        """Whether the set takes more than random sets do, beyond their spread."""
        return bool(self.heads) and self.loss > self.random_loss + 2 * self.random_error


def smallest_set(
    game: HeadGame, reliance: Reliance, seed: int, *, finely: int | None = None
) -> MinimalHeadSet:
    """The fewest heads, by share, that take half of what all heads take.

    With ``finely``, no more than this many sizes are tried between two of SIZES.
    """
    shares = torch.cat(reliance.heads)
    supporting = [int(head) for head in shares.argsort(descending=True) if shares[head] > 0]
    sizes = [size for size in SIZES if size < len(supporting)] + [len(supporting)]
    wanted = ENOUGH * (reliance.whole - reliance.block_worth)  # of what heads share
    if not supporting or wanted <= 0:
        return MinimalHeadSet((), 0.0, 0.0, 0.0, 0.0, 0)
    first = _first_enough(game, wanted, supporting, sizes)
    if first is None:
        return MinimalHeadSet((), 0.0, 0.0, 0.0, 0.0, 0)
    place = sizes.index(first)
    between = range(sizes[place - 1] + 1 if place else 1, first)
    if finely is not None and between:
        between = between[:: -(-len(between) // finely)]
    size = _first_enough(game, wanted, supporting, between) or first
    chosen = supporting[:size]
    play = game.play(game.setting(chosen)[None])
    block = {s.index for s in reliance.sites if s.call in reliance.block_layers}
    playing = [head for head, (site, _) in enumerate(game.heads) if site not in block]
    others = [head for head in playing if head not in set(chosen)]
    random = _random_losses(game, reliance.margin, others, size, seed)
    return MinimalHeadSet(
        tuple(game.heads[head] for head in chosen),
        reliance.margin - float(play.margins),
        float(play.probabilities),
        float(random.mean()) if len(random) else 0.0,
        float(random.std()) / len(random) ** 0.5 if len(random) > 1 else 0.0,
        len(random),
    )


def _first_enough(
    game: HeadGame, wanted: float, heads: list[int], sizes: Sequence[int]
) -> int | None:
    """The first of the sizes at which the first heads take that; a few are tried at a time."""
    for start in range(0, len(sizes), AT_A_TIME):
        some = sizes[start : start + AT_A_TIME]
        tried = torch.stack([game.setting(heads[:size]) for size in some])
        enough = game.margin - game.margins(tried) >= wanted
        if bool(enough.any()):
            return some[int(enough.nonzero()[0])]
    return None


def _random_losses(
    game: HeadGame, margin: float, others: Sequence[int], size: int, seed: int
) -> Float[Tensor, " set"]:
    """What random sets of other heads take."""
    if not others:
        return torch.zeros(0)
    seeded = generator(seed, size)
    count = min(size, len(others))
    sets = [
        [others[i] for i in torch.randperm(len(others), generator=seeded)[:count].tolist()]
        for _ in range(RANDOM_SETS)
    ]
    return margin - game.margins(torch.stack([game.setting(chosen) for chosen in sets]))
