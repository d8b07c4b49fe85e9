"""Which tasks go batch by batch, and what is kept of the answers?

Each class is a task of ``tasks.py`` for which a batch of texts of one length costs far less than
the texts one by one: its fields are the parameters that the batched form knows (with others, the
method itself is asked, text by text), ``prepared`` makes it ready for a model, and the question
then takes batches. Numbers of a layer or of a condition become short lists, in the order of the
layers.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from exhibit_a.corpus.findings import Findings, Lists, listed
from exhibit_a.corpus.plan import Plan
from exhibit_a.corpus.tasks import Question, Task, Texts, TextTask, answers, watched
from exhibit_a.errors import NotComputableError
from exhibit_a.methods.attribution.path_integral import Plan as Walk
from exhibit_a.methods.attribution.path_integral import attribute
from exhibit_a.methods.explanation.shuffling import Rerun, Shuffling, chosen_sites, conditions
from exhibit_a.methods.identifiability.batched import (
    EffectiveSummary,
    FreedomSummary,
    rank_deficient_sites,
)
from exhibit_a.methods.identifiability.projection import Convention
from exhibit_a.methods.mixing.batched import mixtures
from exhibit_a.numerics.precision import to_float64
from exhibit_a.shapes import HasLogits
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import require_distribution
from exhibit_a.trace.batches import run

TOGETHER = 256  # tokens of texts whose derivatives are taken together: more are no faster


class EffectiveTask(TextTask):
    """How much of every head's attention can reach the output."""

    name: ClassVar[str] = "effective_attention"
    can_be_dense: ClassVar[bool] = True
    simplex: bool = False
    rtol: float | None = Field(default=None, ge=0, lt=1)

    def prepared(self, subject: Subject, plan: Plan) -> Question:
        """Look at the output projections once."""
        return _Effective(self, subject, plan, rank_deficient_sites(subject))


@dataclass(frozen=True, eq=False)
class _Effective(Question):
    deficient: list[dict[int, Tensor]]

    def __call__(self, texts: Texts) -> Findings:
        convention = Convention(self.task.simplex, self.task.rtol)
        summary = EffectiveSummary(texts.special, self.deficient, convention, self.plan.dense)
        answer = watched(texts, summary)
        heads = {name: [site[name] for site in summary.numbers] for name in summary.numbers[0]}
        shown = ("null_fraction", "pearson", "identifiable")
        return Findings(
            answer | {f"mean_{name}": _over_heads(heads[name]) for name in shown},
            heads=heads,
            dense=_maps("effective", summary.maps, len(texts.inputs)),
        )


class IdentifiabilityTask(TextTask):
    """In how many ways every attention row could have been different, under four demands."""

    name: ClassVar[str] = "attention_identifiability"

    def prepared(self, subject: Subject, plan: Plan) -> Question:
        """Nothing to prepare."""
        return _Identifiability(self, subject, plan)


class _Identifiability(Question):
    def __call__(self, texts: Texts) -> Findings:
        summary = FreedomSummary()
        answer = watched(texts, summary)
        heads = {name: [site[name] for site in summary.numbers] for name in summary.numbers[0]}
        unique = {n: _over_heads(heads[n]) for n in heads if n.startswith("unique")}
        return Findings(answer | {f"mean_{n}": shares for n, shares in unique.items()}, heads=heads)


class HiddenTask(TextTask):
    """How much of every token is left in its hidden vector, layer by layer."""

    name: ClassVar[str] = "hidden_attribution"
    can_be_dense: ClassVar[bool] = True
    probes: int | None = Field(default=8, ge=2)

    def prepared(self, subject: Subject, plan: Plan) -> Question:
        """Nothing to prepare."""
        return _Hidden(self, subject, plan)


class _Hidden(Question):
    def __call__(self, texts: Texts) -> Findings:
        pushed, output = [], []
        for some in texts.split(TOGETHER):
            batch = run(some.subject, some.inputs)
            output.append(answers(some, batch.output))
            pushed.append(mixtures(batch, probes=self.task.probes, seed=self.plan.seed))
        lists = {
            "own_contribution": torch.cat([mixture.own for mixture in pushed]),
            "not_own_top": torch.cat([mixture.displaced for mixture in pushed]),
            "standard_error": torch.cat([mixture.doubt for mixture in pushed]),
        }
        gaps = [mixture.adjoint_gap for mixture in pushed for _ in range(len(mixture.contribution))]
        maps = (
            [torch.cat([mixture.contribution for mixture in pushed]).float()]
            if self.plan.dense
            else []
        )
        return Findings(
            _joined(output) | {"adjoint_gap": gaps},
            {name: listed(tensor) for name, tensor in lists.items()},
            dense=_maps("contribution", maps, len(texts.inputs)),
        )


class SelfTask(TextTask):
    """Which heads the answer rests on, by self-attention attribution of the model's own answer."""

    name: ClassVar[str] = "self_attribution"
    can_be_dense: ClassVar[bool] = True
    tolerance: float = Field(default=0.01, gt=0, lt=1)

    def prepared(self, subject: Subject, plan: Plan) -> Question:
        """Refuse a model without an answer to attribute."""
        kind = subject.anatomy.answers
        causal = subject.anatomy.sites[-1].causal
        if kind not in ("classes", "value") and not (kind == "tokens" and causal):
            raise NotComputableError(
                f"{type(subject.model).__name__} answers with {kind}, and one answer a text is "
                "needed. Load it with a classification head."
            )
        return _Self(self, subject, plan)


class _Self(Question):
    def __call__(self, texts: Texts) -> Findings:
        batch = run(texts.subject, texts.inputs)
        value = texts.subject.anatomy.answers == "value"
        own = texts.gold(batch.output)

        def answer(output: HasLogits, rows: Tensor) -> Tensor:
            return output.logits.float()[:, 0] if value else own.rows(rows).share(output)

        integrals = attribute(batch, answer, Walk(tolerance=self.task.tolerance))
        sites = [integral.scores for integral in integrals]
        heads = {
            "largest": [scores.amax((2, 3)) for scores in sites],
            "sum": [scores.sum((2, 3)) for scores in sites],
        }
        numbers = answers(texts, batch.output)
        numbers["largest_gap"] = listed(
            torch.stack([integral.gap for integral in integrals], 1).amax(1)
        )
        numbers["unsure_sites"] = listed(
            torch.stack([~integral.sure for integral in integrals], 1).sum(1)
        )
        lists = {
            name: listed(torch.stack([getattr(integral, name) for integral in integrals], 1))
            for name in ("change", "gap", "points")
        }
        maps = sites if self.plan.dense else []
        return Findings(numbers, lists, heads, _maps("scores", maps, len(texts.inputs)))


class PermutationTask(TextTask):
    """What shuffling attention does to each answer, at each site and at all of them together."""

    name: ClassVar[str] = "permutation"
    what: Literal["attention", "keys", "features"] = "attention"
    scope: Literal["row", "head", "example"] = "row"
    repeats: int = Field(default=20, ge=1)

    def prepared(self, subject: Subject, plan: Plan) -> Question:
        """Settle the sites; a model without a distribution is refused."""
        require_distribution(subject)
        scope = "head" if self.what != "attention" and self.scope == "row" else self.scope
        chosen = chosen_sites(subject, self.what, scope, None)
        return _Permutation(self, subject, plan, scope, conditions(chosen))


@dataclass(frozen=True, eq=False)
class _Permutation(Question):
    scope: str
    groups: list[frozenset[int]]

    def __call__(self, texts: Texts) -> Findings:
        batch = run(texts.subject, texts.inputs)
        count = len(texts.inputs)
        length = texts.special.shape[1]
        rerun = Rerun(
            batch, torch.full((count,), length), list(texts.numbers), texts.gold(batch.output)
        )
        change, flips, extreme = [], [], []
        for group in self.groups:
            plan = Shuffling(self.task.what, self.scope, group, self.plan.seed, length)
            moved, flipped, _ = rerun.measure(plan, self.task.repeats)
            change.append(to_float64(moved[:, :-1]).mean(1))
            flips.append(to_float64(flipped[:, :-1]).mean(1))
            extreme.append(to_float64(moved[:, -1]))
        lists = {"change": change, "flips": flips, "uniform_change": extreme}
        return Findings(
            answers(texts, batch.output),
            {name: listed(torch.stack(sites, 1)) for name, sites in lists.items()},
        )


def _over_heads(sites: list[Tensor]) -> list[float]:
    means: list[float] = listed(torch.cat([to_float64(site) for site in sites], 1).nanmean(1))
    return means


def _joined(batches: list[Lists]) -> Lists:
    return {name: [entry for batch in batches for entry in batch[name]] for name in batches[0]}


def _maps(name: str, sites: list[Tensor], count: int) -> list[dict[str, Tensor]]:
    """Each text's maps, by site; nothing where there are none."""
    if not sites:
        return []
    return [
        {f"{name}/{n}": scores[row].clone() for n, scores in enumerate(sites)}
        for row in range(count)
    ]


BATCHED: dict[str, type[Task]] = {
    kind.name: kind
    for kind in (EffectiveTask, IdentifiabilityTask, HiddenTask, SelfTask, PermutationTask)
}
