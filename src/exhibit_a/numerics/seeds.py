"""How does randomness belong to a seed and to nothing else?

Every draw has a generator of its own, made from the caller's seed and the numbers that name the
draw (a site, a repeat, a text's place), so that no draw depends on what was drawn before it.
"""

from hashlib import blake2b

import torch


def generator(*numbers: int) -> torch.Generator:
    """Randomness that belongs to these numbers; a single number is torch's own seed.

    >>> bool(torch.rand(1, generator=generator(7)) == torch.rand(1, generator=generator(7)))
    True
    >>> bool(torch.rand(1, generator=generator(7, 1)) == torch.rand(1, generator=generator(7, 2)))
    False
    """
    seed = numbers[0] if len(numbers) == 1 else _mixed(numbers)
    return torch.Generator().manual_seed(seed)


def _mixed(numbers: tuple[int, ...]) -> int:
    """One seed from several numbers, so that no two draws share their randomness by chance."""
    text = "/".join(map(str, numbers)).encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest())
