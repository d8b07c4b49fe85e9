"""What does an answer gain while the attention of a site grows from nothing?

The attention A of one site is scaled by α from 0 to 1. The values V do not depend on α, so the
context C = AV is scaled as well, and ∂F/∂A_h = (∂F/∂C_h) V_hᵀ. The gain of every entry is

    A_h ⊙ ∫₀¹ ∂F(αA)/∂A_h dα  =  A_h ⊙ [(Σ_k w_k ∂F/∂C_h at α_k C) V_hᵀ],

with no map for each point and nothing computed below the site's layer. For every row of a batch:

1. silence the site once: F(0), and what one copy costs in memory;
2. walk α through Gauss–Legendre points (exact for polynomials of degree 2n - 1), all copies in one
   replay from the site's layer, and sum the slopes;
3. compare the sum with F(A) - F(0). While the gap is too large, take half as many points again;
4. where that does not help, the answer bends in one place: cut the path into panels that are split
   only there (``numerics.paths``), also for the sites below. What still does not close is told with
   the place and size of the jump.

Where only some rows of attention were kept, their entries alone are formed. All entries of a query
add up to its slope times its context, so the sum over all of them needs no map.

The equal steps of the paper (right ends) and of its released code (left ends) are kept for
comparison (``numerics/quadrature.py``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.registry import Cost
from exhibit_a.numerics import paths
from exhibit_a.numerics.exact import exact, exact_sum, returned
from exhibit_a.numerics.memory import BACKWARDS, free_bytes
from exhibit_a.numerics.panels import ROUGH, climb
from exhibit_a.numerics.quadrature import Rule, gauss, rule_named
from exhibit_a.numerics.spilling import copies_at_once, spilled
from exhibit_a.shapes import Context, HasLogits, Scores
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.answers import distribution_at
from exhibit_a.trace.batches import Batch, Maps, RowIndex
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.replay import replay

FIRST_POINTS, MOST_POINTS = 3, 96
PATIENCE = 18  # with so many points, a gap that did not halve asks for panels
PANELS = 0  # instead of a number of points to begin with
PANEL_POINTS = 256  # at most, where panels are needed
ENOUGH = 1e-4  # of the answer: a gap below this share of it is never worth another walk
MEMORY_SHARE = 0.5  # of what is free
TOKENS_AT_ONCE = 2048  # more in one walk is no faster,
WALK = Cost(  # for all sites of one text
    forwards=1, per_layer=3.6, backwards=True, maps=2, at_once=TOKENS_AT_ONCE
)

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
class SiteIntegral:
    """The attribution of one site for every row of a batch, and how complete it is."""

    scores: Maps
    change: Scores
    gap: Scores
    points: Int[Tensor, " batch"]
    reasons: tuple[str, ...]  # why the gap is larger than was asked; empty where it is not
    first: Int[Tensor, " batch"]  # the points that the site below begins with

    @property
    def sure(self) -> Bool[Tensor, " batch"]:
        """Whether the gap is as small as was asked."""
        return torch.tensor([not reason for reason in self.reasons], device=self.gap.device)

    @property
    def share(self) -> Scores:
        """The gap as a share of the change; infinite where nothing changes and a gap is left."""
        return torch.where(self.gap == 0, self.gap, self.gap / self.change.abs())


def integrate(
    batch: Batch,
    site: int,
    answer: Answer,
    whole: Scores,
    *,
    plan: Plan,
    first: Int[Tensor, " batch"] | None = None,
) -> SiteIntegral:
    """Attribute each row's answer ``whole`` to the attention of one site.

    ``first`` is the number of points each row begins with; how many it gets never depends on the
    other rows.
    """
    work = _SiteWork(batch, site, answer, whole, plan)
    every = torch.arange(len(batch), device=batch.real.device)
    if plan.steps != "auto":
        work.walk(every, rule_named(plan.rule, int(plan.steps)))
        return work.finished(first=work.points)
    counts = torch.full_like(every, FIRST_POINTS) if first is None else first.clone()
    waiting = counts != PANELS
    while bool(waiting.any()):
        count = int(counts[waiting].amin())
        pending = (waiting & (counts == count)).nonzero().flatten()
        unsure, stuck = work.walk(pending, gauss(count))
        waiting[pending] = unsure & ~stuck
        counts[pending[unsure]] = min(count + (count + 1) // 2, MOST_POINTS)
        counts[pending[unsure & stuck]] = PANELS
    for row in (counts == PANELS).nonzero().flatten().tolist():
        work.lay_panels(row)
    return work.finished(first=counts)


def attribute_classes(
    batch: Batch, classes: Int[Tensor, " row"], tolerance: float
) -> list[SiteIntegral]:
    """Attribute the probability of each row's class to every site."""

    def answer(output: HasLogits, rows: RowIndex) -> Scores:
        return distribution_at(output).gather(1, classes[rows, None]).squeeze(1)

    return attribute(batch, answer, Plan(tolerance=tolerance))


def attribute(
    batch: Batch, answer: Answer, plan: Plan, *, whole: Scores | None = None
) -> list[SiteIntegral]:
    """Attribute each row's answer to every site, the last one first.

    ``whole`` is the answer of the unchanged model, if not that to the batch's own output.
    """
    batch.subject.require_gradients()
    if whole is None:
        whole = wide(answer(batch.output, torch.arange(len(batch), device=batch.real.device)))
    integrals: list[SiteIntegral] = []
    first: Tensor | None = None
    for site in reversed(batch.sites):
        found = _aside(integrate(batch, site.index, answer, whole, plan=plan, first=first), batch)
        integrals.insert(0, found)
        first = found.first  # a lower site bends the answer more, never less
    return integrals


def _aside(found: SiteIntegral, batch: Batch) -> SiteIntegral:
    """The same, whose scores wait in a file if those of all sites are large."""
    (scores,) = spilled((found.scores,), of=len(batch) * _set_of_maps(batch))
    return replace(found, scores=scores)


def _set_of_maps(batch: Batch) -> int:
    """Bytes of the maps of all sites of one row, or of the rows that were kept of them."""
    return sum(maps[0].nbytes for maps in batch.attention)


class _SiteWork:
    """The path of one site for every row of a batch, as far as it has been walked."""

    def __init__(self, batch: Batch, site: int, answer: Answer, whole: Scores, plan: Plan) -> None:
        self.batch, self.site, self.answer, self.plan = batch, site, answer, plan
        self.silenced, self.cost, self.context = _silence(batch, site, answer)
        self.rows: tuple[int, ...] | None = None  # the queries whose entries are formed
        if batch.asked is not None:
            self.rows = batch.asked.rows if batch.attention[site].shape[2] else ()
        self.whole, self.change = whole, whole - self.silenced
        self.attention, self.values = wide(batch.attention[site]), wide(batch.values[site])
        self.floor = max(ENOUGH, torch.finfo(batch.values[site].dtype).eps)
        height = whole.abs().maximum(self.silenced.abs())
        self.allowed = (plan.tolerance * self.change.abs()).maximum(self.floor * height)
        self.scores = torch.zeros_like(self.attention)
        self.gap = torch.full_like(self.change, torch.inf)
        self.points = torch.zeros(len(batch), dtype=torch.long, device=self.gap.device)
        self.a_set = _set_of_maps(batch)
        self.reasons = [""] * len(batch)

    def walk(self, rows: RowIndex, rule: Rule) -> tuple[Bool[Tensor, " row"], Bool[Tensor, " row"]]:
        """Walk rows by a rule; which did not close, and for which more points are no help."""
        count, before = len(rule), self.gap[rows]
        places = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
        weights = returned(rule.weights, rows.device).repeat(len(rows))
        slopes = torch.zeros_like(self._contexts(rows))
        heights, steepness = [], []
        alphas = returned(rule.points, rows.device).repeat(len(rows))
        for chunk, height, slope, context in self._pieces(rows.repeat_interleave(count), alphas):
            weighted = slope * weights[chunk].to(slope.dtype).reshape(-1, 1, 1, 1)
            slopes.index_add_(0, places[chunk], weighted)
            heights.append(height)
            steepness.append((slope * context).sum((1, 2, 3)))
        self._keep(rows, slopes, count)
        climbed = climb(torch.cat(steepness).reshape(len(rows), count), count)
        walked = exact(torch.cat(heights).reshape(len(rows), count))
        # A rule with too few points can meet the end by accident, but not every point before it.
        bend = (climbed - (walked - exact(self.silenced[rows, None]))).abs().amax(-1)
        allowed, bend = self.allowed[rows], returned(bend, rows.device)
        unsure = (self.gap[rows] > allowed) | (bend > ROUGH * allowed)
        late = count >= PATIENCE
        stuck = (self.gap[rows] > before / 2) & late if count < MOST_POINTS else unsure
        return unsure, stuck

    def lay_panels(self, row: int) -> None:
        """Walk one row by panels that are split where the answer bends."""
        context = exact(self._contexts(torch.tensor([row], device=self.gap.device))[0])

        def slopes_at(alphas: list[float]) -> tuple[Tensor, Tensor]:
            pieces = list(self._pieces(*self._copies(row, alphas)))
            return torch.cat([piece[1] for piece in pieces]), torch.cat([it[2] for it in pieces])

        path = paths.integrate(
            slopes_at,
            (float(self.silenced[row]), float(self.whole[row])),
            limits=paths.Limits(self.plan.tolerance, self.floor, PANEL_POINTS),
            heights=lambda alphas: self._heights(*self._copies(row, alphas)),
            slope=lambda slopes: (exact(slopes) * context).sum((1, 2, 3)),
        )
        self._keep(torch.tensor([row], device=self.gap.device), path.integral[None], path.points)
        self.reasons[row] = path.reason

    def finished(self, first: Int[Tensor, " batch"]) -> SiteIntegral:
        """What was found; rows that are as they should be have no reason."""
        missed = (self.gap > self.allowed).tolist()
        for row, reason in enumerate(self.reasons):
            if missed[row] and not reason:
                self.reasons[row] = f"{int(self.points[row])} points are too few"
        return SiteIntegral(
            self.scores, self.change, self.gap, self.points, tuple(self.reasons), first
        )

    def _keep(self, rows: RowIndex, slopes: Context, count: int) -> None:
        """Turn summed slopes into scores, and compare them with the change."""
        asked = slopes if self.rows is None else slopes[:, :, list(self.rows)]
        self.scores[rows] = self.attention[rows] * (asked @ self.values[rows].mT)
        self.points[rows] = count
        entries = self.scores[rows] if self.rows is None else slopes * self._contexts(rows)
        total = exact_sum(entries, (1, 2, 3))
        gap = (total - exact(self.change[rows])).abs()
        self.gap[rows] = gap.to(self.gap.dtype).to(rows.device)

    def _contexts(self, rows: RowIndex) -> Context:
        """What every query averages: of the maps, or as it was seen where maps are not whole."""
        if self.rows is None:
            return self.attention[rows] @ self.values[rows]
        return wide(self.context[rows])

    def _copies(self, row: int, alphas: list[float]) -> tuple[RowIndex, Tensor]:
        """One copy of a row for each α, on the model's device."""
        device = self.gap.device
        factors = returned(torch.tensor(alphas, dtype=torch.double), device)
        return torch.full((len(alphas),), row, device=device), factors

    def _at_once(self) -> int:
        """How many copies are replayed together."""
        room = min(MEMORY_SHARE * free_bytes(self.gap.device), BACKWARDS)
        fitting = int(room / max(self.cost, 1.0))
        fitting = min(fitting, copies_at_once(self.a_set, self.a_set))
        return max(1, min(fitting, TOKENS_AT_ONCE // self.context.shape[2]))

    def _heights(self, copies: RowIndex, alphas: Tensor) -> Scores:
        """The answers alone."""
        every = torch.arange(len(copies), device=copies.device)
        with torch.no_grad():
            return torch.cat(
                [
                    self.answer(
                        replay(self.batch.rows(copies[chunk]), _Scaled(self.site, alphas[chunk])),
                        copies[chunk],
                    )
                    for chunk in torch.split(every, self._at_once())
                ]
            )

    def _pieces(
        self, copies: RowIndex, alphas: Tensor
    ) -> Iterator[tuple[Tensor, Scores, Context, Context]]:
        """Which copies, their answers, slopes and contexts; as many at a time as memory allows."""
        every = torch.arange(len(copies), device=copies.device)
        for chunk in torch.split(every, self._at_once()):
            edit = _Scaled(self.site, alphas[chunk])
            with torch.enable_grad():
                output = replay(self.batch.rows(copies[chunk]), edit)
                height = self.answer(output, copies[chunk])
                # An answer may not depend on a layer at all: some read a tower below its last one.
                reached = height.sum() + 0 * edit.scaled.sum()
                (slope,) = torch.autograd.grad(reached, edit.scaled)
            yield chunk, height.detach(), wide(slope), edit.context


def _silence(batch: Batch, site: int, answer: Answer) -> tuple[Scores, float, Context]:
    """The answers without the site, the bytes that one copy keeps to go backwards, the context."""
    rows = torch.arange(len(batch), device=batch.real.device)
    edit = _Scaled(site, torch.zeros(len(batch), device=batch.real.device))
    weights = {_memory(weight)[0] for weight in batch.model.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        place, size = _memory(tensor)
        if place not in weights:
            kept[place] = size
        return tensor.detach()  # with its graph, a saved result would keep itself alive for ever

    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        silenced = answer(replay(batch.rows(rows), edit), rows)
    return wide(silenced.detach()), sum(kept.values()) / len(batch), edit.context


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor lies and how many bytes that is; quantised weights have no place."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        return 0, 0


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
