"""At which points is an integral from 0 to 1 read, and what does each of them count?

``gauss``    Gauss–Legendre points, exact for polynomials of degree 2n - 1
``riemann``  the right ends of equal steps, as in the paper on self-attribution (Hao et al., 2021)
``left``     their left ends, as in its released code
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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


RuleName = Literal["gauss", "riemann", "left"]
RULES: dict[str, Callable[[int], Rule]] = {"gauss": gauss, "riemann": riemann, "left": left}


def rule_named(name: str, count: int) -> Rule:
    """The rule of that name with that many points."""
    require_choice("rule", name, RULES)
    if count < 1:
        raise BadRequestError(f"A path needs at least 1 step, {count} were asked for.")
    return RULES[name](count)


def _equal(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.double) / count
