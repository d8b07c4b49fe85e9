"""How many independent directions do the values behind an attention row have?

The rank of V[S], the values of the keys S that a row sees, says how much of the row the output can
show. It is counted as the singular values above max(|S|, d) · eps · σ_max, and counted again ten
times above and ten times below that line: where the counts differ, the answer is borderline.

With a causal mask there is a set S for every row of every head. A run of neighbouring sets is
settled from its core (the keys of all of them) and its union (the keys of any): core ⊆ S ⊆ union.

1. The k-th singular value of V[S] is at least that of V[core] and at most that of V[union], and so
   is the tolerance: the rank of S lies between two ranks that are known.
2. By Cauchy interlacing on V[S]V[S]ᵀ, the number of singular values lost below the tolerance lies
   between those of core and union: so does the nullity |S| − rank.
3. Where either pair of bounds meets, all sets of the run are settled at once.
4. Where neither does, the run is halved. To begin with, sets of more keys than d are one run and
   the others another: the rank is often d in the first, and the nullity zero in the second.

The result is the one that a singular value decomposition of every V[S] would give.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.methods.identifiability.key_sets import KeySets
from exhibit_a.numerics.parallel import one_thread

DOUBT = 10.0  # a singular value within this factor of the tolerance makes the rank borderline
EXACT = torch.finfo(torch.float64).eps

HeadMaps = Float[Tensor, "head query key"]
HeadValues = Float[Tensor, "head key width"]
Counts = Int[Tensor, "head query"]


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
        return line * DOUBT, line, min(line, max(line / DOUBT, 8 * EXACT))


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
    """Rank of the values of every key set, and its bounds given the doubt about the tolerance."""

    least: Int[Tensor, "head set"]
    rank: Int[Tensor, "head set"]
    most: Int[Tensor, "head set"]
    spectrum: Float[Tensor, "head direction"]  # of the largest set, in descending order
    gram: Float[Tensor, "head width width"] | None  # VᵀV on it, where it was needed


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
            counts[open_heads[settled], start:stop] = run_counts[settled]  # step 3
            if not bool(settled.all()):  # step 4
                middle = (start + stop) // 2
                pending.append((start, middle, open_heads[~settled]))
                pending.append((middle, stop, open_heads[~settled]))
        largest = sets.member[int(sets.size.argmax())]
        spectrum = strengths(largest, every_head)
    least, rank, most = counts.unbind(-1)
    return Ranks(least, rank, most, spectrum, strengths.grams.get(_name(largest)))


def surely_independent(
    values: Float[Tensor, "*batch key width"], tolerance: Tolerance
) -> Bool[Tensor, "*batch"]:
    """Whether the values of all keys, and so of any of them, have full rank beyond doubt.

    For G = VVᵀ, σ_min² ≥ 1 / tr G⁻¹ and σ_max² ≤ tr G. A triangular factor of G gives both much
    faster than a spectrum; False only means that the spectrum must be computed. Leaving keys out
    raises σ_min and lowers σ_max, so True holds for every set of keys.
    """
    keys, width = values.shape[-2:]
    line = tolerance.lines(keys)[0]
    if keys > width or keys == 0 or line**2 < 1e3 * EXACT:
        return torch.zeros(values.shape[:-2], dtype=torch.bool, device=values.device)
    exact = values.to(torch.float64)
    gram = exact @ exact.mT
    factor, failed = torch.linalg.cholesky_ex(gram)
    identity = torch.eye(keys, dtype=torch.float64, device=values.device).expand_as(gram)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
    least = 1 / inverse.square().sum((-2, -1))  # tr G⁻¹ = ‖L⁻¹‖²_F
    most = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    sure: Tensor = (failed == 0) & (least > 2 * line**2 * most)  # twice: rounding of the factor
    return sure


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
    return _strengths_and_gram(matrix, finest)[0]


def _strengths_and_gram(
    matrix: Float[Tensor, "*batch row column"], finest: float
) -> tuple[Float[Tensor, "*batch direction"], Float[Tensor, "*batch side side"] | None]:
    """Singular values, and the smaller Gram matrix if they come from it."""
    if finest**2 < 1e3 * EXACT or 0 in matrix.shape:
        return torch.linalg.svdvals(matrix), None
    tall = matrix.shape[-2] > matrix.shape[-1]
    gram = matrix.mT @ matrix if tall else matrix @ matrix.mT
    squares: Tensor = torch.linalg.eigvalsh(gram)
    return squares.clamp_min(0).sqrt().flip(-1), gram


def _runs(sets: KeySets, width: int) -> list[tuple[int, int]]:
    """The runs to begin with: sets that can be independent and sets that are too large to be."""
    turns = ((sets.size > width).long().diff() != 0).nonzero().flatten() + 1
    cuts = [int(turns[0])] if len(turns) == 1 else []
    return list(pairwise([0, *cuts, len(sets)]))


def _between(
    sets: KeySets, run: slice, strengths: "_Strengths", tolerance: Tolerance, heads: Tensor
) -> tuple[Int[Tensor, "head set 3"], Bool[Tensor, " head"]]:
    """Ranks of a run of sets from its core and its union, and for which heads that settles them."""
    core, union = sets.member[run].all(0), sets.member[run].any(0)
    inner, outer = strengths(core, heads), strengths(union, heads)
    inner_size, outer_size = int(core.sum()), int(union.sum())
    low = _thresholds(inner, tolerance.lines(inner_size))
    high = _thresholds(outer, tolerance.lines(outer_size))
    # step 1: the lower bound of the rank, and whether it is the upper bound, too
    rank = _above(inner, high)
    same_rank = rank == _above(outer, low)
    # step 2: the same for the nullity
    nullity = inner_size - _above(inner, low)
    same_nullity = nullity == outer_size - _above(outer, high)
    # step 3
    sizes = sets.size[run].reshape(1, -1, 1)
    counts = torch.where(same_rank.unsqueeze(1), rank.unsqueeze(1), sizes - nullity.unsqueeze(1))
    return counts, (same_rank | same_nullity).all(-1)


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
        self.values, self.tolerance = values, tolerance
        self.known: dict[bytes, tuple[Tensor, Tensor]] = {}
        self.grams: dict[bytes, Tensor] = {}  # VᵀV of sets with more keys than d, for all heads

    def __call__(self, member: Bool[Tensor, " key"], heads: Int[Tensor, " head"]) -> Tensor:
        values, name, size = self.values, _name(member), int(member.sum())
        if name not in self.known:
            blank = values.new_zeros(len(values), min(size, values.shape[-1]))
            done = torch.zeros(len(values), dtype=torch.bool, device=values.device)
            self.known[name] = (done, blank)
        done, spectra = self.known[name]
        missing = heads[~done[heads]]
        if len(missing):
            rows = values if len(missing) == len(values) else values[missing]
            rows = rows if size == len(member) else rows[:, member]
            finest = self.tolerance.lines(size)[-1]
            spectra[missing], gram = _strengths_and_gram(rows, finest)
            done[missing] = True
            if gram is not None and len(missing) == len(values) and size > values.shape[-1]:
                self.grams[name] = gram
        return spectra[heads]


def _name(member: Bool[Tensor, " key"]) -> bytes:
    """What tells a set from all others."""
    return member.cpu().numpy().tobytes()
