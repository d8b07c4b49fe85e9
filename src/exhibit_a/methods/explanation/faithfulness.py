"""Does an attribution name the tokens that the answer really rests on?

Take the tokens away in the order in which the attribution ranks them and watch the probability p of
the model's own answer (DeYoung et al., 2020; Samek et al., 2017). Only tokens of the text itself
are ever taken away, word piece by word piece; of equal scores, the earlier token goes first.

comprehensiveness  p(x) − p(x without the top k), mean over k = 1, 5, 10, 20, 50 %: high is good
sufficiency        p(x) − p(only the top k), over the same k: low is good
deletion           area under p while the top tokens leave, from 0 to 100 %: low is good
insertion          area under p while only the top tokens are there: high is good
leave_one_out      Kendall's τ with what each token changes when it alone leaves: high is good
first_flip         share of texts whose answer flips when the top token leaves: high is good
flip_fraction      share of tokens that must leave until the answer flips (1: never): low is good

Every number stands beside that of random rankings, with an interval over examples and the p-value
of the paired difference.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from scipy.stats import kendalltau
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.examples import read_examples
from exhibit_a.methods.explanation.erasure import (
    Erase,
    answers_to,
    cut_short,
    erased,
    removable,
    require_way,
)
from exhibit_a.methods.own import token_scores
from exhibit_a.methods.registry import Cost, Method, attributions, method
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress, tell
from exhibit_a.results.result import Result
from exhibit_a.shapes import Inputs, Options
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import require_distribution
from exhibit_a.trace.batches import Source, encoded, lengths_of
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.targets import Target, choose_target

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
CURVE = tuple(step / 10 for step in range(11))
FRACTIONS = tuple(sorted({*BINS, *CURVE}))
METRICS = (
    "comprehensiveness",
    "sufficiency",
    "deletion",
    "insertion",
    "leave_one_out",
    "first_flip",
    "flip_fraction",
)
RANDOM = "random"
MOST_RANKINGS = 10_000

Answer = Float[Tensor, " answer"]
Shortened = Float[Tensor, "2 fraction answer"]  # without the top tokens, and of them alone
PerToken = Float[Tensor, " token"]
Explainer = Callable[[Trace, Target], Tensor]
Attribution = str | Sequence[str] | Explainer | Mapping[str, Explainer]


@dataclass(frozen=True, kw_only=True, eq=False)
class Faithfulness(Result):
    """How faithful each attribution is to the model, beside random rankings."""

    attributions: tuple[str, ...]  # the last one is "random"
    metrics: tuple[str, ...] = METRICS
    fractions: tuple[float, ...] = FRACTIONS
    erase: str
    mean: Float[Tensor, "attribution metric"]
    interval: Float[Tensor, "attribution metric bound"]
    p_value: Float[Tensor, "attribution metric"]  # of the difference from random
    scores: dict[str, Float[Tensor, "example metric"]] = field(metadata={"over": "attribution"})
    deletion: dict[str, Float[Tensor, "example fraction"]] = field(metadata={"over": "attribution"})
    insertion: dict[str, Float[Tensor, "example fraction"]] = field(
        metadata={"over": "attribution"}
    )

    def table(self) -> list[Options]:
        """One row for each attribution: its name, and (mean, low, high) of every metric."""
        return [
            {"attribution": name}
            | {
                metric: (float(self.mean[i, j]), *map(float, self.interval[i, j]))
                for j, metric in enumerate(self.metrics)
            }
            for i, name in enumerate(self.attributions)
        ]


@method(
    question="Which attribution names the tokens that the answer rests on?",
    needs=("distribution",),
    cost=Cost(forwards=100, per_token=1),
    command="faithful",
    flags={"attribution": "by"},
    defaults={"attribution": "raw,rollout"},
)
def faithfulness(
    subject: Subject,
    examples: Source,
    *,
    attribution: Attribution,
    erase: Erase = "delete",
    rankings: int = 5,
    samples: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> Faithfulness:
    """Judge one or several attributions by what happens when the tokens they name are gone.

    >>> result = xa.faithfulness(subject, examples[:2], attribution=["raw", "occlusion"])
    >>> result.attributions
    ('raw', 'occlusion', 'random')
    >>> tuple(result.mean.shape), result.metrics[0]
    ((3, 7), 'comprehensiveness')
    >>> def first(trace, target):  # a function of your own: the first word is all that counts
    ...     return torch.arange(len(trace.tokens)) == 1.0
    >>> xa.faithfulness(subject, examples[:2], attribution=first).attributions
    ('first', 'random')

    Args:
        attribution: names of methods that score tokens; in Python also a function from a trace and
            a target to a score for each token, or several of them by name.
        erase: how tokens are taken away: delete, mask or pad.
        rankings: how many random orders are the baseline.
        samples: how many texts LIME and SHAP look at.
        seed: same seed, same numbers.
        progress: is called with the number of examples done, and of how many.
    """
    require_distribution(subject)
    require_way(subject, erase)
    _require_rankings(rankings)
    explainers = _explainers(attribution, erase, samples, seed)
    data = read_examples(examples)
    encodings = encoded(subject, data)
    seeded = generator(seed)
    judged = []
    for number, encoding in enumerate(encodings, start=1):
        judged.append(_judged(_Case.of(subject, encoding, erase), explainers, rankings, seeded))
        tell(progress, number, len(encodings))
    names = (*explainers, RANDOM)
    table = {name: torch.stack([case[name].metrics for case in judged]) for name in names}
    curves = {name: torch.stack([case[name].curves for case in judged]) for name in names}
    values = torch.stack([table[name].T for name in names])  # attribution, metric, example
    options = {"attribution": list(explainers), "erase": erase, "rankings": rankings}
    return Faithfulness(
        provenance=subject.provenance("faithfulness", seed, **options),
        checks=_checks(subject, encodings, erase),
        attributions=names,
        erase=erase,
        mean=values.nanmean(-1),
        interval=bootstrap_interval(values, seed=seed),
        p_value=sign_flip_p_value((values - values[-1:]).nan_to_num(), seed=seed),
        scores=table,
        deletion={name: curve[:, 0] for name, curve in curves.items()},
        insertion={name: curve[:, 1] for name, curve in curves.items()},
    )


def _require_rankings(count: int) -> None:
    if not 1 <= count <= MOST_RANKINGS:
        raise BadRequestError(
            f"{count} random rankings were asked for; give 1 to {MOST_RANKINGS:,}."
        )


@dataclass(frozen=True, eq=False)
class _Case:
    """One text, the answer that is watched, and how tokens are taken away."""

    trace: Trace
    target: Target
    written: Bool[Tensor, " token"]
    erase: str

    @classmethod
    def of(cls, subject: Subject, encoding: Inputs, erase: str) -> "_Case":
        """The case of one text, whose answer is the model's own."""
        trace = capture(subject, encoding)
        return cls(trace, choose_target(trace), removable(trace), erase)

    def answers(self, removed: Sequence[Sequence[int]]) -> Float[Tensor, "way answer"]:
        """The model's answers with each list of written tokens taken away."""
        subject, places = self.trace.subject, self.written.nonzero()[:, 0]
        texts = []
        for tokens in removed:
            marks = torch.zeros_like(self.written)
            marks[places[list(tokens)]] = True
            texts.append(erased(subject, self.trace.inputs, marks, self.erase))
        return answers_to(subject, texts).cpu()


@dataclass(frozen=True, eq=False)
class _Judgement:
    """How good one ranking of the tokens of one text is."""

    metrics: Float[Tensor, " metric"]
    curves: Float[Tensor, "2 fraction"]  # of deletion and of insertion


def _judged(
    case: _Case, explainers: Mapping[str, Explainer], rankings: int, seeded: torch.Generator
) -> dict[str, _Judgement]:
    """Every attribution of one text, and the mean of random rankings."""
    scores = [
        _checked(explain(case.trace, case.target), case.written, name)
        for name, explain in explainers.items()
    ]
    count = int(case.written.sum())
    random = torch.rand(rankings, count, generator=seeded, dtype=torch.float64)
    metrics, curves = _judge(case, [*scores, *random])
    judged = {name: _Judgement(metrics[i], curves[i]) for i, name in enumerate(explainers)}
    first = len(scores)  # of the random rankings
    return judged | {RANDOM: _Judgement(metrics[first:].nanmean(0), curves[first:].mean(0))}


def _judge(
    case: _Case, scores: Sequence[PerToken]
) -> tuple[Float[Tensor, "ranking metric"], Float[Tensor, "ranking 2 fraction"]]:
    """The metrics and curves of every ranking of one text.

    Every shortened text that any ranking asks for is run in the same few passes.
    """
    count, index = int(case.written.sum()), case.target.index
    sizes = [math.ceil(share * count - 1e-9) for share in FRACTIONS]
    orders = [ranking.argsort(descending=True, stable=True).tolist() for ranking in scores]
    removed: list[Sequence[int]] = [[token] for token in range(count)]
    for order in orders:
        removed += [order[:size] for size in sizes] + [order[size:] for size in sizes]
    answers = case.answers(removed)
    unchanged = case.answers([[]])[0]
    single = unchanged[index] - answers[:count, index]  # what each token changes alone
    ranked = answers[count:].reshape(len(orders), 2, len(sizes), -1)
    turned = answers[:count].argmax(-1) != unchanged.argmax()  # when a token leaves alone
    metrics = [
        _metrics(unchanged, shortened, ranking, single, index)
        for shortened, ranking in zip(ranked, scores, strict=True)
    ]
    for values, order in zip(metrics, orders, strict=True):
        values[METRICS.index("first_flip")] = float(turned[order[0]])
    return torch.stack(metrics), ranked[..., index]


def _metrics(
    unchanged: Answer, shortened: Shortened, scores: PerToken, single: PerToken, index: int
) -> Float[Tensor, " metric"]:
    """The numbers of one ranking of one text, in the order of METRICS."""
    without_top, only_top = shortened[..., index]
    bins = [FRACTIONS.index(share) for share in BINS]
    curve = [FRACTIONS.index(share) for share in CURVE]
    flips = shortened[0].argmax(-1) != unchanged.argmax()
    shares = torch.tensor(FRACTIONS)
    enough = len(scores) > 2 and scores.std() > 0 and single.std() > 0
    return torch.tensor(
        [
            float((unchanged[index] - without_top[bins]).mean()),
            float((unchanged[index] - only_top[bins]).mean()),
            float(torch.trapezoid(without_top[curve], torch.tensor(CURVE))),
            float(torch.trapezoid(only_top[curve], torch.tensor(CURVE))),
            float(kendalltau(scores.numpy(), single.numpy()).statistic) if enough else math.nan,
            math.nan,  # first_flip, which no fraction of the tokens shows
            float(shares[flips].amin()) if bool(flips.any()) else 1.0,
        ]
    )


def _explainers(
    attribution: Attribution, erase: str, samples: int, seed: int
) -> dict[str, Explainer]:
    """What was asked for, as functions by name."""
    if isinstance(attribution, Mapping):
        return dict(attribution)
    if callable(attribution):
        return {getattr(attribution, "__name__", "attribution"): attribution}
    known = attributions()
    names = [attribution] if isinstance(attribution, str) else list(dict.fromkeys(attribution))
    if not names:
        raise BadRequestError(f"No attribution was named; there are {', '.join(known)}.")

    def explainer(entry: Method) -> Explainer:
        options = {"erase": erase, "samples": samples, "seed": seed}
        return lambda trace, target: token_scores(entry, trace, target, **options)[0]

    for name in names:
        require_choice("attribution", name, known)
    return {name: explainer(known[name]) for name in names}


def _checked(scores: Tensor, written: Tensor, name: str) -> PerToken:
    """The scores of the written tokens; anything but a number for each token is refused."""
    if scores.shape != written.shape or not bool(scores.isfinite().all()):
        raise BadRequestError(
            f"{name} gave {tuple(scores.shape)} scores for {len(written)} tokens, or some that are "
            "not numbers."
        )
    return scores.detach().cpu().double()[written]


def _checks(subject: Subject, encodings: Sequence[Inputs], erase: str) -> dict[str, int | str]:
    return {
        "examples": len(encodings),
        "tokens are taken away by": erase,
        "special tokens": "never taken away",
        "ties": "the earlier token first",
        "cut at the model's length": cut_short(subject, lengths_of(encodings)),
    }
