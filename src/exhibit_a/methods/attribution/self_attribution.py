"""Which attention edges does this answer rest on?

Self-attention attribution (Hao et al., AAAI 2021): let the attention A of one site grow from
nothing to what it is, and add up what each entry contributes to the answer F on the way,

    Attr_h = A_h ⊙ ∫₀¹ ∂F(αA)/∂A_h dα.

Where only some rows were requested, the entries are those of these rows, with the numbers that they
have among all; what all entries of a site add up to is known without them (``path_integral.py``).

All heads of a site grow together while every other site answers to the change, and the entries of
a site add up to F(A) - F(0): what the site as a whole changed. ``path_integral.py`` says how the
integral is computed, and why it costs so little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.attribution.path_integral import (
    WALK,
    PathPlan,
    SiteIntegral,
    attribute,
)
from exhibit_a.methods.registry import method, rows_of
from exhibit_a.numerics.quadrature import RuleName
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import HasLogits, Scores, SiteHeads, SiteMap
from exhibit_a.subject.anatomy import layer_name
from exhibit_a.trace.answer_rows import one_stack
from exhibit_a.trace.batches import RowIndex, alike, of_several, stand_alone
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, chosen_target


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SelfAttribution(SiteResult):
    """What every attention edge contributed to the answer, site by site.

    The entries of a site add up to ``change``, what silencing the whole site takes away, except
    for ``gap``. Where the gap is larger than was requested the site is incomplete, ``reasons`` says
    why, and no conclusion should rest on its scores.
    """

    unit_rules: ClassVar[dict[str, Rule]] = {"scores": "sum", "sequences": "names"}
    scores: tuple[SiteMap, ...]  # what the answer owes to each edge
    change: Float[Tensor, " site"]  # of the answer, from no attention to all of it
    gap: Float[Tensor, " site"]  # between the change and the sum of scores
    points: Int[Tensor, " site"]  # at which gradients were taken
    target: str
    reasons: tuple[str, ...] = ()  # for every site: why it is incomplete, or nothing

    @property
    def complete(self) -> tuple[bool, ...]:
        """Whether the entries of each site add up to what it changed."""
        incomplete = self.checks.get("incomplete sites", ())
        return tuple(site not in incomplete for site in range(len(self.scores)))

    def by_token(self, sites: Sequence[int]) -> Float[Tensor, " key"]:
        """What all attention to a token is credited with at some sites, over heads and queries.

        Sites that are incomplete are left out: their entries are not what the site changed.
        """
        sure = [site for site in sites if self.complete[site]]
        if not sure:
            reasons = [self.reasons[site] for site in sites if self.reasons]
            raise NotComputableError(
                "No site is attributed completely" + (f": {reasons[0]}." if reasons else ".")
            )
        return torch.stack([self.scores[site].sum((0, 1)) for site in sure]).sum(0)

    @property
    def head_maxima(self) -> tuple[SiteHeads, ...]:
        """The largest entry of every head, by which heads are ranked."""
        return tuple(
            scores.amax((1, 2)) if scores.numel() else scores.new_zeros(len(scores))
            for scores in self.scores
        )

    def strongest(self, count: int = 10) -> list["Contribution"]:
        """The edges with the largest contributions, either way, strongest first."""
        entries = torch.cat([scores.reshape(-1) for scores in self.scores])
        largest = entries.abs().topk(min(count, len(entries))).indices.tolist()
        return [self._edge(place) for place in largest]

    def _edge(self, place: int) -> "Contribution":
        """The edge at a place among the entries of all sites, one site after the other."""
        for site, scores in enumerate(self.scores):
            if place < scores.numel():
                head, query, key = (
                    int(i) for i in torch.unravel_index(torch.tensor(place), scores.shape)
                )
                queries, keys = self.tokens_of(site)
                score = float(scores[head, query, key])
                return Contribution(site, head, query, key, queries[query], keys[key], score)
            place -= scores.numel()
        raise IndexError(place)


@dataclass(frozen=True)
class Contribution:
    """One attention edge and what it contributed."""

    site: int
    head: int
    query: int
    key: int
    query_token: str
    key_token: str
    score: float


def token_scores(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """What all attention to a token is credited with, over complete sites, heads and queries."""
    sites = [site.index for site in one_stack(trace)]
    return self_attribution(trace, target=target).by_token(sites)


@overload
def self_attribution(
    trace: Trace,
    *,
    target: Target | str | int | None = ...,
    rule: RuleName = ...,
    steps: int | str = ...,
    tolerance: float = ...,
) -> SelfAttribution: ...


@overload
def self_attribution(
    trace: Sequence[Trace],
    *,
    target: Target | str | int | None = ...,
    rule: RuleName = ...,
    steps: int | str = ...,
    tolerance: float = ...,
) -> list[SelfAttribution]: ...


@method(
    question="Which attention edges does the answer rest on?",
    needs=rows_of("attention", "values", "hidden", "target"),
    cost=WALK,
    command="attribute",
    tokens=token_scores,
)
def self_attribution(
    trace: Trace | Sequence[Trace],
    *,
    target: Target | str | int | None = None,
    rule: RuleName = "gauss",
    steps: int | str = "auto",
    tolerance: float = 0.01,
) -> SelfAttribution | list[SelfAttribution]:
    """Attribute an answer to the attention edges of every layer.

    Several traces have a result each; those of one length share their replays.

    ``rule="riemann", steps=20`` is the paper, ``rule="left", steps=64`` the released code. The
    target may also be a ``Target``, as ``choose_target`` gives it.

    >>> attribution = xa.self_attribution(trace)
    >>> attribution.target, len(attribution.scores), tuple(attribution.scores[0].shape)
    ('probability of positive', 6, (12, 8, 8))
    >>> edge = attribution.strongest(1)[0]
    >>> edge.site, edge.head, edge.query_token, edge.key_token
    (5, 3, '[CLS]', '[SEP]')
    >>> xa.self_attribution(trace, target="negative", rule="left", steps=8).points
    tensor([8, 8, 8, 8, 8, 8])

    Args:
        target: the label or token to explain; without, what the model answers.
        rule: the points of the path: gauss, riemann (the paper) or left (its released code).
        steps: how many points; auto takes as many as the tolerance needs, of a family of rules that
            use their points again.
        tolerance: the gap that is allowed, as a share of what a site changes.
    """
    plan = PathPlan(rule, steps, tolerance)
    if isinstance(trace, Trace):
        return _of_several([trace], [chosen_target(trace, target)], plan)[0]
    traces = list(trace)
    targets = [chosen_target(each, target) for each in traces]
    one_place = len({(each.position, each.scale, len(each.following)) for each in targets}) == 1
    if one_place and alike(traces) and not stand_alone(traces[0].subject):
        return _of_several(traces, targets, plan)
    pairs = zip(traces, targets, strict=True)
    return [result for one, goal in pairs for result in _of_several([one], [goal], plan)]


def _of_several(
    traces: Sequence[Trace], targets: Sequence[Target], plan: PathPlan
) -> list[SelfAttribution]:
    """The result of one trace, or of each of several that are alike, for a target each."""
    batch = targets[0].narrowed(of_several(traces))
    goals = list(dict.fromkeys(targets))
    goal_of_row = torch.tensor([goals.index(target) for target in targets])

    def answer(output: HasLogits, rows: RowIndex) -> Scores:
        values = torch.stack([goal.value(batch, output) for goal in goals])
        return values.gather(0, goal_of_row[rows.cpu()][None].to(values.device))[0]

    integrals = attribute(batch, answer, plan)
    return [
        build_result(
            SelfAttribution,
            trace,
            "self_attribution",
            settings={"target": str(target), **vars(plan)},
            checks=_checks(integrals, row, trace, plan.tolerance),
            scores=tuple(integral.scores[row] for integral in integrals),
            change=torch.stack([integral.change[row] for integral in integrals]),
            gap=torch.stack([integral.gap[row] for integral in integrals]),
            points=torch.stack([integral.points[row] for integral in integrals]),
            target=str(target),
            reasons=tuple(integral.reasons[row] for integral in integrals),
        )
        for row, (trace, target) in enumerate(zip(traces, targets, strict=True))
    ]


def _checks(
    integrals: list[SiteIntegral], row: int, trace: Trace, tolerance: float
) -> dict[str, object]:
    """How complete the attribution is, site by site where it is not."""
    reasons = {site: path.reasons[row] for site, path in enumerate(integrals) if path.reasons[row]}

    def largest(name: str) -> float:
        return float(torch.stack([getattr(integral, name)[row] for integral in integrals]).amax())

    checks: dict[str, object] = {
        "largest gap": largest("gap"),
        "largest gap as a share of the change": largest("share"),
        "tolerance": tolerance,
        "most points": int(largest("points")),
    }
    if reasons:
        names = {site: layer_name(trace.sites[site], trace.sites) for site in reasons}
        sentences = "; ".join(f"{names[site]}: {reason}" for site, reason in reasons.items())
        checks["incomplete sites"] = tuple(reasons)
        checks["completeness"] = f"does not hold everywhere. {sentences[0].upper()}{sentences[1:]}"
    return checks
