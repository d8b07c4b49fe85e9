"""Reads a mask as key sets, and counts the independent values behind each attention row.

**Key sets.** A mask is a list of different sets of keys. Bidirectional and cross-attention have one
set, padded or not; a causal mask has one for every row, each inside the next; a sliding window has
sets that overlap with their neighbours. Nothing else about the kind of mask has to be known.
Neighbouring sets are gathered in blocks, so that the rows of a block can share work:

1. a block is the longest run of sets that differ on few keys: at most ``CHAINED`` where each set
   contains the one before it, and ``CONTESTED`` otherwise;
2. its rows are those that see one of its sets;
3. its contested keys are those that some of its sets have and others do not, and those that the
   most sets lack come first: in a chain, a set then lacks the first few and no others;
4. the keys gained and lost are the difference between its union and that of the block before.

**Ranks.** The rank of V[S], the values of the keys S that a row sees, says how much of the row the
output can show. It is counted as the singular values above max(|S|, d) · eps · σ_max, and counted
again ten times above and ten times below that line: where the counts differ, the answer is
borderline. With a causal mask there is a set S for every row of every head. A run of neighbouring
sets is settled from its core (the keys of all of them) and its union (the keys of any):
core ⊆ S ⊆ union.

5. The k-th singular value of V[S] is at least that of V[core] and at most that of V[union], and so
   is the tolerance: the rank of S lies between two ranks that are known.
6. By Cauchy interlacing on V[S]V[S]ᵀ, the number of singular values lost below the tolerance lies
   between those of core and union: so does the nullity |S| − rank.
7. Where either pair of bounds meets, all sets of the run are settled at once.
8. Where neither does, the run is halved. To begin with, sets of more keys than d are one run and
   the others another: the rank is often d in the first, and the nullity zero in the second.

The result is the one that a singular value decomposition of every V[S] would give.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.numerics.parallel import one_thread
from exhibit_a.numerics.precision import to_float64

CONTESTED = 16  # keys on which the sets of a block may differ
CHAINED = 64  # and where each contains the one before it

BORDERLINE = 10.0  # a singular value within this factor of the tolerance makes the rank borderline
EXACT = torch.finfo(torch.float64).eps

HeadMaps = Float[Tensor, "head query key"]
HeadValues = Float[Tensor, "head key width"]
Counts = Int[Tensor, "head query"]
Spectrum = Callable[[], Float[Tensor, "_head direction"]]


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

    def blocks(self, requested: Bool[Tensor, " set"] | None = None) -> tuple[Block, ...]:
        """The sets requested, or all, in runs as long as the contested keys allow."""
        every = torch.arange(len(self), device=self.member.device)
        wanted = every if requested is None else every[requested]
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
            contested = contested[lacking.argsort(descending=True, stable=True)]  # rank step 3
            absent = ~member[:, contested]
            of_set = [
                rows[a:b] for a, b in zip(first_row[start:stop], past_rows[start:stop], strict=True)
            ]
            counts = torch.tensor([len(group) for group in of_set], device=rows.device)
            prefix = torch.arange(len(contested), device=rows.device) < absent.sum(-1, keepdim=True)
            blocks.append(
                Block(
                    sets=sets,
                    rows=torch.cat(of_set),  # rank step 2
                    set_of_row=torch.arange(len(sets), device=rows.device).repeat_interleave(
                        counts
                    ),
                    span=span,
                    sees_all=not len(contested) and span.stop - span.start == len(seen),
                    contested=contested,
                    absent=absent,
                    chain=bool((absent == prefix).all()),
                    gained=_where(union & ~before),  # rank step 4
                    lost=_where(before & ~union),
                )
            )
            before = union
        return tuple(blocks)

    def _cuts(self, wanted: Int[Tensor, " set"]) -> list[int]:
        """Where each run of sets begins (rank step 1)."""
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


@dataclass(frozen=True)
class Tolerance:
    """How small a singular value must be, relative to the largest, to count as zero."""

    eps: float
    width: int
    fixed: float | None = None

    def of(self, size: int) -> float:
        """The relative tolerance for the values of ``size`` keys."""
        return max(size, self.width) * self.eps if self.fixed is None else self.fixed

    def lines(self, size: int) -> tuple[float, float, float]:
        """Above which a value is surely, probably and possibly different from zero.

        The last is never below what float64 arithmetic can distinguish from zero.
        """
        line = self.of(size)
        return line * BORDERLINE, line, min(line, max(line / BORDERLINE, 8 * EXACT))


def tolerance_for(dtype: torch.dtype, width: int, rtol: float | None = None) -> Tolerance:
    """The tolerance for values that a model computed in ``dtype``.

    Half precision keeps so few digits that max(|S|, d) · eps passes 1 within a short text, and
    every rank would be zero. Its numbers are taken as they stand and judged as float32, the
    precision in which their products are summed.
    """
    eps = min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    return Tolerance(eps, width, rtol)


@dataclass(frozen=True, eq=False)
class Ranks:
    """Rank of the values of every key set, and its bounds around the tolerance."""

    least: Int[Tensor, "head set"]
    rank: Int[Tensor, "head set"]
    most: Int[Tensor, "head set"]
    strengths: "_Strengths"
    widest: Bool[Tensor, " key"]  # the largest set

    @cached_property
    def spectrum(self) -> Float[Tensor, "head direction"]:
        """Singular values of the values on the largest set, in descending order."""
        with one_thread():
            return self.strengths(self.widest, torch.arange(len(self.rank)).to(self.rank.device))

    @property
    def factor(self) -> "Factor | None":
        """VᵀV on the largest set, factorised; None where it has lost too many digits."""
        return self.strengths.factor(self.widest)

    @property
    def spectrum_later(self) -> Spectrum:
        """The spectrum, when it is called; VᵀV is kept for it instead of V, where that is known."""
        gram = self.strengths.grams.get(_name(self.widest))
        return (lambda: self.spectrum) if gram is None else partial(_roots_by_one_thread, gram)


@dataclass(frozen=True, eq=False)
class Factor:
    """A Gram matrix G = LLᵀ for every head, and L⁻¹.

    ``failed`` marks the heads whose matrix has lost too many digits to be factorised.
    """

    gram: Float[Tensor, "*batch side side"]
    lower: Float[Tensor, "*batch side side"]
    inverse: Float[Tensor, "*batch side side"]
    failed: Bool[Tensor, "*batch"]

    @cached_property
    def spread(self) -> Float[Tensor, "*batch"]:
        """What (σ_min / σ_max)² of the values is at least; zero where G has no factor.

        σ_min² ≥ 1 / tr G⁻¹ = 1 / ‖L⁻¹‖² and σ_max² ≤ tr G.
        """
        most = self.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        return torch.where(self.failed, 0, 1 / (self.inverse.square().sum((-2, -1)) * most))

    def surely_above(self, line: float) -> Bool[Tensor, "*batch"]:
        """Whether all singular values are above ``line`` times the largest, surely."""
        return self.spread > 2 * line**2  # twice: rounding of the factor


def factorised(gram: Float[Tensor, "*batch side side"]) -> Factor:
    """The triangular factor of Gram matrices; much faster than their spectrum."""
    lower, failed = torch.linalg.cholesky_ex(gram)
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
    return Factor(gram, lower, inverse, failed != 0)


def ranks(values: HeadValues, sets: KeySets, tolerance: Tolerance) -> Ranks:
    """The rank of ``values`` on every key set, for every head, in float64."""
    heads = values.shape[0]
    strengths = _Strengths(values, tolerance)
    counts = torch.empty(heads, len(sets), 3, dtype=torch.long, device=values.device)
    every_head = torch.arange(heads, device=values.device)
    pending = [(*run, every_head) for run in _runs(sets, values.shape[-1])]
    with one_thread():
        while pending:
            start, stop, open_heads = pending.pop()
            run_counts, settled = _between(
                sets, slice(start, stop), strengths, tolerance, open_heads
            )
            counts[open_heads[settled], start:stop] = run_counts[settled]  # rank step 7
            if not bool(settled.all()):  # rank step 8
                middle = (start + stop) // 2
                pending.append((start, middle, open_heads[~settled]))
                pending.append((middle, stop, open_heads[~settled]))
    least, rank, most = counts.unbind(-1)
    return Ranks(least, rank, most, strengths, sets.member[int(sets.size.argmax())])


def surely_independent(
    values: Float[Tensor, "*batch key width"], tolerance: Tolerance
) -> Bool[Tensor, "*batch"]:
    """Whether the values of all keys, and so of any of them, surely have full rank.

    A triangular factor of VVᵀ shows it (``Factor.spread``); False only means that the spectrum must
    be computed. Leaving keys out raises σ_min and lowers σ_max: True holds for every set of keys.
    """
    keys, width = values.shape[-2:]
    line = tolerance.lines(keys)[0]
    if keys > width or keys == 0 or line**2 < 1e3 * EXACT:
        return torch.zeros(values.shape[:-2], dtype=torch.bool, device=values.device)
    exact_values = to_float64(values)
    sure = factorised(exact_values @ exact_values.mT).surely_above(line)
    return sure.to(values.device)


def with_ones(values: Float[Tensor, "head key d_head"], sets: KeySets) -> HeadValues:
    """Values with a constant column, of the size of the values so that neither hides the other."""
    size = values[:, sets.everything].square().mean((1, 2)).sqrt()
    constant = torch.where(size > 0, size, 1.0).reshape(-1, 1, 1)
    return torch.cat([values, constant.expand(-1, values.shape[1], 1)], dim=-1)


def singular_values(
    matrix: Float[Tensor, "*batch row column"], finest: float
) -> Float[Tensor, "*batch direction"]:
    """Singular values in descending order, reliable down to ``finest`` times the largest.

    The eigenvalues of the Gram matrix are much cheaper, but squares of small numbers are lost in
    the rounding of the largest.
    """
    gram = _gram(matrix, finest)
    if gram is not None:
        return _roots(gram)
    strengths: Tensor = torch.linalg.svdvals(matrix)
    return strengths


def _gram(
    matrix: Float[Tensor, "*batch row column"], finest: float
) -> Float[Tensor, "*batch side side"] | None:
    """The smaller Gram matrix, if squares of singular values are not lost in its rounding."""
    if finest**2 < 1e3 * EXACT or 0 in matrix.shape:
        return None
    tall = matrix.shape[-2] > matrix.shape[-1]
    return matrix.mT @ matrix if tall else matrix @ matrix.mT


def _roots_by_one_thread(gram: Float[Tensor, "head side side"]) -> Float[Tensor, "head side"]:
    with one_thread():
        return _roots(gram)


def _roots(gram: Float[Tensor, "*batch side side"]) -> Float[Tensor, "*batch side"]:
    """Singular values from the Gram matrix, in descending order."""
    squares: Tensor = torch.linalg.eigvalsh(gram)
    return squares.clamp_min(0).sqrt().flip(-1)


def _runs(sets: KeySets, width: int) -> list[tuple[int, int]]:
    """The runs to begin with: sets that can be independent and sets that are too large to be."""
    turns = ((sets.size > width).long().diff() != 0).nonzero().flatten() + 1
    cuts = [int(turns[0])] if len(turns) == 1 else []
    return list(pairwise([0, *cuts, len(sets)]))


def _between(
    sets: KeySets, run: slice, strengths: "_Strengths", tolerance: Tolerance, heads: Tensor
) -> tuple[Int[Tensor, "head set 3"], Bool[Tensor, " head"]]:
    """Ranks of a run of sets from its core and its union, and for which heads that settles them."""
    if run.stop - run.start == 1:
        return _alone(sets, run.start, strengths, tolerance, heads), torch.ones_like(heads) > 0
    core, union = sets.member[run].all(0), sets.member[run].any(0)
    inner, outer = strengths(core, heads), strengths(union, heads)
    inner_size, outer_size = int(core.sum()), int(union.sum())
    low = _thresholds(inner, tolerance.lines(inner_size))
    high = _thresholds(outer, tolerance.lines(outer_size))
    # rank step 5: the lower bound of the rank, and whether it is the upper bound, too
    rank = _above(inner, high)
    same_rank = rank == _above(outer, low)
    # rank step 6: the same for the nullity
    nullity = inner_size - _above(inner, low)
    same_nullity = nullity == outer_size - _above(outer, high)
    # rank step 7
    sizes = sets.size[run].reshape(1, -1, 1)
    counts = torch.where(same_rank.unsqueeze(1), rank.unsqueeze(1), sizes - nullity.unsqueeze(1))
    return counts, (same_rank | same_nullity).all(-1)


def _alone(
    sets: KeySets, index: int, strengths: "_Strengths", tolerance: Tolerance, heads: Tensor
) -> Int[Tensor, "head 1 3"]:
    """Ranks of one set; where its values are surely independent, no spectrum is needed."""
    member, lines = sets.member[index], tolerance.lines(int(sets.size[index]))
    factor = strengths.factor(member)
    if factor is not None and bool(factor.surely_above(lines[0]).all()):
        return torch.full_like(heads, strengths.width).reshape(-1, 1, 1).expand(-1, 1, 3)
    spectrum = strengths(member, heads)
    return _above(spectrum, _thresholds(spectrum, lines)).unsqueeze(1)


def _thresholds(strengths: Tensor, lines: tuple[float, ...]) -> Tensor:
    """The relative lines of each head, times its largest singular value."""
    largest = strengths[:, :1] if strengths.shape[1] else strengths.new_zeros(len(strengths), 1)
    return largest * largest.new_tensor(lines)


def _above(strengths: Tensor, thresholds: Tensor) -> Tensor:
    """How many singular values of each head lie above each of its thresholds."""
    return (strengths.unsqueeze(-1) > thresholds.unsqueeze(1)).sum(1)


class _Strengths:
    """Singular values of the values on a set, for some heads; each is computed once."""

    def __init__(self, values: HeadValues, tolerance: Tolerance) -> None:
        self.values, self.tolerance, self.width = values, tolerance, values.shape[-1]
        self.known: dict[bytes, tuple[Tensor, Tensor]] = {}
        self.grams: dict[bytes, Tensor | None] = {}  # VᵀV of sets of more keys than V is wide
        self.factors: dict[bytes, Factor | None] = {}

    def __call__(self, member: Bool[Tensor, " key"], heads: Int[Tensor, " head"]) -> Tensor:
        values, name, size = self.values, _name(member), int(member.sum())
        if name not in self.known:
            blank = values.new_zeros(len(values), min(size, self.width))
            done = torch.zeros(len(values), dtype=torch.bool, device=values.device)
            self.known[name] = (done, blank)
        done, spectra = self.known[name]
        missing = heads[~done[heads]]
        if len(missing):
            every = len(missing) == len(values)
            gram = self._gram_of(member) if every and size > self.width else None
            rows = values if every else values[missing]
            spectra[missing] = (
                singular_values(rows[:, member], self.tolerance.lines(size)[-1])
                if gram is None
                else _roots(gram)
            )
            done[missing] = True
        return spectra[heads]

    def factor(self, member: Bool[Tensor, " key"]) -> Factor | None:
        """VᵀV of all heads on a set, factorised, if it has more keys than V is wide."""
        name = _name(member)
        if name not in self.factors:
            gram = self._gram_of(member) if int(member.sum()) > self.width else None
            self.factors[name] = None if gram is None else factorised(gram)
        return self.factors[name]

    def _gram_of(self, member: Bool[Tensor, " key"]) -> Tensor | None:
        name, size = _name(member), int(member.sum())
        if name not in self.grams:
            rows = self.values if size == len(member) else self.values[:, member]
            self.grams[name] = _gram(rows, self.tolerance.lines(size)[-1])
        return self.grams[name]


def _name(member: Bool[Tensor, " key"]) -> bytes:
    """What tells a set from all others."""
    return member.cpu().numpy().tobytes()
