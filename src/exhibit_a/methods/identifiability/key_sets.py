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

CONTESTED = 16  # keys on which the sets of a block may differ


@dataclass(frozen=True, eq=False)
class Block:
    """Neighbouring key sets that agree on all but a few contested keys, and their rows."""

    sets: slice
    rows: Int[Tensor, " row"]
    set_of_row: Int[Tensor, " row"]  # counted from the first set of the block
    contested: Int[Tensor, " contested"]
    absent: Bool[Tensor, "set contested"]
    gained: Int[Tensor, " gained"]  # keys of some set here and of none in the block before
    lost: Int[Tensor, " lost"]  # and the other way round


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
    def blocks(self) -> tuple[Block, ...]:
        """All sets, in runs as long as the contested keys allow."""
        cuts, every, some = [0], self.member[0], self.member[0]
        for index in range(1, len(self)):
            every, some = every & self.member[index], some | self.member[index]
            if int((some & ~every).sum()) > CONTESTED:
                cuts.append(index)
                every = some = self.member[index]
        order = self.of_row.argsort(stable=True)
        places = self.of_row[order].contiguous()
        found, before = [], torch.zeros_like(every)
        for start, stop in pairwise([*cuts, len(self)]):
            member, union = self.member[start:stop], self.member[start:stop].any(0)
            edges = torch.searchsorted(places, torch.tensor([start, stop], device=places.device))
            mine = slice(*edges.tolist())
            contested = _where(union & ~member.all(0))
            absent, gained, lost = ~member[:, contested], union & ~before, before & ~union
            found.append(
                Block(
                    slice(start, stop),
                    order[mine],
                    places[mine] - start,
                    contested,
                    absent,
                    _where(gained),
                    _where(lost),
                )
            )
            before = union
        return tuple(found)


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


def _where(marked: Bool[Tensor, " key"]) -> Int[Tensor, " place"]:
    return marked.nonzero().flatten()
