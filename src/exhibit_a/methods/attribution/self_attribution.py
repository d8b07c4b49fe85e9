"""Which attention edges does this answer rest on?

Self-attention attribution (Hao et al., AAAI 2021): let the attention A of one site grow from
nothing to what it is, and add up what each entry contributes to the answer F on the way,

    Attr_h = A_h ⊙ ∫₀¹ ∂F(αA)/∂A_h dα.

All heads of a site grow together while every other site answers to the change, and the entries of
a site add up to F(A) - F(0): what the site as a whole changed. How the integral is taken, and why
it costs so little, is told in ``paths.py``.
"""

import inspect
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.path_integral import (
    ENOUGH,
    FIRST_POINTS,
    PathIntegral,
    Plan,
    RuleName,
    integrate,
    wide,
)
from exhibit_a.methods.explanation.flow import require_one_stack
from exhibit_a.methods.registry import Cost, method
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.shapes import SiteHeads, SiteMap
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace.batches import Batch, of_one
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, choose_target


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SelfAttribution(Result):
    """What every attention edge contributed to the answer, site by site.

    The entries of a site add up to ``change``, what silencing the whole site takes away, except
    for ``gap``.
    """

    scores: tuple[SiteMap, ...]
    change: Float[Tensor, " site"]
    gap: Float[Tensor, " site"]
    points: Int[Tensor, " site"]
    target: str
    sites: tuple[Site, ...]
    sequences: dict[str, tuple[str, ...]]  # the tokens of each stack

    @property
    def head_maxima(self) -> tuple[SiteHeads, ...]:
        """The largest entry of every head, by which heads are ranked."""
        return tuple(one.amax((1, 2)) for one in self.scores)

    def tokens_of(self, site: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens along the queries and along the keys of a site."""
        here = self.sites[site]
        other = next((name for name in self.sequences if name != here.stack), here.stack)
        keys = here.stack if here.kind == "self" else other
        return self.sequences[here.stack], self.sequences[keys]

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """The tokens along the axes of one site's map."""
        if leaf.field != "scores":
            return {}
        return dict(zip(("query", "key"), self.tokens_of(leaf.where["site"]), strict=True))

    def strongest(self, count: int = 10) -> list["Contribution"]:
        """The edges with the largest contributions, either way, strongest first."""
        every = torch.cat([one.reshape(-1) for one in self.scores])
        found = every.abs().topk(min(count, len(every))).indices.tolist()
        return [self._edge(place) for place in found]

    def _edge(self, place: int) -> "Contribution":
        for site, one in enumerate(self.scores):
            if place < one.numel():
                head, query, key = (
                    int(i) for i in torch.unravel_index(torch.tensor(place), one.shape)
                )
                queries, keys = self.tokens_of(site)
                score = float(one[head, query, key])
                return Contribution(site, head, query, key, queries[query], keys[key], score)
            place -= one.numel()
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
    """What all attention to a token is credited with, over sites, heads and queries."""
    require_one_stack(trace)
    scores = self_attribution(trace, target=target).scores
    return torch.stack([site.sum((0, 1)) for site in scores]).sum(0)


@method(
    question="Which attention edges does the answer rest on?",
    room="attribution",
    needs=("attention", "values", "hidden", "target"),
    cost=Cost(forwards=1, per_layer=5, maps=2),
    command="attribute",
    tokens=token_scores,
)
def self_attribution(
    trace: Trace,
    *,
    target: Target | str | int | None = None,
    rule: RuleName = "gauss",
    steps: int | Literal["auto"] = "auto",
    tolerance: float = 0.01,
) -> SelfAttribution:
    """Attribute an answer to the attention edges of every site.

    ``target`` is what the model itself answers, unless a label, a token or a ``Target`` is given.
    ``rule="riemann", steps=20`` is the paper, ``rule="left", steps=64`` the released code.
    """
    chosen = chosen_target(trace, target)
    batch, told = of_one(trace), chosen
    if chosen.position is not None and "logits_to_keep" in _parameters(trace):
        batch, told = _answering_from(batch, chosen)
    whole = wide(chosen(trace.output).detach())
    found: list[PathIntegral] = []
    first = FIRST_POINTS
    for site in reversed(trace.sites):
        here = integrate(
            batch,
            site.index,
            lambda output, _: told(output),
            whole,
            plan=Plan(rule, steps, tolerance, first),
        )
        found.insert(0, here)
        first = int(here.points[0])  # a lower site bends the answer more, never less
    subject, used = trace.subject, dict[str, Any](rule=rule, steps=steps, tolerance=tolerance)
    return SelfAttribution(
        tokens=trace.tokens,
        provenance=provenance(
            subject.name, "self_attribution", subject.revision, target=str(chosen), **used
        ),
        checks=_checks(found, subject.anatomy.parity, tolerance),
        scores=tuple(here.scores[0] for here in found),
        change=torch.cat([here.change for here in found]),
        gap=torch.cat([here.gap for here in found]),
        points=torch.cat([here.points for here in found]),
        target=str(chosen),
        sites=trace.sites,
        sequences={name: sequence.tokens for name, sequence in trace.sequences.items()},
    )


def chosen_target(trace: Trace, target: Target | str | int | None) -> Target:
    """The target asked for, checked against what the model answers."""
    if isinstance(target, Target):
        return _existing(target, trace.output.logits)
    if trace.subject.anatomy.answers == "tokens":
        return choose_target(trace, token=target)
    return choose_target(trace, label=target)


def _existing(target: Target, logits: Tensor) -> Target:
    width = logits.shape[-1]
    if not 0 <= target.index < width:
        raise BadRequestError(f"There is no answer {target.index}; the model has 0 to {width - 1}.")
    if logits.ndim == 2 and target.position is None:
        return target
    if logits.ndim == 2 or target.position is None:
        at = "gives one answer" if logits.ndim == 2 else "answers at every token"
        raise BadRequestError(f"The model {at}; a target at position {target.position} cannot be.")
    if not 0 <= target.position < logits.shape[1]:
        raise BadRequestError(
            f"There is no position {target.position}; the text has 0 to {logits.shape[1] - 1}."
        )
    return target


def _parameters(trace: Trace) -> Any:
    return inspect.signature(trace.subject.model.forward).parameters


def _answering_from(batch: Batch, target: Target) -> tuple[Batch, Target]:
    """The same question to a model that gives only the answers from the asked position on."""
    assert target.position is not None
    wanted = batch.real.shape[1] - target.position
    inputs = {**batch.inputs, "logits_to_keep": wanted}
    return replace(batch, inputs=inputs), replace(target, position=0)


def _checks(found: list[PathIntegral], parity: float, tolerance: float) -> dict[str, Any]:
    """How complete the attribution is, site by site where it is not."""
    share = torch.cat([here.gap / here.change.abs().clamp_min(ENOUGH) for here in found])
    short = [site for site, here in enumerate(found) if not bool(here.sure.all())]
    stuck = [site for site, here in enumerate(found) if bool(here.stuck.any())]
    checks: dict[str, Any] = {
        "parity": parity,
        "largest gap": float(torch.cat([here.gap for here in found]).amax()),
        "largest gap as a share of the change": float(share.amax()),
        "tolerance": tolerance,
        "most points": int(torch.cat([here.points for here in found]).amax()),
    }
    if short:
        checks["incomplete sites"] = tuple(short)
    if stuck:
        checks["completeness"] = (
            f"does not hold at sites {', '.join(map(str, stuck))}: the gap does not shrink with "
            "more points, as where the answer jumps (routing to experts)"
        )
    return checks
