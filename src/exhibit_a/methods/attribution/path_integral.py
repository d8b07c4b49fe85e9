"""What does an answer gain while the attention of a site grows from nothing?

The attention A of one site is scaled by α from 0 to 1. The values V do not depend on α, so the
context C = AV is scaled as well, and ∂F/∂A_h = (∂F/∂C_h) V_hᵀ. The gain of every entry is

    A_h ⊙ ∫₀¹ ∂F(αA)/∂A_h dα  =  A_h ⊙ [(Σ_k w_k ∂F/∂C_h at α_k C) V_hᵀ],

with no map for each point and nothing computed below the site's layer. For every row of a batch:

1. silence the site once: F(0), and what one copy costs in memory;
2. walk α through Gauss–Legendre points (exact for polynomials of degree 2n - 1), all copies in one
   replay from the site's layer, and sum the slopes;
3. compare the sum with F(A) - F(0). While the gap is too large, take half as many points again.

The equal steps of the paper (right ends) and of its released code (left ends) are kept for
comparison.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.polynomial import legendre
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.methods.registry import Cost
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.shapes import Context, HasLogits, Scores
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.answers import distribution_at
from exhibit_a.trace.batches import Batch, Maps, RowIndex
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.replay import replay

WALK = Cost(forwards=1, per_layer=3.6, backwards=True, maps=2)  # for all sites of one text
FIRST_POINTS, MOST_POINTS = 3, 96
ROUGH = 5.0  # points on the path may miss the slopes by this much more than its end
ENOUGH = 1e-4  # a gap below this is never worth another walk
MEMORY_SHARE = 0.5
TOKENS_AT_ONCE = 2048  # more in one walk is no faster

Answer = Callable[[HasLogits, RowIndex], Scores]  # output of a replay, row of each copy → F


@dataclass(frozen=True)
class Plan:
    """How to walk: the rule, its number of points or "auto", and when a gap is small enough."""

    rule: str = "gauss"
    steps: int | str = "auto"
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        automatic = self.steps == "auto"
        if not automatic and not isinstance(self.steps, int):
            raise BadRequestError(f'steps is a whole number or "auto", not {self.steps!r}.')
        rule_named(self.rule, 1 if automatic else int(self.steps))
        if automatic and self.rule != "gauss":
            raise BadRequestError(
                f'The rule {self.rule!r} needs a number of steps, not "auto". Say how many '
                "(--steps, steps=): the paper takes 20, the released code 64."
            )
        if not 0 < self.tolerance < 1:
            raise BadRequestError(f"A tolerance lies between 0 and 1, not at {self.tolerance}.")


@dataclass(frozen=True, eq=False)
class PathIntegral:
    """The attribution of one site for every row of a batch, and how complete it is."""

    scores: Maps
    change: Scores
    gap: Scores
    points: Int[Tensor, " batch"]
    sure: Bool[Tensor, " batch"]  # the gap is as small as was asked
    stuck: Bool[Tensor, " batch"]  # it is not, and more points did not help


def integrate(
    batch: Batch,
    site: int,
    answer: Answer,
    whole: Scores,
    *,
    plan: Plan,
    first: Int[Tensor, " batch"] | None = None,
) -> PathIntegral:
    """Attribute each row's answer ``whole`` to the attention of one site.

    ``first`` is the number of points each row begins with; how many it gets never depends on the
    other rows.
    """
    silenced, cost = _silence(batch, site, answer)
    attention, values = wide(batch.attention[site]), wide(batch.values[site])
    change = whole - silenced
    allowed = (plan.tolerance * change.abs()).clamp_min(ENOUGH)
    fixed = plan.steps != "auto"
    scores, gap = torch.zeros_like(attention), torch.full_like(change, torch.inf)
    before = gap.clone()
    points = torch.zeros(len(batch), dtype=torch.long, device=gap.device)
    counts = torch.full_like(points, FIRST_POINTS) if first is None else first.clone()
    waiting = torch.ones_like(points, dtype=torch.bool)
    while bool(waiting.any()):
        count = int(counts[waiting].amin())
        pending = (waiting & (counts == count)).nonzero().flatten()
        rule = rule_named(plan.rule, int(plan.steps) if fixed else count)
        walk = _walk(batch, site, pending, rule, answer, cost)
        scores[pending] = attention[pending] * (walk.slopes @ values[pending].mT)
        points[pending] = len(rule)
        before[pending] = gap[pending]
        total = scores[pending].double().sum((1, 2, 3))
        gap[pending] = (total - change[pending]).abs().to(gap.dtype)
        if fixed or count >= MOST_POINTS:
            waiting[pending] = False
            continue
        bent = walk.bend(silenced[pending]) > ROUGH * allowed[pending]
        waiting[pending] = (gap[pending] > allowed[pending]) | bent
        counts[pending] = min(count + (count + 1) // 2, MOST_POINTS)
    sure = gap <= allowed
    stuck = ~sure & (gap > before / 2) & before.isfinite()
    return PathIntegral(scores, change, gap, points, sure, stuck)


def attribute_classes(
    batch: Batch, classes: Int[Tensor, " row"], tolerance: float
) -> list[PathIntegral]:
    """Attribute the probability of each row's class to every site."""

    def answer(output: HasLogits, rows: RowIndex) -> Scores:
        return distribution_at(output).gather(1, classes[rows, None]).squeeze(1)

    return attribute(batch, answer, Plan(tolerance=tolerance))


def attribute(
    batch: Batch, answer: Answer, plan: Plan, *, whole: Scores | None = None
) -> list[PathIntegral]:
    """Attribute each row's answer to every site, the last one first.

    ``whole`` is the answer of the unchanged model, if not that to the batch's own output.
    """
    if whole is None:
        whole = wide(answer(batch.output, torch.arange(len(batch), device=batch.real.device)))
    integrals: list[PathIntegral] = []
    first: Tensor | None = None
    for site in reversed(batch.sites):
        integrals.insert(0, integrate(batch, site.index, answer, whole, plan=plan, first=first))
        first = integrals[0].points  # a lower site bends the answer more, never less
    return integrals


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


def climb(slopes: Float[Tensor, "*batch point"], count: int) -> Float[Tensor, "*batch point"]:
    """How far the answer has risen at each Gauss point, judged by the slopes at all of them.

    The slopes are read as a polynomial in Legendre form, whose terms integrate in closed form:
    ∫₋₁ˣ P_k = (P_{k+1}(x) - P_{k-1}(x)) / (2k + 1).
    """
    return slopes.double() @ _climbing(count).to(slopes.device)


@cache
def _climbing(count: int) -> Tensor:
    points, weights = legendre.leggauss(count)
    values = legendre.legvander(points, count)  # (point, degree 0 … count)
    degree = np.arange(count)
    coefficients = weights[:, None] * values[:, :count] * (2 * degree + 1) / 2
    below = np.concatenate([-np.ones((count, 1)), values[:, : count - 1]], axis=1)
    risen = (values[:, 1:] - below) / (2 * degree + 1)
    return torch.from_numpy(coefficients @ risen.T / 2)


def _equal(count: int) -> Tensor:
    return torch.arange(count, dtype=torch.double) / count


@dataclass(frozen=True, eq=False)
class _Walk:
    """The path as it was walked: summed slopes, and answer and steepness at every point."""

    slopes: Context
    heights: Float[Tensor, "batch point"]
    steepness: Float[Tensor, "batch point"]

    def bend(self, start: Scores) -> Scores:
        """How far the answers on the path are from where the slopes lead, at the worst point.

        A rule with too few points can meet the end by accident, but not every point before it.
        """
        expected = climb(self.steepness, self.heights.shape[-1])
        return (expected - (self.heights - start.unsqueeze(-1))).abs().amax(-1).float()


def _walk(
    batch: Batch, site: int, rows: RowIndex, rule: Rule, answer: Answer, cost: float
) -> _Walk:
    """Replay the rows at every point of the rule, as many copies at a time as memory allows."""
    copies, count = rows.repeat_interleave(len(rule)), len(rule)
    alphas = rule.points.to(rows.device).repeat(len(rows))
    weights = rule.weights.to(rows.device).repeat(len(rows))
    places = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
    shape = batch.attention[site].shape[1:3] + batch.values[site].shape[-1:]
    dtype = torch.promote_types(batch.values[site].dtype, torch.float32)
    slopes = torch.zeros(len(rows), *shape, device=rows.device, dtype=dtype)
    heights, steepness = [], []
    every = torch.arange(len(copies), device=rows.device)
    for chunk in torch.split(every, _at_once(batch, site, cost)):
        edit = _Scaled(site, alphas[chunk])
        with torch.enable_grad():
            height = answer(replay(batch.rows(copies[chunk]), edit), copies[chunk])
            (slope,) = torch.autograd.grad(height.sum(), edit.scaled, materialize_grads=True)
        slope = wide(slope)
        slopes.index_add_(0, places[chunk], slope * weights[chunk].to(dtype).reshape(-1, 1, 1, 1))
        heights.append(height.detach())
        steepness.append((slope * edit.context).sum((1, 2, 3)))
    return _Walk(
        slopes,
        torch.cat(heights).reshape(len(rows), count).double(),
        torch.cat(steepness).reshape(len(rows), count).double(),
    )


def _silence(batch: Batch, site: int, answer: Answer) -> tuple[Scores, float]:
    """The answers without the site, and the bytes that one copy keeps for the backward pass."""
    rows = torch.arange(len(batch), device=batch.real.device)
    edit = _Scaled(site, torch.zeros(len(batch), device=batch.real.device))
    weights = {weight.untyped_storage().data_ptr() for weight in batch.subject.model.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # with its graph, a saved result would keep itself alive for ever

    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        silenced = answer(replay(batch.rows(rows), edit), rows)
    return wide(silenced.detach()), sum(kept.values()) / len(batch)


def _at_once(batch: Batch, site: int, cost: float) -> int:
    """How many copies are replayed together."""
    queries = batch.attention[site].shape[2]
    fitting = MEMORY_SHARE * free_bytes(batch.real.device) / max(cost, 1.0)
    return max(1, min(int(fitting), TOKENS_AT_ONCE // queries))


class _Scaled(Edit):
    """Scales the context of one site, by one factor for each copy, and lets slopes flow to it."""

    def __init__(self, site: int, factors: Tensor) -> None:
        super().__init__([site])
        self.factors = factors
        self.context = self.scaled = factors

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The context, scaled by each copy's factor."""
        if call.site not in self.sites:
            return None
        self.context = context.detach()
        factors = self.factors.to(context.dtype).reshape(-1, 1, 1, 1)
        self.scaled = (factors * self.context).requires_grad_()
        return self.scaled


def wide(tensor: Tensor) -> Tensor:
    """At least single precision: sums of half-precision numbers are too inexact."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
