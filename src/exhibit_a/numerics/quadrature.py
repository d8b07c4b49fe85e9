"""The points at which an integral from 0 to 1 is read, and the weight of each.

``gauss``    Gauss–Legendre points, exact for polynomials of degree 2n - 1
``riemann``  the right ends of equal steps, as in the paper on self-attribution (Hao et al., 2021)
``left``     their left ends, as in its released code

And a family of rules each of which has all points of the one before it: Lobatto's five points, with
both ends of the path among them, and what Kronrod and Patterson would add, four and then eight.
They are exact to degree 7, 13 and 25, and no weight is negative. Nothing that was computed is lost
where a rule turns out too coarse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import legendre
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice


@dataclass(frozen=True, eq=False)
class Rule:
    """Points of [0, 1] and the weight of each; weights sum to one."""

    points: Float[Tensor, " point"]
    weights: Float[Tensor, " point"]

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def cumulative_weights(self) -> Float[Tensor, "point point"]:
        """Weights that turn gradients at the points into the rise of F up to each of them.

        The gradients are read as a polynomial in Legendre form, whose terms integrate in closed
        form: ∫₋₁ˣ P_k = (P_{k+1}(x) - P_{k-1}(x)) / (2k + 1).
        """
        count, places = len(self), 2 * self.points.numpy() - 1
        values = legendre.legvander(places, count)  # (point, degree 0 … count)
        below = np.concatenate([-np.ones((count, 1)), values[:, : count - 1]], axis=1)
        risen = (values[:, 1:] - below) / (2 * np.arange(count) + 1)
        return torch.from_numpy(np.linalg.solve(values[:, :count].T, risen.T) / 2)


def gauss(count: int) -> Rule:
    """Gauss–Legendre points; good for anything smooth."""
    points, weights = legendre.leggauss(count)
    return Rule(torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2))


def riemann(count: int) -> Rule:
    """The right ends of equal steps, as in the paper."""
    return Rule(_equal(count) + 1 / count, torch.full((count,), 1 / count, dtype=torch.double))


def left(count: int) -> Rule:
    """The left ends of equal steps, as in the released code: the start counts, the end does not."""
    return Rule(_equal(count), torch.full((count,), 1 / count, dtype=torch.double))


@cache
def nested() -> tuple[Rule, ...]:
    """Rules of 5, 9 and 17 points, each with the points of those before it."""
    places, rules = [0.0, 1.0], []
    for added in ([(3 / 7) ** 0.5], FOUR_MORE, EIGHT_MORE):
        places += [sign * place for place in added for sign in (-1, 1)]
        points = np.array(sorted([*places, -1.0]))
        # The weights integrate every polynomial of lower degree: P_0 to 1, all others to 0.
        moments = np.eye(len(points))[0]
        weights = np.linalg.solve(legendre.legvander(points, len(points) - 1).T, moments)
        rules.append(Rule(torch.from_numpy((points + 1) / 2), torch.from_numpy(weights)))
    return tuple(rules)


# Points of [-1, 1], either sign, for which the rule with those before them has the highest degree.
FOUR_MORE = (0.34098226591099297151, 0.89040552751266878657)
EIGHT_MORE = (
    0.16433743916478492396,
    0.50890120126939453313,
    0.78241604112046154079,
    0.96619986309370785234,
)

RuleName = Literal["gauss", "riemann", "left"]
RULES: dict[str, Callable[[int], Rule]] = {"gauss": gauss, "riemann": riemann, "left": left}


def rule_named(name: str, count: int) -> Rule:
    """The rule of that name with that many points."""
    require_choice("rule", name, RULES)
    if count < 1:
        raise BadRequestError(f"A path needs at least 1 step, {count} were requested.")
    return RULES[name](count)


def _equal(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.double) / count
