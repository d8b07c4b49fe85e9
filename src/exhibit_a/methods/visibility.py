"""Which keys may a row see, and which rows see the same ones?

A mask is read as a list of different key sets. Bidirectional and cross-attention have one set,
padded or not; a causal mask has one for every row, each inside the next; a sliding window has sets
that overlap with their neighbours. Nothing else about the kind of mask has to be known.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Bool, Int
from torch import Tensor

CONTESTED = 16  # keys on which the rows of a block may differ


@dataclass(frozen=True, eq=False)
class KeySets:
    """The different sets of keys that rows see, ordered so that neighbours have much in common."""

    member: Bool[Tensor, "set key"]
    of_row: Int[Tensor, " query"]

    @cached_property
    def size(self) -> Int[Tensor, " set"]:
        """How many keys each set has."""
        return self.member.sum(-1)

    @cached_property
    def everything(self) -> Bool[Tensor, " key"]:
        """The keys that some row sees."""
        return self.member.any(0)

    def __len__(self) -> int:
        return len(self.member)

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Runs of neighbouring sets that agree on all but a few keys."""
        cuts, every, some = [0], self.member[0], self.member[0]
        for index in range(1, len(self)):
            every, some = every & self.member[index], some | self.member[index]
            if int((some & ~every).sum()) > CONTESTED:
                cuts.append(index)
                every = some = self.member[index]
        return tuple(slice(*edges) for edges in pairwise([*cuts, len(self)]))


def key_sets(visible: Bool[Tensor, "query key"]) -> KeySets:
    """The key sets of a mask; sets that form a chain are ordered from small to large."""
    first_row: dict[bytes, int] = {}
    rows = visible.cpu().numpy()
    seen = [first_row.setdefault(row.tobytes(), index) for index, row in enumerate(rows)]
    firsts = torch.tensor(list(first_row.values()), device=visible.device)
    member = visible[firsts]
    order = member.sum(-1).argsort(stable=True)
    nested = member[order]
    if bool((nested[:-1] & ~nested[1:]).any()):
        order, nested = torch.arange(len(member), device=visible.device), member
    place = torch.empty(len(rows), dtype=torch.long, device=visible.device)
    place[firsts[order]] = torch.arange(len(order), device=visible.device)
    return KeySets(nested, place[torch.tensor(seen, device=visible.device)])
