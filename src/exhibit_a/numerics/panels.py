"""Gauss panels: how much of a change on a stretch of a path five points account for.

F moves along a stretch of α, and its gradient is a sum of contributions (``paths.py``). A panel
lays five Gauss–Legendre points over the stretch and knows its own error, because F is known at its
ends:

* the gap is what the gradients at the points, integrated, miss of the change of F;
* the bend is what F at a point differs from where the gradients lead (``Rule.cumulative_weights``);
* the error is the gap, or the bend by ``ROUGH`` where that is larger.

The middle point is where a panel is halved, so that F at the new ends costs nothing. A stretch runs
along α = scale · t^power: where most of the change lies before the first point of the first panel,
``split`` lays it anew with the power that brings this point to the middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import log
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.quadrature import Rule, gauss

ORDER = 5  # odd: the middle point is where a panel is halved
ROUGH = 5.0  # points inside a panel may miss F by this much more than its end
NARROWEST = 1e-6  # as a share of its end; single precision sees nothing narrower


class Panel(NamedTuple):
    """A stretch of the path: what F does on it, and what the contributions miss of that."""

    start: float
    stop: float
    change: float
    gap: float
    error: float  # the gap, or what the points inside miss if that is worse


@dataclass(frozen=True)
class Stretch:
    """The stretch from t = first to last of the path α = scale · t^power, and F at its ends."""

    first: float
    last: float
    scale: float
    power: float
    low: float
    high: float

    def places(self, shares: Tensor) -> Tensor:
        """The α at which shares of the stretch are done."""
        return self.scale * self._along(shares) ** self.power

    def speed(self, shares: Tensor) -> Tensor:
        """How fast α moves there, when the stretch takes one unit of time."""
        gradient = self.scale * self.power * self._along(shares) ** (self.power - 1)
        return (self.last - self.first) * gradient

    @property
    def points(self) -> Float[Tensor, " point"]:
        """The α of its points."""
        return self.places(_rule().points)

    @property
    def weights(self) -> Float[Tensor, " point"]:
        """What the gradient at each of its points counts in the integral over α."""
        return self.speed(_rule().points) * _rule().weights

    @property
    def ends(self) -> tuple[float, float]:
        """The α where it starts and stops."""
        start, stop = self.places(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
        return start, stop

    def _along(self, shares: Tensor) -> Tensor:
        return self.first + (self.last - self.first) * shares


@dataclass(frozen=True, eq=False)
class OpenPanel:
    """A panel that may still be split: what it contributes, and F from its start to its stop."""

    stretch: Stretch
    integral: Tensor | None  # None where it must be split, or is left out
    heights: list[float]
    gap: float
    error: float

    @property
    def divisible(self) -> bool:
        """Whether its halves can be distinguished."""
        start, stop = self.stretch.ends
        return stop - start > NARROWEST * stop and stop > torch.finfo(torch.float32).tiny

    @property
    def summary(self) -> Panel:
        """The panel without its contributions."""
        change = self.stretch.high - self.stretch.low
        return Panel(*self.stretch.ends, change, self.gap, self.error)

    def split(self) -> list[Stretch]:
        """Two stretches that meet at one of its points, where F is known."""
        stretch, height = self.stretch, self.heights[1 + ORDER // 2]
        if self._spikes():
            power = stretch.power * log(float(_rule().points[0])) / log(0.5)
            stretch = replace(stretch, last=1.0, scale=stretch.ends[1], power=power)
            height = self.heights[1]
        middle = (stretch.first + stretch.last) / 2
        before = replace(stretch, last=middle, high=height)
        return [before, replace(stretch, first=middle, low=height)]

    def _spikes(self) -> bool:
        """Whether it starts at α = 0 and F makes most of its moves before the first point."""
        moves = [abs(after - before) for before, after in pairwise(self.heights)]
        return self.stretch.first == 0 and 2 * moves[0] >= sum(moves)


def panel_over(stretch: Stretch, heights: Tensor, gradients: Tensor, integral: Tensor) -> OpenPanel:
    """What the contributions at the points of a stretch add up to, and what they miss."""
    gap = stretch.high - stretch.low - float(stretch.weights @ gradients)
    moving = to_float64(gradients * stretch.speed(_rule().points))
    climbed = moving @ _rule().cumulative_weights.to(moving.device)
    bend = float((stretch.low + climbed - heights).abs().amax())
    return OpenPanel(
        stretch,
        integral,
        [stretch.low, *heights.tolist(), stretch.high],
        gap,
        max(abs(gap), bend / ROUGH),
    )


def total_error(panels: Sequence[Panel] | Sequence[OpenPanel]) -> float:
    """The errors of all panels together: gaps of either sign do not cancel."""
    return sum(panel.error for panel in panels)


def worst_of(panels: Sequence[OpenPanel], allowed: float) -> list[OpenPanel]:
    """The panels with the largest errors, without which the others are good enough."""
    ranked = sorted(panels, key=lambda panel: -panel.error)
    left = total_error(panels)
    for count, panel in enumerate(ranked):
        if left <= allowed:
            return ranked[:count]
        left -= panel.error
    return ranked


def side_by_side(weights: Sequence[Float[Tensor, "_panel _point"]]) -> Float[Tensor, "panel point"]:
    """Weights of several panels, each at points of its own, with 0 at those of the others."""
    panels, points = (sum(each.shape[axis] for each in weights) for axis in (0, 1))
    spread = torch.zeros(panels, points, dtype=weights[0].dtype)
    row = column = 0
    for each in weights:
        spread[row : row + len(each), column : column + each.shape[1]] = each
        row, column = row + len(each), column + each.shape[1]
    return spread


@cache
def _rule() -> Rule:
    """The points of a panel, as shares of it, and their weights."""
    return gauss(ORDER)
