"""Finds the keys that each row may see, and the rows that see the same ones.

A mask is read as a list of different key sets. Bidirectional and cross-attention have one set,
padded or not; a causal mask has one for every row, each inside the next; a sliding window has sets
that overlap with their neighbours. Nothing else about the kind of mask has to be known.

Neighbouring sets are gathered in blocks, so that the rows of a block can share work:

1. a block is the longest run of sets that differ on few keys: at most ``CHAINED`` where each set
   contains the one before it, and ``CONTESTED`` otherwise;
2. its rows are those that see one of its sets;
3. its contested keys are those that some of its sets have and others do not, and those that the
   most sets lack come first: in a chain, a set then lacks the first few and no others;
4. the keys gained and lost are the difference between its union and that of the block before.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

CONTESTED = 16  # keys on which the sets of a block may differ
CHAINED = 64  # and where each contains the one before it


@dataclass(frozen=True, eq=False)
class Block:
    """Neighbouring key sets that agree on all but a few contested keys, and their rows."""

    sets: Int[Tensor, " set"]
    rows: Int[Tensor, " row"]
    set_of_row: Int[Tensor, " row"]  # counted from the first set of the block
    span: slice  # from the first to the last key that some row sees
    sees_all: bool  # whether every row sees all of the span
    contested: Int[Tensor, " contested"]
    absent: Bool[Tensor, "set contested"]
    chain: bool  # whether the keys absent from a set are the first of the contested ones
    gained: Int[Tensor, " gained"]  # keys of some set of this block and of none in the one before
    lost: Int[Tensor, " lost"]  # and the other way round


@dataclass(frozen=True, eq=False)
class KeySets:
    """The different sets of keys that rows see, ordered so that neighbours have much in common."""

    member: Bool[Tensor, "set key"]
    of_row: Int[Tensor, " query"]
    chain: bool  # whether each set contains the one before it

    @cached_property
    def size(self) -> Int[Tensor, " set"]:
        """How many keys each set has."""
        return _sizes(self.member)

    @cached_property
    def everything(self) -> Bool[Tensor, " key"]:
        """The keys that some row sees."""
        return self.member.any(0)

    def __len__(self) -> int:
        return len(self.member)

    def blocks(self, asked: Bool[Tensor, " set"] | None = None) -> tuple[Block, ...]:
        """The sets asked for, or all, in runs as long as the contested keys allow."""
        every = torch.arange(len(self), device=self.member.device)
        wanted = every if asked is None else every[asked]
        rows = self.of_row.argsort(stable=True)
        first_row = torch.searchsorted(self.of_row[rows].contiguous(), wanted).tolist()
        past_rows = torch.searchsorted(self.of_row[rows].contiguous(), wanted, right=True).tolist()
        blocks, before = [], torch.zeros_like(self.everything)
        for start, stop in pairwise([*self._cuts(wanted), len(wanted)]):
            sets, member = wanted[start:stop], self.member[wanted[start:stop]]
            union = member.any(0)
            seen, contested = _where(union), _where(union & ~member.all(0))
            span = slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 0)
            lacking = (~member[:, contested]).sum(0)
            contested = contested[lacking.argsort(descending=True, stable=True)]  # step 3
            absent = ~member[:, contested]
            of_set = [
                rows[a:b] for a, b in zip(first_row[start:stop], past_rows[start:stop], strict=True)
            ]
            counts = torch.tensor([len(group) for group in of_set], device=rows.device)
            prefix = torch.arange(len(contested), device=rows.device) < absent.sum(-1, keepdim=True)
            blocks.append(
                Block(
                    sets=sets,
                    rows=torch.cat(of_set),  # step 2
                    set_of_row=torch.arange(len(sets), device=rows.device).repeat_interleave(
                        counts
                    ),
                    span=span,
                    sees_all=not len(contested) and span.stop - span.start == len(seen),
                    contested=contested,
                    absent=absent,
                    chain=bool((absent == prefix).all()),
                    gained=_where(union & ~before),  # step 4
                    lost=_where(before & ~union),
                )
            )
            before = union
        return tuple(blocks)

    def _cuts(self, wanted: Int[Tensor, " set"]) -> list[int]:
        """Where each run of sets begins (step 1)."""
        if self.chain:
            sizes, cuts = self.size[wanted].tolist(), [0]
            for index, size in enumerate(sizes):
                if size - sizes[cuts[-1]] > CHAINED:
                    cuts.append(index)
            return cuts
        member, cuts = self.member[wanted], [0]
        core = union = member[0]
        for index in range(1, len(wanted)):
            core, union = core & member[index], union | member[index]
            if int((union & ~core).sum()) > CONTESTED:
                cuts.append(index)
                core = union = member[index]
        return cuts


def key_sets(visible: Bool[Tensor, "query key"]) -> KeySets:
    """The key sets of a mask; sets that form a chain are ordered from small to large.

    Where there is no row, the only set is that of all keys.
    """
    if not len(visible):
        return KeySets(visible.new_ones(1, visible.shape[1]), visible.new_zeros(0).long(), True)
    if torch.equal(visible[0], visible[-1]) and bool((visible == visible[:1]).all()):
        every_row = torch.zeros(len(visible), dtype=torch.long, device=visible.device)
        return KeySets(visible[:1], every_row, chain=True)
    first_row: dict[bytes, int] = {}
    rows = np.packbits(visible.cpu().numpy(), axis=1)  # a mask is large, and is not copied
    seen = [first_row.setdefault(row.tobytes(), index) for index, row in enumerate(rows)]
    firsts = torch.tensor(list(first_row.values()), device=visible.device)
    by_size = firsts[_sizes(visible)[firsts].argsort(stable=True)]
    member = _rows_of(visible, by_size)
    chain = not bool((member[:-1] > member[1:]).any())
    if not chain:
        member, by_size = _rows_of(visible, firsts), firsts
    place = torch.empty(len(rows), dtype=torch.long, device=visible.device)
    place[by_size] = torch.arange(len(by_size), device=visible.device)
    return KeySets(member, place[torch.tensor(seen, device=visible.device)], chain)


def _sizes(member: Bool[Tensor, "set key"]) -> Int[Tensor, " set"]:
    """How many keys each set has; torch would copy all truths as integers to add them up."""
    sizes = member.cpu().numpy().sum(1, dtype=np.int64)
    return torch.from_numpy(sizes).to(member.device)


def _rows_of(
    visible: Bool[Tensor, "query key"], rows: Int[Tensor, " set"]
) -> Bool[Tensor, "set key"]:
    """Some rows of a mask; if they are all of them, the mask itself."""
    every = torch.arange(len(visible), device=visible.device)
    return visible if torch.equal(rows, every) else visible[rows]


def _where(marked: Bool[Tensor, " key"]) -> Int[Tensor, " place"]:
    """The positions of the marked keys."""
    return marked.nonzero().flatten()
