"""Puts many rows into random order, quickly.

A random order of keys is the order of random numbers, one for each key. Random number and key share
one integer, the number in front, so that sorting integers is all there is to do (``sorting.py``).
Two keys can draw the same number, about one pair in a million, and stand in their old order then.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.numerics.sorting import ascending

WHOLE = 31  # bits of an integer, without its sign

Visible = Bool[Tensor, "row key"]


def permute_rows(
    maps: Float[Tensor, "map row key"], visible: Visible, seeded: torch.Generator
) -> Float[Tensor, "map row key"]:
    """Maps with the weights at the visible keys of each row permuted; other keys keep theirs.

    >>> from exhibit_a.numerics.permutations import permute_rows
    >>> maps, seen = torch.arange(8.0).reshape(1, 2, 4), torch.ones(2, 4, dtype=torch.bool).tril(1)
    >>> new = permute_rows(maps, seen, torch.Generator().manual_seed(0))
    >>> new.sort(-1).values.equal(maps), new[0, 0, 2:].tolist()
    (True, [2.0, 3.0])
    """
    new, hidden = torch.empty_like(maps), None if bool(visible.all()) else ~visible.cpu()
    places = None if hidden is None else _sorted_keys(hidden.int()).to(maps.device)
    for old, to in zip(maps, new, strict=True):  # one map at a time stays in a CPU's cache
        order = random_orders(old.shape, hidden, seeded).to(old.device)
        if places is None:
            torch.gather(old, -1, order, out=to)
        else:
            to.scatter_(-1, places, old.gather(-1, order))
    return new


def random_orders(
    shape: torch.Size, hidden: Bool[Tensor, "row key"] | None, seeded: torch.Generator
) -> Int[Tensor, "row key"]:
    """The keys of every row in a random order, those that are hidden after all others."""
    most = 2 ** (WHOLE - _bits(shape[-1])) - 1
    drawn = torch.randint(0, most, shape, generator=seeded, dtype=torch.int32)
    return _sorted_keys(drawn if hidden is None else drawn.masked_fill_(hidden, most))


def _sorted_keys(numbers: Int[Tensor, "row key"]) -> Int[Tensor, "row key"]:
    """The keys of every row in the order of their numbers, equal ones as they stand."""
    keys = numbers.shape[-1]
    joined = (numbers << _bits(keys)) | torch.arange(keys, dtype=torch.int32)
    in_order: Tensor = ascending(joined) & (2 ** _bits(keys) - 1)
    return in_order.long()


def _bits(keys: int) -> int:
    """Bits that the number of a key takes."""
    return max(keys - 1, 1).bit_length()
