"""Ways to damage the bytes of a file, by chance."""

import random


def damaged(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Other bytes than these, and what was done to them."""
    ways = (_flip, _flip, _flip, _cut, _drop, _insert, _zeros, _swap)
    while True:
        way = chance.choice(ways)
        changed, words = way(content, chance)
        if changed != content:
            return changed, words


def flipped(content: bytes, bit: int) -> bytes:
    """The bytes with one bit turned over."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _flip(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    bit = chance.randrange(8 * len(content))
    return flipped(content, bit), f"bit {bit} flipped"


def _cut(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    end = chance.randrange(len(content))
    return content[:end], f"cut after {end} bytes"


def _drop(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    start, length = chance.randrange(len(content)), chance.randint(1, 64)
    return content[:start] + content[start + length :], f"{length} bytes dropped at {start}"


def _insert(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    start, more = chance.randrange(len(content) + 1), chance.randbytes(chance.randint(1, 64))
    return content[:start] + more + content[start:], f"{len(more)} bytes inserted at {start}"


def _zeros(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    start, length = chance.randrange(len(content)), chance.randint(1, 512)
    changed = bytearray(content)
    changed[start : start + length] = bytes(len(changed[start : start + length]))
    return bytes(changed), f"{length} zeros at {start}"


def _swap(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    here, there = sorted((chance.randrange(len(content)), chance.randrange(len(content))))
    changed = bytearray(content)
    changed[here], changed[there] = changed[there], changed[here]
    return bytes(changed), f"bytes {here} and {there} exchanged"
