"""Which heads does the model need for this task?

Four answers, each a number for every head, averaged over labelled examples x:

attribution  E max Attr_h for the gold class (Hao et al., 2021): the strongest edge of the head;
taylor       E |⟨A_h, ∂L/∂A_h⟩| on the loss L (Michel et al., 2019), = |⟨C_h, ∂L/∂C_h⟩| on contexts,
             the absolute value taken for each example and padding left out;
ablation     how much accuracy is lost, and loss gained, when only this head is silenced;
attention    E of the mean row maximum: how sure the head is of where it looks. (The mean score of
             a row of n probabilities is 1/n for every head, so it cannot rank anything.)

Examples of similar length run together, and every head is tried from its own layer on.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.examples import Example, fingerprint, read_examples
from exhibit_a.examples.labels import classes_of, limited
from exhibit_a.methods.attribution.path_integral import ENOUGH, attribute_classes, wide
from exhibit_a.methods.registry import Cost, method
from exhibit_a.progress import Progress
from exhibit_a.results.result import Result
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.batches import Batch, KeptHeads, Source, encoded, grouped, run, stand_alone
from exhibit_a.trace.edits import Nudge
from exhibit_a.trace.replay import replay

Measure = Literal["attribution", "taylor", "ablation", "attention"]

HeadTable = Float[Tensor, "site head"]
HeadTables = Float[Tensor, "example site head"]

COPIED_TOKENS = 4096  # in one replay without a way back


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadImportance(Result):
    """How much every head matters, by one measure. What a site does not have is NaN."""

    scores: HeadTable
    standard_error: HeadTable
    details: dict[str, HeadTable]  # the same heads by kindred measures
    by: str
    examples: int
    used: tuple[str, ...]  # fingerprints of the examples, so that they are not evaluated on
    sites: tuple[Site, ...]

    @property
    def ranking(self) -> list[tuple[int, int]]:
        """All (site, head), the least important first; kindred measures break ties."""
        kindred = [table for name, table in self.details.items() if name == "loss"]
        keys = torch.stack([self.scores, *kindred]).nan_to_num(0).flatten(1).tolist()
        heads = self.scores.shape[1]
        there = self.scores.isfinite().flatten().nonzero().flatten().tolist()
        order = sorted(there, key=lambda place: tuple(key[place] for key in keys))
        return [divmod(place, heads) for place in order]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadSimilarity(Result):
    """Whether two tasks need the same heads."""

    first: HeadTable
    second: HeadTable
    pearson: float
    interval: tuple[float, float]  # of the correlation, 95 %
    spearman: float
    names: tuple[str, str]


@method(
    question="Which heads does the model need?",
    room="heads",
    needs=("classes",),
    cost=Cost(forwards=1, per_layer=3.6, backwards=True, maps=1),
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
    """Rank the heads of a classifier on labelled examples, at most the first ``limit`` of them.

    ``progress`` is told how many examples are done, and of how many.
    """
    some = limited(read_examples(examples), limit)
    tables, doubts = importance_by_example(
        subject, some, by=by, tolerance=tolerance, progress=progress
    )
    main = tables[next(iter(tables))]
    spread = main.std(0) if len(some) > 1 else torch.full_like(main[0], torch.nan)
    used: dict[str, Any] = {"by": by, "limit": limit, "tolerance": tolerance}
    return HeadImportance(
        provenance=provenance(subject.name, "head_importance", subject.revision, **used),
        checks={"parity": subject.anatomy.parity, "examples": len(some), **doubts},
        scores=main.mean(0),
        standard_error=spread / len(some) ** 0.5,
        details={name: table.mean(0) for name, table in tables.items()},
        by=by,
        examples=len(some),
        used=tuple(fingerprint(one) for one in some),
        sites=subject.anatomy.sites,
    )


def head_similarity(
    first: HeadImportance, second: HeadImportance, *, names: tuple[str, str] = ("first", "second")
) -> HeadSimilarity:
    """Compare the importance of the same heads on two data sets."""
    if first.scores.shape != second.scores.shape:
        raise BadRequestError(
            f"Heads of {tuple(first.scores.shape)} and {tuple(second.scores.shape)} are not the "
            "same heads; compare two data sets on one model."
        )
    there = first.scores.isfinite()
    one, other = (table.scores[there].numpy(force=True) for table in (first, second))
    if len(one) < 4 or one.std() == 0 or other.std() == 0:
        raise NotComputableError("A correlation needs at least 4 heads that differ.")
    found = stats.pearsonr(one, other)
    low, high = found.confidence_interval(0.95)
    return HeadSimilarity(
        provenance=provenance(
            first.provenance.model, "head_similarity", by=[first.by, second.by], names=list(names)
        ),
        checks={"p value": float(found.pvalue), "heads": len(one)},
        first=first.scores,
        second=second.scores,
        pearson=float(found.statistic),
        interval=(float(low), float(high)),
        spearman=float(stats.spearmanr(one, other).statistic),
        names=names,
    )


def importance_by_example(
    subject: Subject,
    examples: Sequence[Example],
    *,
    by: str,
    tolerance: float = 0.01,
    progress: Progress | None = None,
) -> tuple[dict[str, HeadTables], dict[str, Any]]:
    """Tables of heads for every example, the main measure first, and doubts about them."""
    require_choice("measure", by, MEASURES)
    gold, inputs = classes_of(subject, examples), encoded(subject, examples)
    measure = MEASURES[by](tolerance)
    tables: dict[str, Tensor] = {}
    for group in grouped(inputs, alone=stand_alone(subject), progress=progress):
        batch = run(subject, [inputs[place] for place in group])
        for name, found in measure(batch, gold[group]).items():
            whole = found.new_full((len(examples), *found.shape[1:]), torch.nan)
            tables.setdefault(name, whole)[group] = found
    return tables, measure.doubts()


class _Measure(ABC):
    """One way to weigh heads, batch by batch."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance

    @abstractmethod
    def __call__(self, batch: Batch, gold: Int[Tensor, " row"]) -> dict[str, HeadTables]:
        """Tables for every row, by name; the first is the measure, the others are kindred."""

    def doubts(self) -> dict[str, Any]:
        """What to doubt about all tables so far."""
        return {}


class _Attribution(_Measure):
    def __init__(self, tolerance: float) -> None:
        super().__init__(tolerance)
        self.shares: list[Tensor] = []
        self.points: list[Tensor] = []

    def __call__(self, batch: Batch, gold: Tensor) -> dict[str, Tensor]:
        """The largest entry and the sum of entries."""
        largest, sums = [], []
        for site, found in enumerate(attribute_classes(batch, gold, self.tolerance)):
            real = batch.real_queries(site)[:, :, None] & batch.real_keys(site)[:, None]
            largest.append(found.scores.masked_fill(~real[:, None], -torch.inf).amax((2, 3)))
            sums.append(found.scores.sum((2, 3)))
            self.shares.append(found.gap / found.change.abs().clamp_min(ENOUGH))
            self.points.append(found.points)
        return {"maximum": _table(largest), "sum": _table(sums)}

    def doubts(self) -> dict[str, Any]:
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
    def __call__(self, batch: Batch, gold: Tensor) -> dict[str, Tensor]:
        """What the loss would gain without each head, to first order."""
        edit = Nudge("context")
        with torch.enable_grad():
            output = replay(batch, edit, start=0)
            loss = torch.nn.functional.cross_entropy(output.logits.float(), gold, reduction="sum")
            slopes = torch.autograd.grad(loss, edit.nudges, materialize_grads=True)
        found = []
        for site, (slope, context) in enumerate(zip(slopes, edit.seen, strict=True)):
            real = batch.real_queries(site)[:, None, :, None]
            found.append((wide(slope) * wide(context) * real).sum((2, 3)).abs())
        return {"loss change": _table(found)}


class _Ablation(_Measure):
    @torch.no_grad()
    def __call__(self, batch: Batch, gold: Tensor) -> dict[str, Tensor]:
        """What accuracy loses and the loss gains without each head."""
        sites = batch.sites
        most = max(site.heads for site in sites)
        right, loss = _judged(batch.output, gold)
        together = max(1, COPIED_TOKENS // batch.real.shape[1])
        accuracy, losses = [], []
        for site in sites:
            rows = torch.arange(len(batch), device=gold.device).repeat_interleave(site.heads)
            dropped = torch.arange(site.heads, device=gold.device).repeat(len(batch))
            pieces = []
            for some in torch.split(torch.arange(len(rows)), together):
                kept = torch.ones(len(some), len(sites), most, device=gold.device)
                kept[torch.arange(len(some)), site.index, dropped[some]] = 0
                output = replay(batch.rows(rows[some]), KeptHeads(kept))
                pieces.append(torch.stack(_judged(output, gold[rows[some]])))
            now = torch.cat(pieces, 1).reshape(2, len(batch), site.heads)
            accuracy.append(right.unsqueeze(1) - now[0])
            losses.append(now[1] - loss.unsqueeze(1))
        return {"accuracy": _table(accuracy), "loss": _table(losses)}


class _Attention(_Measure):
    def __call__(self, batch: Batch, gold: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        """The mean row maximum and the mean entry."""
        maxima, means = [], []
        for site, attention in enumerate(batch.attention):
            real = batch.real_queries(site)[:, None]
            rows = wide(attention)
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


def _judged(output: Any, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each row is right (1 or 0), and its loss."""
    logits = output.logits.float()
    loss = torch.nn.functional.cross_entropy(logits, gold, reduction="none")
    return (logits.argmax(-1) == gold).float(), loss


def _table(sites: list[Float[Tensor, "row _head"]]) -> HeadTables:
    """One table for each row; a site with fewer heads than others has NaN there."""
    most = max(site.shape[1] for site in sites)
    pad = torch.nn.functional.pad
    return torch.stack([pad(s.float(), (0, most - s.shape[1]), value=torch.nan) for s in sites], 1)
