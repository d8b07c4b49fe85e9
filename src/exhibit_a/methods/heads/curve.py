"""Measures what a model answers without its least or most important heads, and what that saves.

Heads are silenced in the order of their importance, without retraining, and accuracy is measured
on examples that had no part in the ranking. A good ranking keeps accuracy longest when the least
important heads go first, and loses it soonest when the most important ones do.

``pruning_curve`` uses one ranking for the whole data set, over all heads or within each site.
``effectiveness`` is the stricter protocol of Hao et al. (2021, §4.1): every example has a ranking
of its own within each site, and the same number of heads is silenced in every site.

``measure_pruning`` compares a model with one whose heads are removed for good (``removal.py``):
both run over the same examples, in turn, so that a busy machine slows both. It gives weights and
time before and after, and the largest difference from the model with the same heads silenced.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.examples import Example, fingerprint, read_examples
from exhibit_a.examples.labels import classes_of, limited
from exhibit_a.methods.heads.importance import (
    Checks,
    HeadImportance,
    HeadTable,
    Measure,
    importance_by_example,
)
from exhibit_a.methods.heads.removal import Heads, off_by, silenced_answer
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.intervals import wilson
from exhibit_a.progress import Progress
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.results.tables import record_table
from exhibit_a.shapes import Inputs, Options
from exhibit_a.subject.guard import frozen_eval, method_modes, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import logits_at, right_and_loss
from exhibit_a.trace.batches import KeptHeads, Source, encoded, kept_but, padded_groups

if TYPE_CHECKING:
    import pandas

TENTHS = tuple(tenth / 10 for tenth in range(11))
Order = Literal["least", "most"]
PruningScope = Literal["global", "site"]

Head = tuple[int, int]  # site and head
Kept = Float[Tensor, "#example site head"]  # 1 or 0; one row stands for all examples


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PruningCurve(Result):
    """Accuracy as heads are silenced, with 95 % intervals."""

    fraction: Float[Tensor, " point"]  # of the heads
    removed: Int[Tensor, " point"]  # how many heads
    accuracy: Float[Tensor, " point"]  # without them
    interval: Float[Tensor, "point bound"]  # 95 %
    loss: Float[Tensor, " point"]  # cross-entropy without them
    order: str
    measure: str  # that ranked the heads

    @property
    def area(self) -> float:
        """Mean accuracy along the curve: high is good least-first, low is good most-first."""
        return float(
            torch.trapezoid(self.accuracy, self.fraction) / (self.fraction[-1] - self.fraction[0])
        )


@method(
    question="How many heads can go before the answers go with them?",
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

    >>> importance = xa.head_importance(subject, examples[:4], by="taylor")
    >>> curve = xa.pruning_curve(subject, examples[4:], importance, fractions=[0, 0.5, 1])
    >>> curve.removed.tolist(), curve.accuracy.tolist()
    ([0, 36, 72], [1.0, 1.0, 0.5])
    >>> xa.pruning_curve(subject, examples[4:], torch.rand(6, 12), counts=[3], scope="site").measure
    'a given table'

    Args:
        importance: the importance of the heads, or any table with a number for every site and head.
        order: which heads are silenced first, the least or the most important.
        fractions: the shares of all heads to silence; without, every tenth from 0 to 1.
        counts: how many heads to silence, instead of fractions.
        scope: rank all heads together (global), or silence the same share of every site (site).
        overlap: also judge by examples that the importance was measured on.
    """
    data = read_examples(examples)
    # All heads, least important first, by which measure, and on which examples.
    sites = subject.anatomy.sites
    scores = importance.scores if isinstance(importance, HeadImportance) else importance
    if tuple(scores.shape) != (len(sites), max(site.heads for site in sites)):
        raise BadRequestError(
            f"The importance is for {tuple(scores.shape)} sites and heads; this model has "
            f"{len(sites)} sites of up to {max(site.heads for site in sites)} heads."
        )
    if isinstance(importance, HeadImportance):
        ranking, by, used = importance.ranking, importance.measure, set(importance.used)
    else:
        heads = [(site.index, head) for site in sites for head in range(site.heads)]
        ranking = sorted(heads, key=lambda head: float(importance[head]))
        by, used = "a given table", set()
    unseen = [example for example in data if overlap or fingerprint(example) not in used]
    if not unseen:
        raise BadRequestError(
            f"All {len(data)} examples were used to rank the heads. Evaluate on others, or say "
            "overlap=True."
        )
    points = [
        _Point(count, kept_but(subject, first_heads(ranking, count, order, scope)))
        for count in _steps(len(ranking), fractions, counts)
    ]
    settings = {"order": order, "by": by, "scope": scope, "overlap": overlap}
    checks: Checks = {"left out": len(data) - len(unseen)}
    return _curve(subject, unseen, points, "pruning_curve", settings, checks)


@method(
    question="Does a ranking of each example's own find the heads it needs?",
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
    """Silence the same number of heads in every layer, ranked for each example by itself.

    The ranking looks at the gold label, so this measures the ranking, not a model to be used.

    >>> curve = xa.effectiveness(subject, examples[:4], by="attention", counts=[0, 6, 12])
    >>> curve.removed.tolist()
    [0, 36, 72]
    >>> curve.accuracy[0] >= curve.accuracy[2]
    tensor(True)

    Args:
        by: the measure that ranks heads: attribution, taylor, ablation or attention.
        order: which heads are silenced first, the least or the most important.
        counts: how many heads of every site to silence; without, every number there is.
        limit: how many examples are used at most, from the first on.
        progress: is called with the number of examples done, and of how many.
    """
    data = limited(read_examples(examples), limit)
    tables, checks = importance_by_example(subject, data, by=by, progress=progress)
    table = next(iter(tables.values()))
    most = max(site.heads for site in subject.anatomy.sites)
    steps = list(range(most + 1)) if counts is None else sorted(counts)
    if min(steps) < 0 or max(steps) > most:
        raise BadRequestError(
            f"A site has {most} heads at most; cannot silence {max(steps)} of them."
        )
    last = torch.inf if order == "least" else -torch.inf
    place = table.nan_to_num(last).argsort(-1, descending=order == "most").argsort(-1)
    sites = len(subject.anatomy.sites)
    points = [_Point(count * sites, (place >= count).float()) for count in steps]
    settings = {"order": order, "by": by}
    return _curve(subject, data, points, "effectiveness", settings, checks)


def check_request(order: str, scope: str) -> None:
    """Refuse an order or a scope that does not exist; cheap enough to check before any ranking."""
    require_choice("order", order, get_args(Order))
    require_choice("scope", scope, get_args(PruningScope))


def first_heads(
    ranking: list[Head], count: int, order: str = "least", scope: str = "global"
) -> list[Head]:
    """The heads to silence: the first of all, or the same share of the first of every site."""
    ranking = ranking if order == "least" else ranking[::-1]
    if scope == "global":
        return ranking[:count]
    sites: dict[int, list[Head]] = {}
    for site, head in ranking:
        sites.setdefault(site, []).append((site, head))
    share = count / len(ranking)
    return [head for heads in sites.values() for head in heads[: round(share * len(heads))]]


@dataclass(frozen=True, eq=False)
class _Point:
    """One point of a curve: how many heads are silenced, and which are kept."""

    removed: int
    kept: Kept


def _curve(
    subject: Subject,
    examples: list[Example],
    points: list[_Point],
    name: str,
    settings: Options,
    checks: Checks,
) -> PruningCurve:
    """Accuracy and loss at every point."""
    right, loss = _measured(subject, examples, [point.kept for point in points])
    heads = sum(site.heads for site in subject.anatomy.sites)
    removed = torch.tensor([point.removed for point in points])
    return build_result(
        PruningCurve,
        subject,
        name,
        settings=settings,
        checks={"examples": len(examples), **checks},
        fraction=removed.float() / heads,
        removed=removed,
        accuracy=right.mean(1),
        interval=wilson(right.mean(1), len(examples)),
        loss=loss.mean(1),
        order=settings["order"],
        measure=settings["by"],
    )


@torch.no_grad()
def _measured(
    subject: Subject, examples: list[Example], masks: list[Kept]
) -> tuple[Float[Tensor, "point example"], Float[Tensor, "point example"]]:
    """Whether every example is right under every mask, and its loss."""
    gold, inputs, model = classes_of(subject, examples), encoded(subject, examples), subject.model
    measured = torch.zeros(2, len(masks), len(examples))
    with frozen_eval(model):
        for group, batch in padded_groups(subject, inputs):
            together = without_cache(model, batch)
            for point, mask in enumerate(masks):
                with subject.tapping(KeptHeads(mask if len(mask) == 1 else mask[group])):
                    logits = logits_at(model(**together))
                measured[:, point, group] = torch.stack(right_and_loss(logits, gold[group])).cpu()
    right, loss = measured
    return right, loss


def _steps(
    heads: int, fractions: Sequence[float] | None, counts: Sequence[int] | None
) -> list[int]:
    """How many heads are silenced at each point."""
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Pruning(Result):
    """What removing heads saved: weights, time, and how exactly the answers are kept."""

    heads: tuple[tuple[int, int], ...]
    parameters: tuple[int, int]  # before and after
    seconds: tuple[float, float]  # for one pass over the examples, the best of several
    difference: float  # largest, between the answers of the silenced and the pruned model
    saves: bool
    columns: ClassVar[dict[str, str]] = {
        "model": "as it was, or without the heads",
        "parameters": "numbers in its weights",
        "seconds": "for one pass over the examples, the best of several",
    }

    @property
    def speed_up(self) -> float:
        """How many times faster the pruned model is."""
        return self.seconds[0] / self.seconds[1]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for the model as it was, and one for the model without the heads."""
        names = ("as it was", "without the heads")
        measured = zip(names, self.parameters, self.seconds, strict=True)
        return record_table([dict(zip(self.columns, row, strict=True)) for row in measured])


@method_modes()
def measure_pruning(
    subject: Subject, pruned: Subject, heads: Heads, examples: Source, *, repeats: int = 5
) -> Pruning:
    """Compare a pruned model with the one it came from, on some examples.

    >>> heads = [(site, head) for site in range(6) for head in range(6)]
    >>> smaller = xa.prune(subject, heads)
    >>> pruning = xa.measure_pruning(subject, smaller, heads, examples[:4], repeats=1)
    >>> pruning.parameters[1] < pruning.parameters[0], pruning.difference < 1e-4
    (True, True)
    >>> pruning.heads[:2]
    ((0, 0), (0, 1))

    Args:
        pruned: the smaller model.
        heads: the heads that were removed, as pairs of site and head.
        repeats: how often each model is timed; the best time counts.
    """
    removed = tuple(sorted(set(heads)))
    inputs = encoded(subject, read_examples(examples))
    batches = [batch for _, batch in padded_groups(subject, inputs)]
    worst = max(
        off_by(pruned, batch, silenced_answer(subject, batch, removed)) for batch in batches
    )
    models = (subject, pruned)
    seconds = [torch.inf, torch.inf]
    for _ in range(repeats):  # in turn, so that a busy machine slows both
        for place, each in enumerate(models):
            seconds[place] = min(seconds[place], _seconds(each, batches))
    counts = [sum(weight.numel() for weight in each.model.parameters()) for each in models]
    return build_result(
        Pruning,
        subject,
        "prune",
        settings={"heads": list(map(list, removed))},
        checks={
            "difference from the silenced model": worst,
            "examples": len(inputs),
            "repeats": repeats,
            "threads": torch.get_num_threads(),
        },
        heads=removed,
        parameters=(counts[0], counts[1]),
        seconds=(seconds[0], seconds[1]),
        difference=worst,
        saves="save_pretrained" not in vars(pruned.model),
    )


@torch.no_grad()
def _seconds(subject: Subject, batches: Sequence[Inputs]) -> float:
    """How long one pass takes, by the model's own fastest attention."""
    model, start = subject.model, time.perf_counter()
    with frozen_eval(model):
        for inputs in batches:
            model(**without_cache(model, inputs))
    return time.perf_counter() - start
