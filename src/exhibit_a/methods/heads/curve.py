"""How many heads can go before the answers go with them?

Heads are silenced in the order of their importance, without retraining, and accuracy is measured
on examples that had no part in the ranking. A good ranking keeps accuracy longest when the least
important heads go first, and loses it soonest when the most important ones do.

``pruning_curve`` uses one ranking for the whole data set, over all heads or within each site.
``effectiveness`` is the stricter protocol of Hao et al. (2021, §4.1): every example has a ranking
of its own within each site, and the same number of heads goes from every site.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.examples import Example, fingerprint, read_examples
from exhibit_a.examples.labels import classes_of, limited
from exhibit_a.methods.heads.importance import (
    HeadImportance,
    HeadTable,
    Measure,
    importance_by_example,
)
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.intervals import wilson
from exhibit_a.progress import Progress
from exhibit_a.results.result import Result
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.batches import KeptHeads, Source, encoded, grouped, padded, stand_alone

TENTHS = tuple(tenth / 10 for tenth in range(11))
Order = Literal["least", "most"]
PruningScope = Literal["global", "site"]

Kept = Float[Tensor, "#example site head"]  # 1 or 0; one row stands for all examples


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PruningCurve(Result):
    """Accuracy as heads are silenced, with 95 % intervals."""

    fraction: Float[Tensor, " point"]
    removed: Int[Tensor, " point"]  # how many heads
    accuracy: Float[Tensor, " point"]
    interval: Float[Tensor, "point bound"]
    loss: Float[Tensor, " point"]
    order: str
    by: str

    @property
    def area(self) -> float:
        """Mean accuracy along the curve: high is good least-first, low is good most-first."""
        return float(
            torch.trapezoid(self.accuracy, self.fraction) / (self.fraction[-1] - self.fraction[0])
        )


@method(
    question="How many heads can go before the answers go with them?",
    room="heads",
    needs=("classes",),
    cost=Cost(forwards=11),
    command="prune",
)
def pruning_curve(
    subject: Subject,
    examples: Source,
    importance: HeadImportance | HeadTable,
    *,
    order: Order = "least",
    fractions: Sequence[float] | None = None,
    counts: Sequence[int] | None = None,
    scope: PruningScope = "global",
    overlap: bool = False,
) -> PruningCurve:
    """Measure accuracy while heads are silenced by importance.

    ``fractions`` of all heads, or ``counts`` of them, go in ``order`` ("least" or "most" important
    first); with ``scope="site"`` every site loses its share. Examples that the importance was
    measured on are left out unless ``overlap``.
    """
    every = read_examples(examples)
    ranking, by, used = _ranking(subject, importance)
    some = [one for one in every if overlap or fingerprint(one) not in used]
    if not some:
        raise BadRequestError(
            f"All {len(every)} examples were used to rank the heads. Evaluate on others, or say "
            "overlap=True."
        )
    steps = _steps(len(ranking), fractions, counts)
    keeps = [_kept(subject, first_heads(ranking, step, order, scope)) for step in steps]
    settings: dict[str, Any] = {"order": order, "by": by, "scope": scope, "overlap": overlap}
    return _curve(
        subject, some, keeps, steps, "pruning_curve", settings, {"left out": len(every) - len(some)}
    )


@method(
    question="Does a ranking of each example's own find the heads it needs?",
    room="heads",
    needs=("classes",),
    cost=Cost(forwards=13, per_layer=3.6, backwards=True, maps=1),
)
def effectiveness(
    subject: Subject,
    examples: Source,
    *,
    by: Measure = "attribution",
    order: Order = "most",
    counts: Sequence[int] | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> PruningCurve:
    """Silence the same number of heads in every site, in an order of each example's own.

    The ranking looks at the gold label, so this measures the ranking, not a model to be used.
    """
    some = limited(read_examples(examples), limit)
    tables, doubts = importance_by_example(subject, some, by=by, progress=progress)
    table = next(iter(tables.values()))
    most = max(site.heads for site in subject.anatomy.sites)
    steps = list(range(most + 1)) if counts is None else sorted(counts)
    if min(steps) < 0 or max(steps) > most:
        raise BadRequestError(
            f"A site has {most} heads at most; cannot silence {max(steps)} of them."
        )
    last = torch.inf if order == "least" else -torch.inf
    place = table.nan_to_num(last).argsort(-1, descending=order == "most").argsort(-1)
    keeps = [(place >= count).float() for count in steps]
    sites = len(subject.anatomy.sites)
    settings: dict[str, Any] = {"order": order, "by": by}
    return _curve(
        subject, some, keeps, [n * sites for n in steps], "effectiveness", settings, doubts
    )


def check_request(order: str, scope: str) -> None:
    """Refuse an order or a scope that does not exist; cheap enough to ask before any ranking."""
    require_choice("order", order, get_args(Order))
    require_choice("scope", scope, get_args(PruningScope))


def first_heads(
    ranking: list[tuple[int, int]], count: int, order: str = "least", scope: str = "global"
) -> list[tuple[int, int]]:
    """The heads that go: the first of all, or the same share of the first of every site."""
    ranking = ranking if order == "least" else ranking[::-1]
    if scope == "global":
        return ranking[:count]
    sites: dict[int, list[tuple[int, int]]] = {}
    for at in ranking:
        sites.setdefault(at[0], []).append(at)
    share = count / len(ranking)
    return [at for own in sites.values() for at in own[: round(share * len(own))]]


def _curve(
    subject: Subject,
    examples: list[Example],
    keeps: list[Kept],
    removed: list[int],
    method: str,
    settings: dict[str, Any],
    checks: dict[str, Any],
) -> PruningCurve:
    """Accuracy and loss under every mask."""
    right, loss = _measured(subject, examples, keeps)
    heads = sum(site.heads for site in subject.anatomy.sites)
    count = len(examples)
    return PruningCurve(
        provenance=provenance(subject.name, method, subject.revision, **settings),
        checks={"parity": subject.anatomy.parity, "examples": count, **checks},
        fraction=torch.tensor(removed, dtype=torch.float32) / heads,
        removed=torch.tensor(removed),
        accuracy=right.mean(1),
        interval=wilson(right.mean(1), count),
        loss=loss.mean(1),
        order=settings["order"],
        by=settings["by"],
    )


@torch.no_grad()
def _measured(
    subject: Subject, examples: list[Example], keeps: list[Kept]
) -> tuple[Float[Tensor, "point example"], Float[Tensor, "point example"]]:
    """Whether every example is right under every mask, and its loss."""
    gold, inputs, model = classes_of(subject, examples), encoded(subject, examples), subject.model
    right = torch.zeros(len(keeps), len(examples))
    loss = torch.zeros(len(keeps), len(examples))
    with frozen_eval(model):
        for group in grouped(inputs, alone=stand_alone(subject)):
            together = without_cache(model, padded(subject, [inputs[place] for place in group]))
            for point, keep in enumerate(keeps):
                own = keep if len(keep) == 1 else keep[group]
                with subject.tapping(KeptHeads(own)):
                    logits = model(**together).logits.float()
                right[point, group] = (logits.argmax(-1) == gold[group]).float().cpu()
                loss[point, group] = torch.nn.functional.cross_entropy(
                    logits, gold[group], reduction="none"
                ).cpu()
    return right, loss


def _ranking(
    subject: Subject, importance: HeadImportance | HeadTable
) -> tuple[list[tuple[int, int]], str, set[str]]:
    """All heads, least important first, by what, and the examples that said so."""
    sites = subject.anatomy.sites
    scores = importance.scores if isinstance(importance, HeadImportance) else importance
    if tuple(scores.shape) != (len(sites), max(site.heads for site in sites)):
        raise BadRequestError(
            f"The importance is for {tuple(scores.shape)} sites and heads; this model has "
            f"{len(sites)} sites of up to {max(site.heads for site in sites)} heads."
        )
    if isinstance(importance, HeadImportance):
        return importance.ranking, importance.by, set(importance.used)
    there = [(site.index, head) for site in sites for head in range(site.heads)]
    return sorted(there, key=lambda at: float(importance[at])), "a given table", set()


def _steps(
    heads: int, fractions: Sequence[float] | None, counts: Sequence[int] | None
) -> list[int]:
    """How many heads go at each point."""
    if fractions is not None and counts is not None:
        raise BadRequestError("Give fractions or counts, not both.")
    if counts is None:
        fractions = TENTHS if fractions is None else fractions
        if not all(0 <= share <= 1 for share in fractions):
            raise BadRequestError(f"Fractions lie between 0 and 1, unlike {list(fractions)}.")
        counts = [math.floor(share * heads + 1e-9) for share in fractions]
    if not counts or not all(0 <= count <= heads for count in counts):
        raise BadRequestError(f"This model has {heads} heads; cannot silence {list(counts)}.")
    return sorted(counts)


def _kept(subject: Subject, gone: list[tuple[int, int]]) -> Kept:
    sites = subject.anatomy.sites
    kept = torch.ones(1, len(sites), max(site.heads for site in sites), device=subject.device)
    for site, head in gone:
        kept[0, site, head] = 0
    return kept
