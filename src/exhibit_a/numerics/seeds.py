"""Random generators that depend on a seed and nothing else.

Every draw has a generator of its own, made from the caller's seed and the numbers that name the
draw (a site, a repeat, a text's place), so that no draw depends on what was drawn before it.
"""

from hashlib import blake2b
from numbers import Integral

import torch

from exhibit_a.errors import BadRequestError

LEAST, LARGEST = -(2**63), 2**64 - 1  # what torch takes


def generator(*numbers: int) -> torch.Generator:
    """Randomness that belongs to these numbers; a single number is torch's own seed.

    >>> bool(torch.rand(1, generator=generator(7)) == torch.rand(1, generator=generator(7)))
    True
    >>> bool(torch.rand(1, generator=generator(7, 1)) == torch.rand(1, generator=generator(7, 2)))
    False
    >>> generator(2**64)
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: The seed must have at most 64 bits, not 1844...; take ...
    """
    for number in numbers:
        require_seed(number)
    seed = numbers[0]
    if len(numbers) > 1:  # one seed of several: no two draws share their randomness by chance
        text = "/".join(map(str, numbers)).encode()
        seed = int.from_bytes(blake2b(text, digest_size=7).digest())
    return torch.Generator().manual_seed(seed)


def require_seed(seed: int) -> None:
    """Refuse a number that torch cannot take as a seed."""
    if not isinstance(seed, Integral):
        raise BadRequestError(f"The seed must be a whole number, not {seed!r}.")
    if not LEAST <= seed <= LARGEST:
        shown = str(seed) if abs(seed) < 10**40 else f"a number of {seed.bit_length()} bits"
        raise BadRequestError(
            f"The seed must have at most 64 bits, not {shown}; take one up to {LARGEST}."
        )
