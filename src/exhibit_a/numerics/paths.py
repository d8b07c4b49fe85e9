"""Integrates gradients along a path: what each part of a sum contributes to a change.

F(α) moves from F(0) to F(1), and its gradient is the sum of many contributions,
dF/dα = Σ_i c_i(α). Their integrals ∫₀¹ c_i dα share F(1) - F(0) among the parts, and the
fundamental theorem says how well: over any panel [a, b] the shares must add up to F(b) - F(a). So
every panel knows its own error, wherever F is known at its ends (``panels.py``):

1. lay one panel of five Gauss–Legendre points over the path;
2. compare the sum of its shares with F(b) - F(a), and F at its points with where the gradients
   lead;
3. while the errors of all panels add up to more than is allowed, split the worst ones. The middle
   one of the five points is where a panel is halved, so F at the new ends costs nothing. Where most
   of the change lies before the first point of the first panel (a norm makes a spike at α ≈ 0), the
   panel is laid anew with α = stop · t^p instead, where p brings that point to the middle;
4. where the budget ends first, say between which α F jumps, and by how much.

Contributions can be large (an attention map for every head), so only their sums over a panel are
kept; where jumps are left out, those of few panels: one with a small error is added to the whole at
once, and one that misses more than all panels may is split, or is a jump, and never part of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import floor as whole
from math import log10
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.numerics.panels import (
    ORDER,
    OpenPanel,
    Panel,
    Stretch,
    panel_over,
    side_by_side,
    total_error,
    worst_of,
)
from exhibit_a.numerics.precision import float64_sum, to_float64

SETTLED = 0.02  # a panel with less than this share of the allowed error is never split again
SUDDEN = 0.01  # of the path: F jumps where it moves within less than that
PROBES, LOOKS = 9, 2  # to say where F jumps: the number of values of F, and of rounds

Evaluate = Callable[[list[float]], tuple[Tensor, Tensor]]  # α → F, contributions (point, …)
Heights = Callable[[list[float]], Tensor]  # α → F
Gradient = Callable[[Tensor], Tensor]  # contributions (point, …) → dF/dα (point)
Sums = tuple[Tensor, Tensor, Sequence[Tensor]]
# F (point), dF/dα (point), for every panel the weighted sum of contributions


Summed = Callable[[list[float], Float[Tensor, "panel point"]], Sums]  # α, their weight in panels


class Jump(NamedTuple):
    """A stretch of the path that does not close, and what F does on it."""

    start: float
    stop: float
    change: float

    @property
    def description(self) -> str:
        """The stretch in words, with as many digits as tell its ends apart."""
        width = self.stop - self.start
        digits = max(3, 1 - whole(log10(width / self.stop)))
        places = f"between α = {self.start:.{digits}g} and {self.stop:.{digits}g}"
        if width < SUDDEN:
            return f"the target jumps by {self.change:.3g} {places}"
        return f"the target, which moves by {self.change:.3g}, is too rough {places}"


@dataclass(frozen=True)
class PathLimits:
    """How exact an integral must be, and how much it may cost."""

    tolerance: float = 0.01  # the error that is allowed, as a share of the change
    floor: float = 1e-4  # … that is always allowed, as a share of the larger of |F(0)| and |F(1)|
    budget: int = 96  # the largest number of points
    least: float = 0.0  # … and by itself, for an F that is nearly 0 all the way
    held: int = 1024  # panels whose contributions are kept apart, where jumps are left out

    def error(self, ends: tuple[float, float]) -> float:
        """The error that is allowed between F(0) and F(1)."""
        change = abs(ends[1] - ends[0])
        return max(self.tolerance * change, self.floor * max(map(abs, ends)), self.least)


@dataclass(frozen=True, eq=False)
class PathIntegral:
    """The contributions, integrated, and how complete they are."""

    integral: Float[Tensor, "..."]
    change: float  # F(1) - F(0)
    gap: float  # what the contributions miss of it
    error: float  # the errors of all panels together: gaps of either sign do not cancel
    allowed: float
    points: int  # where the contributions were evaluated
    heights: int  # where F alone was
    panels: tuple[Panel, ...]
    jumps: tuple[Jump, ...]

    @property
    def complete(self) -> bool:
        """Whether the error is as small as requested."""
        return self.error <= self.allowed

    @property
    def reason(self) -> str:
        """Why the integral is not complete, in words; empty where it is."""
        if self.complete:
            return ""
        stretches = ", ".join(jump.description for jump in self.jumps)
        return f"{stretches}; {self.points} points do not resolve it"


def integrate(
    evaluate: Evaluate,
    ends: tuple[float, float],
    *,
    limits: PathLimits = PathLimits(),  # noqa: B008 (frozen)
    heights: Heights | None = None,
    gradient: Gradient | None = None,
) -> PathIntegral:
    """Integrate contributions from α = 0 to 1, with panels where they are needed.

    >>> from exhibit_a.numerics.paths import PathLimits, integrate
    >>> def cubic(alphas):  # F = α³, all of it from the first of two parts
    ...     places = torch.tensor(alphas)
    ...     return places**3, torch.stack([3 * places**2, 0 * places], -1)
    >>> path = integrate(cubic, (0.0, 1.0))
    >>> path.integral, path.points, path.complete
    (tensor([1., 0.]), 5, True)
    >>> def step(alphas):
    ...     places = torch.tensor(alphas)
    ...     return (places > 0.3).float(), torch.zeros(len(alphas), 1)
    >>> path = integrate(step, (0.0, 1.0), limits=PathLimits(budget=45))
    >>> path.complete, path.reason
    (False, 'the target jumps by 1 between α = 0.2998 and 0.3008; 45 points do not resolve it')

    Args:
        evaluate: F and its contributions at each α; the contributions of a point add up to dF/dα.
        ends: F(0) and F(1).
        limits: how large the error may be, and how many points there may be.
        heights: F alone, where that is cheaper; it is used to say where F jumps.
        gradient: dF/dα from what ``evaluate`` gives, if that is not the sum of its elements.
    """

    def summed(alphas: list[float], weights: Tensor) -> Sums:
        heights, contributions = evaluate(alphas)
        sums = torch.tensordot(weights.to(contributions), contributions, 1)
        if gradient is None:
            return heights, float64_sum(contributions.flatten(1), 1), list(sums)
        return heights, gradient(contributions), list(sums)

    path = integrate_sums(summed, ends, limits)
    look = heights or (lambda alphas: evaluate(alphas)[0])
    located = [_located(jump, look) for jump in path.jumps]
    return replace(
        path,
        jumps=tuple(jump for jump, _ in located),
        heights=sum(looks for _, looks in located) * PROBES,
    )


def integrate_sums(
    summed: Summed, ends: tuple[float, float], limits: PathLimits, *, jumps_apart: bool = False
) -> PathIntegral:
    """Integrate contributions of which only the sums over panels are known.

    With ``jumps_apart`` the integral leaves out the stretches that do not close, so that what
    happens there can be shared out in another way.
    """
    walk = _Walk(ends, limits, jumps_apart=jumps_apart)
    while walk.wanted:
        alphas = torch.cat([stretch.points for stretch in walk.next])
        weights = side_by_side([stretch.weights[None] for stretch in walk.next])
        walk.take(summed(alphas.tolist(), weights))
    return walk.finished()


class _Walk:
    """One path on its way: what is settled, what is open, and which stretches are wanted next."""

    def __init__(
        self, ends: tuple[float, float], limits: PathLimits, *, jumps_apart: bool = False
    ) -> None:
        self.ends, self.limits, self.allowed = ends, limits, limits.error(ends)
        self.jumps_apart = jumps_apart
        self.wanted = [Stretch(0.0, 1.0, 1.0, 1.0, *ends)]
        self.open: list[OpenPanel] = []
        self.settled: list[Panel] = []
        self.integral = torch.zeros(())
        self.added = False  # whether anything was: the first panel's integral is added to
        self.points = 0

    @property
    def spare(self) -> float:
        """The error that open panels may have."""
        return self.allowed - total_error(self.settled)

    @property
    def next(self) -> list[Stretch]:
        """The stretches that are requested together: as many as there is room for."""
        return self.wanted[: max(1, self.limits.held - len(self._holding()))]

    def take(self, sums: Sums) -> None:
        """Take what was requested, settle what is good enough, and say what is wanted next."""
        heights, gradients = (to_float64(numbers.detach()).cpu() for numbers in sums[:2])
        if not self.points:
            self.integral = sums[2][0].new_zeros(()).expand_as(sums[2][0])  # takes no memory
        self.points += len(heights)
        by_panel = (torch.split(heights, ORDER), torch.split(gradients, ORDER), sums[2])
        laid = self.next
        self.wanted = self.wanted[len(laid) :]
        for stretch, *numbers in zip(laid, *by_panel, strict=True):
            self._keep(panel_over(stretch, *numbers))
        if not self.wanted:
            self.wanted = self._split()

    def _keep(self, panel: OpenPanel) -> None:
        """Settle a panel, or hold it open; of too many, settle the best or give up the worst."""
        if panel.error <= SETTLED * self.allowed:
            self._settle(panel)
            return
        self.open.append(panel)
        if not self.jumps_apart:
            return
        if panel.error > self.allowed:
            self._give_up(panel)
        if len(holding := self._holding()) > self.limits.held:
            best, *_, worst = sorted(holding, key=lambda held: held.error)
            if best.error <= self.spare / 4:
                self.open.remove(best)
                self._settle(best)
            else:
                self._give_up(worst)

    def _give_up(self, panel: OpenPanel) -> None:
        """Forget what a panel contributes."""
        self.open[self.open.index(panel)] = replace(panel, integral=None)

    def _holding(self) -> list[OpenPanel]:
        return [panel for panel in self.open if panel.integral is not None]

    def _settle(self, panel: OpenPanel) -> None:
        self.settled.append(panel.summary)
        self._add(panel)

    def _add(self, panel: OpenPanel) -> None:
        assert panel.integral is not None
        self.integral = self.integral.add_(panel.integral) if self.added else panel.integral
        self.added = True

    def _split(self) -> list[Stretch]:
        """The halves of the worst panels, as many as there are points for; none if all is well."""
        worst = worst_of(self.open, self.spare / 2)
        if total_error(self.open) <= self.spare:
            worst = []
        given_up = [panel for panel in self.open if panel.integral is None and panel not in worst]
        splittable = [panel for panel in (*worst, *given_up) if panel.divisible]
        afforded = splittable[: (self.limits.budget - self.points) // (2 * ORDER)]
        self.open = [panel for panel in self.open if panel not in afforded]
        return [part for panel in afforded for part in panel.split()]

    def finished(self) -> PathIntegral:
        """The integral, with the stretches that do not close."""
        missing = worst_of(self.open, self.spare)
        unresolved = [panel for panel in self.open if panel in missing or panel.integral is None]
        for panel in self.open:
            if not (self.jumps_apart and panel in unresolved):
                self._add(panel)
        summaries = [panel.summary for panel in self.open]
        return PathIntegral(
            integral=self.integral,
            change=self.ends[1] - self.ends[0],
            gap=sum(panel.gap for panel in self.settled) + sum(panel.gap for panel in self.open),
            error=total_error(self.settled) + total_error(self.open),
            allowed=self.allowed,
            points=self.points,
            panels=tuple(sorted(self.settled + summaries)),
            jumps=tuple(_joined([panel.summary for panel in unresolved])),
            heights=0,
        )


def _located(jump: Jump, heights: Heights) -> tuple[Jump, int]:
    """The stretch in which F makes most of its move, as short as a few looks can show it."""
    for look in range(LOOKS):
        places = torch.linspace(jump.start, jump.stop, PROBES, dtype=torch.float64).tolist()
        moves = to_float64(heights(places).detach()).cpu().diff()
        steepest = int(moves.abs().argmax())
        if 2 * moves[steepest].abs() < moves.abs().sum():
            return jump, look + 1
        jump = Jump(places[steepest], places[steepest + 1], float(moves[steepest]))
    return jump, LOOKS


def _joined(panels: Sequence[Panel]) -> list[Jump]:
    """Neighbouring panels as one stretch."""
    jumps: list[Jump] = []
    for panel in sorted(panels):
        before = jumps.pop() if jumps and jumps[-1].stop == panel.start else None
        start, change = (before.start, before.change) if before else (panel.start, 0.0)
        jumps.append(Jump(start, panel.stop, change + panel.change))
    return jumps
