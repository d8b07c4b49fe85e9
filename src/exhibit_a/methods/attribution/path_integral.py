"""What an answer gains while the attention of a site grows from nothing.

The attention A of one site is scaled by α from 0 to 1. The values V do not depend on α, so the
context C = AV is scaled as well, and ∂F/∂A_h = (∂F/∂C_h) V_hᵀ. The gain of every entry is

    A_h ⊙ ∫₀¹ ∂F(αA)/∂A_h dα  =  A_h ⊙ [(Σ_k w_k ∂F/∂C_h at α_k C) V_hᵀ],

with no map for each point and nothing computed below the site's layer. For every row of a batch:

1. run the whole model backwards once: the gradients at α = 1, for all sites;
2. silence the site: F(0), the gradients there, and what one copy costs in memory. A batch holds
   copies of its texts, each with a factor α of its own (``Scaled``);
3. look at three points between (``quadrature.nested``), all copies in one replay from the site's
   layer, and sum the gradients at all five;
4. compare the sum with F(A) - F(0), and F at the points with where the gradients lead. While that
   is too far apart, look at four points more, then at eight;
5. where that does not help, the answer bends in one place: cut the path into panels that are split
   only there (``numerics.paths``), also for the sites below. What still does not close is reported
   with the place and size of the jump.

Where only some rows of attention were kept, their entries alone are formed. All entries of a query
add up to its gradient times its context, so the sum over all of them needs no map.

The equal steps of the paper (right ends) and of its released code (left ends) are kept for
comparison (``numerics/quadrature.py``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.registry import Cost
from exhibit_a.numerics import paths
from exhibit_a.numerics.memory import BACKWARDS, free_bytes
from exhibit_a.numerics.panels import ROUGH
from exhibit_a.numerics.precision import at_least_float32, float64_sum, returned, to_float64
from exhibit_a.numerics.quadrature import Rule, nested, rule_named
from exhibit_a.numerics.spilling import copies_at_once, spilled
from exhibit_a.shapes import Context, HasLogits, Scores
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.answers import distribution_at
from exhibit_a.trace.batches import Batch, Maps, RowIndex
from exhibit_a.trace.edits import ContextGradients, Edit
from exhibit_a.trace.replay import replay, runs_fused

Answer = Callable[[HasLogits, RowIndex], Scores]  # output of a replay, row of each copy → F
ReadRows = tuple[int, ...] | None  # of the last layer, that answers are read from; None for all


@dataclass(frozen=True)
class PathSettings:
    """When a path has been walked well enough, and how much of it is walked at a time."""

    # Of the gap that is allowed, rule by rule: with few points a sum can close before its parts do.
    strict: tuple[float, ...] = (0.5, 0.5, 1.0)
    panel_points: int = 256  # at most, where panels are needed
    enough: float = 1e-4  # of the answer: a smaller gap is never worth another walk
    memory_share: float = 0.5  # of what is free
    tokens_at_once: int = 2048  # more in one walk is no faster


SETTINGS = PathSettings()
WALK = Cost(  # for all sites of one text
    forwards=2, per_layer=2.6, backwards=True, maps=2, at_once=SETTINGS.tokens_at_once
)


class Scaled(Edit):
    """Scales the context of one site, by a factor for each batch item, and records gradients."""

    context_only = True

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

    def gradients_of(self, answers: Scores) -> Context:
        """What answers that were computed with the scaled context gain for each of its entries."""
        # An answer may not depend on a layer at all: some read a tower below its last one.
        (gradients,) = torch.autograd.grad(answers.sum() + 0 * self.scaled.sum(), self.scaled)
        return at_least_float32(gradients)


class Silenced(NamedTuple):
    """What is known of the rows of a batch without a site."""

    answers: Scores
    gradients: Context  # of the answers, by what the site would average
    context: Context  # what it would average
    kept: float  # bytes that one copy keeps to go backwards


def silence(batch: Batch, site: int, answer: Answer, read: ReadRows) -> Silenced:
    """Run a batch without a site."""
    rows = torch.arange(len(batch), device=batch.real.device)
    edit = Scaled(site, torch.zeros(len(batch), device=batch.real.device))
    weights = {_memory(weight)[0] for weight in batch.model.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        place, size = _memory(tensor)
        if place not in weights:
            kept[place] = size
        return tensor.detach()  # with its graph, a saved result would keep itself alive for ever

    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        answers = answer(replay(batch.rows(rows), edit, read=read), rows)
        gradients = edit.gradients_of(answers)
    return Silenced(
        at_least_float32(answers.detach()), gradients, edit.context, sum(kept.values()) / len(batch)
    )


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor lies and how many bytes that is; quantised weights have no place."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        return 0, 0


@dataclass(frozen=True)
class PathPlan:
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
    reasons: tuple[str, ...]  # why the gap is larger than was requested; empty where it is not
    rough: Bool[Tensor, " batch"]  # whether panels were needed, which the site below begins with

    @property
    def sure(self) -> Bool[Tensor, " batch"]:
        """Whether the gap is as small as requested."""
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
    plan: PathPlan,
    end: Context | None = None,
    rough: Bool[Tensor, " batch"] | None = None,
    read: ReadRows = None,
) -> SiteIntegral:
    """Attribute each row's answer ``whole`` to the attention of one site.

    ``end`` is the gradient at α = 1, which one pass gives for all sites (``gradients_at_the_end``),
    and ``rough`` marks rows that begin with panels; how many points a row gets never depends on the
    other rows. ``read`` are the rows of the last layer that answers are read from, if not all.
    """
    work = _SiteWork(batch, site, answer, whole, plan, read)
    every = torch.arange(len(batch), device=batch.real.device)
    if plan.steps != "auto":
        work.walk(every, rule_named(plan.rule, int(plan.steps)))
        return work.finished(torch.zeros_like(every, dtype=torch.bool))
    panels = torch.zeros_like(every, dtype=torch.bool) if rough is None else rough.clone()
    pending = (~panels).nonzero().flatten()
    if len(pending):
        work.look_at_the_ends(end)
    # steps 3 and 4
    for rule, share in zip(nested(), SETTINGS.strict, strict=True):
        pending = pending[work.walk_on(pending, rule, share)] if len(pending) else pending
    panels[pending] = True  # step 5
    for row in panels.nonzero().flatten().tolist():
        work.lay_panels(row)
    return work.finished(panels)


def gradients_at_the_end(batch: Batch, answer: Answer, read: ReadRows = None) -> list[Context]:
    """Gradients of each row's answer at the context of every site: one pass, a few rows at a time.

    Nothing is changed, so α = 1.
    """
    runs = []
    every = torch.arange(len(batch), device=batch.real.device)
    a_set = _set_of_maps(batch)
    for rows in torch.split(every, copies_at_once(a_set, a_set)):
        nudge = ContextGradients()
        with torch.enable_grad():
            reached = answer(replay(batch.rows(rows), nudge, start=0, read=read), rows).sum()
            runs.append(torch.autograd.grad(reached, nudge.nudges, materialize_grads=True))
    return [torch.cat(site) for site in zip(*runs, strict=True)]


def attribute_classes(
    batch: Batch, classes: Int[Tensor, " row"], tolerance: float
) -> list[SiteIntegral]:
    """Attribute the probability of each row's class to every site."""

    def answer(output: HasLogits, rows: RowIndex) -> Scores:
        return distribution_at(output).gather(1, classes[rows, None]).squeeze(1)

    return attribute(batch, answer, PathPlan(tolerance=tolerance))


def attribute(batch: Batch, answer: Answer, plan: PathPlan) -> list[SiteIntegral]:
    """Attribute each row's answer to every site, the last one first."""
    batch.subject.require_gradients()
    integrals: list[SiteIntegral] = []
    every = torch.arange(len(batch), device=batch.real.device)
    whole = at_least_float32(answer(batch.output, every).detach())
    read = rows_read(batch, lambda output: answer(output, every))
    # step 1
    ends = gradients_at_the_end(batch, answer, read) if plan.steps == "auto" else None
    rough: Tensor | None = None
    for site in reversed(batch.sites):
        end = None if ends is None else ends[site.index]
        found = integrate(
            batch, site.index, answer, whole, plan=plan, end=end, rough=rough, read=read
        )
        rough = found.rough  # a lower site bends the answer more, never less
        (scores,) = spilled((found.scores,), of=len(batch) * _set_of_maps(batch))  # if large
        integrals.insert(0, replace(found, scores=scores))
        del found, scores
    return integrals


def _set_of_maps(batch: Batch) -> int:
    """Bytes of the maps of all sites of one row, or of the rows that were kept of them."""
    return sum(maps[0].nbytes for maps in batch.attention)


class _SiteWork:
    """The path of one site for every row of a batch, as far as it has been walked."""

    def __init__(
        self,
        batch: Batch,
        site: int,
        answer: Answer,
        whole: Scores,
        plan: PathPlan,
        read: ReadRows,
    ) -> None:
        self.batch, self.site, self.answer, self.plan = batch, site, answer, plan
        self.read = read
        silent = silence(batch, site, answer, read)  # step 2
        self.silenced, self.start, self.context = silent.answers, silent.gradients, silent.context
        self.cost = silent.kept
        self.rows: tuple[int, ...] | None = None  # the queries whose entries are formed
        if batch.partial is not None:
            self.rows = batch.partial.rows if batch.attention[site].shape[2] else ()
        self.whole, self.change = whole, whole - self.silenced
        self.attention, self.values = (
            at_least_float32(batch.attention[site]),
            at_least_float32(batch.values[site]),
        )
        self.floor = max(SETTINGS.enough, torch.finfo(batch.values[site].dtype).eps)
        height = whole.abs().maximum(self.silenced.abs())
        self.allowed = (plan.tolerance * self.change.abs()).maximum(self.floor * height)
        self.scores = torch.zeros_like(self.attention)
        self.gap = torch.full_like(self.change, torch.inf)
        self.points = torch.zeros(len(batch), dtype=torch.long, device=self.gap.device)
        self.a_set = _set_of_maps(batch)
        self.reasons = [""] * len(batch)
        self.seen: dict[float, tuple[Scores, Context]] = {}  # answers and gradients, by α

    def look_at_the_ends(self, end: Context | None) -> None:
        """Note the answers and gradients at both ends of the path."""
        every = torch.arange(len(self.batch), device=self.gap.device)
        self.seen[0.0] = (self.silenced, self.start)
        if end is None:
            self._look(every, [1.0])
        else:
            self.seen[1.0] = (self.whole, at_least_float32(end))

    def walk_on(self, rows: RowIndex, rule: Rule, share: float) -> Bool[Tensor, " row"]:
        """Look at the points of a rule that are new, and sum over all; which rows do not close.

        A row closes with a share of the gap that is allowed.
        """
        points = rule.points.tolist()
        self._look(rows, [point for point in points if point not in self.seen])
        weights = returned(rule.weights, rows.device).tolist()
        gradients = torch.zeros_like(self._contexts(rows))
        for point, weight in zip(points, weights, strict=True):
            gradients += weight * self.seen[point][1][rows]
        self._keep(rows, gradients, len(rule))
        context = self._contexts(rows)
        steepness = torch.stack(
            [float64_sum(self.seen[point][1][rows] * context, (1, 2, 3)) for point in points], -1
        )
        heights = to_float64(torch.stack([self.seen[point][0][rows] for point in points], -1))
        climbed = steepness @ rule.cumulative_weights.to(steepness.device)
        # A rule with too few points can meet the end by accident, but not every point before it.
        bend = (climbed - (heights - heights[:, :1])).abs().amax(-1)
        allowed = share * self.allowed[rows]
        return (self.gap[rows] > allowed) | (returned(bend, rows.device) > ROUGH * allowed)

    def _look(self, rows: RowIndex, alphas: list[float]) -> None:
        """Note the answers and gradients of rows at some points."""
        for alpha in alphas:
            self.seen[alpha] = (torch.zeros_like(self.whole), torch.zeros_like(self.start))
        factors = torch.tensor(alphas, dtype=torch.double).repeat(len(rows))
        copies = rows.repeat_interleave(len(alphas))
        names = factors.tolist()
        for chunk, heights, gradients, _ in self._pieces(copies, returned(factors, rows.device)):
            for copy, height, gradient in zip(chunk.tolist(), heights, gradients, strict=True):
                known, row = self.seen[names[copy]], copies[copy]
                known[0][row], known[1][row] = height, gradient

    def walk(self, rows: RowIndex, rule: Rule) -> None:
        """Walk rows by a rule from nothing."""
        count = len(rule)
        places = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
        weights = returned(rule.weights, rows.device).repeat(len(rows))
        gradients = torch.zeros_like(self._contexts(rows))
        alphas = returned(rule.points, rows.device).repeat(len(rows))
        for chunk, _, gradient, _ in self._pieces(rows.repeat_interleave(count), alphas):
            weighted = gradient * weights[chunk].to(gradient.dtype).reshape(-1, 1, 1, 1)
            gradients.index_add_(0, places[chunk], weighted)
        self._keep(rows, gradients, count)

    def lay_panels(self, row: int) -> None:
        """Walk one row by panels that are split where the answer bends."""
        context = to_float64(self._contexts(torch.tensor([row], device=self.gap.device))[0])

        def gradients_at(alphas: list[float]) -> tuple[Tensor, Tensor]:
            pieces = list(self._pieces(*self._copies(row, alphas)))
            return torch.cat([piece[1] for piece in pieces]), torch.cat([it[2] for it in pieces])

        path = paths.integrate(
            gradients_at,
            (float(self.silenced[row]), float(self.whole[row])),
            limits=paths.PathLimits(self.plan.tolerance, self.floor, SETTINGS.panel_points),
            heights=lambda alphas: self._heights(*self._copies(row, alphas)),
            gradient=lambda gradients: (to_float64(gradients) * context).sum((1, 2, 3)),
        )
        self._keep(torch.tensor([row], device=self.gap.device), path.integral[None], path.points)
        self.reasons[row] = path.reason

    def finished(self, rough: Bool[Tensor, " batch"]) -> SiteIntegral:
        """What was found; rows that are as they should be have no reason."""
        missed = (self.gap > self.allowed).tolist()
        for row, reason in enumerate(self.reasons):
            if missed[row] and not reason:
                self.reasons[row] = f"{int(self.points[row])} points are too few"
        return SiteIntegral(
            self.scores, self.change, self.gap, self.points, tuple(self.reasons), rough
        )

    def _keep(self, rows: RowIndex, gradients: Context, count: int) -> None:
        """Turn summed gradients into scores, and compare them with the change."""
        requested = gradients if self.rows is None else gradients[:, :, list(self.rows)]
        self.scores[rows] = self.attention[rows] * (requested @ self.values[rows].mT)
        self.points[rows] = count
        entries = self.scores[rows] if self.rows is None else gradients * self._contexts(rows)
        total = float64_sum(entries, (1, 2, 3))
        gap = (total - to_float64(self.change[rows])).abs()
        self.gap[rows] = gap.to(self.gap.dtype).to(rows.device)

    def _contexts(self, rows: RowIndex) -> Context:
        """What every query averages: of the maps, or as it was seen where maps are not whole."""
        if self.rows is None:
            return self.attention[rows] @ self.values[rows]
        return at_least_float32(self.context[rows])

    def _copies(self, row: int, alphas: list[float]) -> tuple[RowIndex, Tensor]:
        """One copy of a row for each α, on the model's device."""
        device = self.gap.device
        factors = returned(torch.tensor(alphas, dtype=torch.double), device)
        return torch.full((len(alphas),), row, device=device), factors

    def _at_once(self) -> int:
        """How many copies are replayed together."""
        room = min(SETTINGS.memory_share * free_bytes(self.gap.device), BACKWARDS)
        fitting = int(room / max(self.cost, 1.0))
        if not runs_fused(self.batch, Scaled(self.site, self.gap)):  # else no copy has maps
            fitting = min(fitting, copies_at_once(self.a_set, self.a_set))
        return max(1, min(fitting, SETTINGS.tokens_at_once // self.context.shape[2]))

    def _heights(self, copies: RowIndex, alphas: Tensor) -> Scores:
        """The answers alone."""
        every = torch.arange(len(copies), device=copies.device)
        with torch.no_grad():
            return torch.cat(
                [
                    self.answer(
                        self._replayed(copies[chunk], Scaled(self.site, alphas[chunk])),
                        copies[chunk],
                    )
                    for chunk in torch.split(every, self._at_once())
                ]
            )

    def _pieces(
        self, copies: RowIndex, alphas: Tensor
    ) -> Iterator[tuple[Tensor, Scores, Context, Context]]:
        """Batch items, answers, gradients and contexts; as many at a time as fit in memory."""
        every = torch.arange(len(copies), device=copies.device)
        for chunk in torch.split(every, self._at_once()):
            edit = Scaled(self.site, alphas[chunk])
            with torch.enable_grad():
                output = self._replayed(copies[chunk], edit)
                height = self.answer(output, copies[chunk])
                gradient = edit.gradients_of(height)
            yield chunk, height.detach(), gradient, edit.context

    def _replayed(self, copies: RowIndex, edit: Scaled) -> HasLogits:
        output: HasLogits = replay(self.batch.rows(copies), edit, read=self.read)
        return output
