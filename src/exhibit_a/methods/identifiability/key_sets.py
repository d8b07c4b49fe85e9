"""Which keys may a row see, and which rows see the same ones?

A mask is read as a list of different key sets. Bidirectional and cross-attention have one set,
padded or not; a causal mask has one for every row, each inside the next; a sliding window has sets
that overlap with their neighbours. Nothing else about the kind of mask has to be known.

Neighbouring sets are gathered in blocks, so that the rows of a block can share work:

1. a block is the longest run of sets that differ on at most ``CONTESTED`` keys;
2. its rows are those that see one of its sets;
3. its contested keys are those that some of its sets have and others do not;
4. the keys gained and lost are the difference between its union and that of the block before.
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
    gained: Int[Tensor, " gained"]  # keys of some set of this block and of none in the one before
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
        # step 1
        cuts, core, union = [0], self.member[0], self.member[0]
        for index in range(1, len(self)):
            core, union = core & self.member[index], union | self.member[index]
            if int((union & ~core).sum()) > CONTESTED:
                cuts.append(index)
                core = union = self.member[index]
        order = self.of_row.argsort(stable=True)
        places = self.of_row[order].contiguous()
        blocks, before = [], torch.zeros_like(core)
        for start, stop in pairwise([*cuts, len(self)]):
            member, union = self.member[start:stop], self.member[start:stop].any(0)
            edges = torch.searchsorted(places, torch.tensor([start, stop], device=places.device))
            rows = slice(*edges.tolist())
            contested = _where(union & ~member.all(0))
            blocks.append(
                Block(
                    sets=slice(start, stop),
                    rows=order[rows],  # step 2
                    set_of_row=places[rows] - start,
                    contested=contested,  # step 3
                    absent=~member[:, contested],
                    gained=_where(union & ~before),  # step 4
                    lost=_where(before & ~union),
                )
            )
            before = union
        return tuple(blocks)


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
    """The positions of the marked keys."""
    return marked.nonzero().flatten()
