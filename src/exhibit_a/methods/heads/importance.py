"""Which heads does the model need for this task?

Four answers, each a number for every head, averaged over labelled examples x (for a language model,
examples with the answer that it is to give, ``trace/answers.py``):

attribution  E max Attr_h for the gold class (Hao et al., 2021): the strongest edge of the head; for
             a gold answer, of its log-probability;
taylor       E |⟨A_h, ∂L/∂A_h⟩| on the loss L (Michel et al., 2019), = |⟨C_h, ∂L/∂C_h⟩| on contexts,
             the absolute value taken for each example and padding left out;
ablation     how much accuracy is lost, and loss gained, when only this head is silenced;
attention    E of the mean row maximum: how sure the head is of where it looks. (The mean score of
             a row of n probabilities is 1/n for every head, so it cannot rank anything.)

Examples of similar length run together, and a replay without a head starts at the head's layer.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.examples import Example, fingerprint, read_examples
from exhibit_a.examples.labels import limited
from exhibit_a.methods.attribution.path_integral import WALK, PathPlan, attribute
from exhibit_a.methods.registry import method
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.progress import Progress
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import HasLogits, Scores
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.answers import Gold, gold_of_examples, prompt_of, require_distribution
from exhibit_a.trace.batches import (
    Batch,
    KeptHeads,
    RowIndex,
    Source,
    grouped,
    run,
    stand_alone,
)
from exhibit_a.trace.edits import ContextGradients
from exhibit_a.trace.replay import replay

Measure = Literal["attribution", "taylor", "ablation", "attention"]

HeadTable = Float[Tensor, "site head"]
HeadTables = Float[Tensor, "example site head"]
Checks = dict[str, float]

COPIED_TOKENS = 4096  # in one replay without a backward pass


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadImportance(Result):
    """How much every head matters, by one measure. What a site does not have is NaN."""

    scores: HeadTable  # of each head, larger for what is needed more
    standard_error: HeadTable  # over the examples
    details: dict[str, HeadTable]  # the same heads by related measures
    measure: str
    examples: int
    used: tuple[str, ...]  # fingerprints of the examples, so that they are not evaluated on
    sites: tuple[Site, ...]

    @property
    def ranking(self) -> list[tuple[int, int]]:
        """All (site, head), the least important first; the change of the loss breaks ties."""
        tie_breakers = [table for name, table in self.details.items() if name == "loss"]
        keys = torch.stack([self.scores, *tie_breakers]).nan_to_num(0).flatten(1).tolist()
        heads = self.scores.shape[1]
        places = self.scores.isfinite().flatten().nonzero().flatten().tolist()
        order = sorted(places, key=lambda place: tuple(key[place] for key in keys))
        return [divmod(place, heads) for place in order]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadSimilarity(Result):
    """Whether two tasks need the same heads."""

    first: HeadTable  # importance for the first task
    second: HeadTable  # importance for the second
    pearson: float
    interval: tuple[float, float]  # of the correlation, 95 %
    spearman: float
    names: tuple[str, str]


@method(
    question="Which heads does the model need?",
    needs=("distribution",),
    cost=WALK,
    command="heads",
)
def head_importance(
    subject: Subject,
    examples: Source,
    *,
    by: Measure = "attribution",
    limit: int | None = None,
    tolerance: float = 0.01,
    progress: Progress | None = None,
) -> HeadImportance:
    """Rank the heads of a classifier on labelled examples, or of a language model on answers.

    >>> importance = xa.head_importance(subject, examples[:4], by="taylor")
    >>> tuple(importance.scores.shape), len(importance.ranking)
    ((6, 12), 72)
    >>> importance.ranking[-1]  # the most important head, as (site, head)
    (3, 9)

    Args:
        by: the measure: attribution, taylor, ablation or attention.
        limit: how many examples are used at most, from the first on.
        tolerance: the gap that attribution allows, as a share of what a site changes.
        progress: is called with the number of examples done, and of how many.
    """
    data = limited(read_examples(examples), limit)
    tables, checks = importance_by_example(
        subject, data, by=by, tolerance=tolerance, progress=progress
    )
    scores = tables[next(iter(tables))]
    spread = scores.std(0) if len(data) > 1 else torch.full_like(scores[0], torch.nan)
    return build_result(
        HeadImportance,
        subject,
        "head_importance",
        settings={"by": by, "limit": limit, "tolerance": tolerance},
        checks={"examples": len(data), **checks},
        scores=scores.mean(0),
        standard_error=spread / len(data) ** 0.5,
        details={name: table.mean(0) for name, table in tables.items()},
        measure=by,
        examples=len(data),
        used=tuple(fingerprint(example) for example in data),
        sites=subject.anatomy.sites,
    )


def head_similarity(
    first: HeadImportance, second: HeadImportance, *, names: tuple[str, str] = ("first", "second")
) -> HeadSimilarity:
    """Compare the importance of the same heads on two data sets.

    >>> first, second = (xa.head_importance(subject, half, by="taylor") for half in
    ...                  (examples[:4], examples[4:]))
    >>> similarity = xa.head_similarity(first, second, names=("first half", "second half"))
    >>> round(similarity.pearson, 2)
    0.4
    >>> similarity.interval[0] < similarity.pearson < similarity.interval[1]
    True

    Args:
        first: the importance on one data set.
        second: the importance on another, of the same model.
        names: what the data sets are called.
    """
    if first.scores.shape != second.scores.shape:
        raise BadRequestError(
            f"Heads of {tuple(first.scores.shape)} and {tuple(second.scores.shape)} are not the "
            "same heads; compare two data sets on one model."
        )
    heads = first.scores.isfinite()
    left, right = (table.scores[heads].numpy(force=True) for table in (first, second))
    if len(left) < 4 or left.std() == 0 or right.std() == 0:
        raise NotComputableError("A correlation needs at least 4 heads that differ.")
    from scipy import stats  # only here: a page that shows heads need not wait for it

    correlation = stats.pearsonr(left, right)
    low, high = correlation.confidence_interval(0.95)
    return HeadSimilarity(
        provenance=provenance(
            first.provenance.model,
            "head_similarity",
            by=[first.measure, second.measure],
            names=list(names),
        ),
        checks={"p value": float(correlation.pvalue), "heads": len(left)},
        first=first.scores,
        second=second.scores,
        pearson=float(correlation.statistic),
        interval=(float(low), float(high)),
        spearman=float(stats.spearmanr(left, right).statistic),
        names=names,
    )


def importance_by_example(
    subject: Subject,
    examples: Sequence[Example],
    *,
    by: str,
    tolerance: float = 0.01,
    progress: Progress | None = None,
) -> tuple[dict[str, HeadTables], Checks]:
    """Tables of heads for every example, the main measure first, and checks of them."""
    require_choice("measure", by, MEASURES)
    require_distribution(subject)
    prompts = [prompt_of(subject, example, truncate=True) for example in examples]
    gold, inputs = gold_of_examples(subject, examples, prompts), [p.inputs for p in prompts]
    measure = MEASURES[by](tolerance)
    tables: dict[str, Tensor] = {}
    for group in grouped(inputs, alone=stand_alone(subject), progress=progress):
        batch = run(subject, [inputs[place] for place in group])
        for name, rows in measure(batch, gold.rows(torch.tensor(group))).items():
            table = rows.new_full((len(examples), *rows.shape[1:]), torch.nan)
            tables.setdefault(name, table)[group] = rows
    return tables, measure.checks()


class _Measure(ABC):
    """One way to weigh heads, batch by batch."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance

    @abstractmethod
    def __call__(self, batch: Batch, gold: Gold) -> dict[str, HeadTables]:
        """Tables for every row, by name; the first is the measure, the others are related."""

    def checks(self) -> Checks:
        """How far all tables so far can be trusted."""
        return {}


class _Attribution(_Measure):
    def __init__(self, tolerance: float) -> None:
        super().__init__(tolerance)
        self.shares: list[Tensor] = []
        self.points: list[Tensor] = []

    def __call__(self, batch: Batch, gold: Gold) -> dict[str, Tensor]:
        """The largest entry and the sum of entries."""

        def answer(output: HasLogits, rows: RowIndex) -> Scores:
            return gold.rows(rows).share(output)

        largest, sums = [], []
        for site, integral in enumerate(
            attribute(batch, answer, PathPlan(tolerance=self.tolerance))
        ):
            real = batch.real_queries(site)[:, :, None] & batch.real_keys(site)[:, None]
            largest.append(integral.scores.masked_fill(~real[:, None], -torch.inf).amax((2, 3)))
            sums.append(integral.scores.sum((2, 3)))
            self.shares.append(integral.share)
            self.points.append(integral.points)
        return {"maximum": _table(largest), "sum": _table(sums)}

    def checks(self) -> Checks:
        """How complete the attributions are."""
        shares, points = torch.cat(self.shares), torch.cat(self.points)
        return {
            "median gap as a share of the change": float(shares.median()),
            "largest gap as a share of the change": float(shares.amax()),
            "mean points": float(points.float().mean()),
            "most points": int(points.amax()),
            "tolerance": self.tolerance,
        }


class _Taylor(_Measure):
    def __call__(self, batch: Batch, gold: Gold) -> dict[str, Tensor]:
        """What the loss would gain without each head, to first order."""
        batch.subject.require_gradients()
        edit = ContextGradients()
        with torch.enable_grad():
            _, losses = gold.right_and_loss(replay(batch, edit, start=0))
            gradients = torch.autograd.grad(losses.sum(), edit.nudges, materialize_grads=True)
        changes = []
        for site, (gradient, context) in enumerate(zip(gradients, edit.seen, strict=True)):
            real = batch.real_queries(site)[:, None, :, None]
            changes.append(
                (at_least_float32(gradient) * at_least_float32(context) * real).sum((2, 3)).abs()
            )
        return {"loss change": _table(changes)}


class _Ablation(_Measure):
    @torch.no_grad()
    def __call__(self, batch: Batch, gold: Gold) -> dict[str, Tensor]:
        """What accuracy loses and the loss gains without each head."""
        sites = batch.sites
        most = max(site.heads for site in sites)
        device = batch.real.device
        right, loss = gold.right_and_loss(batch.output)
        together = max(1, COPIED_TOKENS // batch.real.shape[1])
        accuracy, losses = [], []
        read = rows_read(batch, lambda output: gold.right_and_loss(output)[1])
        for site in sites:
            rows = torch.arange(len(batch), device=device).repeat_interleave(site.heads)
            dropped = torch.arange(site.heads, device=device).repeat(len(batch))
            pieces = []
            for chunk in torch.split(torch.arange(len(rows)), together):
                kept = torch.ones(len(chunk), len(sites), most, device=device)
                kept[torch.arange(len(chunk)), site.index, dropped[chunk]] = 0
                output = replay(batch.rows(rows[chunk]), KeptHeads(kept), read=read)
                pieces.append(torch.stack(gold.rows(rows[chunk]).right_and_loss(output)))
            still_right, larger_loss = torch.cat(pieces, 1).reshape(2, len(batch), site.heads)
            accuracy.append(right.unsqueeze(1) - still_right)
            losses.append(larger_loss - loss.unsqueeze(1))
        return {"accuracy": _table(accuracy), "loss": _table(losses)}


class _Attention(_Measure):
    def __call__(self, batch: Batch, gold: Gold) -> dict[str, Tensor]:  # noqa: ARG002
        """The mean row maximum and the mean entry."""
        maxima, means = [], []
        for site, attention in enumerate(batch.attention):
            real = batch.real_queries(site)[:, None]
            rows = at_least_float32(attention)
            count, keys = real.sum(-1), batch.real_keys(site).sum(-1)[:, None]
            maxima.append((rows.amax(-1) * real).sum(-1) / count)
            means.append((rows.sum(-1) * real).sum(-1) / (count * keys))
        return {"row maximum": _table(maxima), "mean": _table(means)}


MEASURES: dict[str, type[_Measure]] = {
    "attribution": _Attribution,
    "taylor": _Taylor,
    "ablation": _Ablation,
    "attention": _Attention,
}


def _table(sites: list[Float[Tensor, "row _head"]]) -> HeadTables:
    """One table for each row; a site with fewer heads than others has NaN there."""
    most = max(site.shape[1] for site in sites)
    pad = torch.nn.functional.pad
    return torch.stack(
        [pad(heads.float(), (0, most - heads.shape[1]), value=torch.nan) for heads in sites], 1
    )
