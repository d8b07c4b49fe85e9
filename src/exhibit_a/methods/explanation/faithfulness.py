"""Does an attribution name the tokens that the answer really rests on?

Take the tokens away in the order in which the attribution ranks them and watch the probability p of
the model's own answer (DeYoung et al., 2020; Samek et al., 2017). Only tokens of the text itself
are ever taken away, word piece by word piece; of equal scores, the earlier token goes first. Where
an example has an answer for a language model to give, p is the probability of a token of it (the
geometric mean over all of them), and it flips where the model would say any of them otherwise.

comprehensiveness  p(x) − p(x without the top k), mean over k = 1, 5, 10, 20, 50 %: high is good
sufficiency        p(x) − p(only the top k), over the same k: low is good
deletion           area under p while the top tokens leave, from 0 to 100 %: low is good
insertion          area under p while only the top tokens are there: high is good
leave_one_out      Kendall's τ with what each token changes when it alone leaves: high is good
first_flip         share of texts whose answer flips when the top token leaves: high is good
flip_fraction      share of tokens that must leave until the answer flips (1: never): low is good

Every number is compared with that of random rankings, with an interval over examples and the
p-value of the paired difference.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.examples import read_examples
from exhibit_a.methods.custom_methods import token_scores
from exhibit_a.methods.explanation.erasure import (
    Erase,
    cut_short,
    erased,
    read_from,
    readout_position,
    removable,
    require_way,
)
from exhibit_a.methods.registry import Cost, Method, attributions, method
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress, tell
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import HasLogits, Inputs, Options
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import answered, logits_along, prompt_of, require_distribution
from exhibit_a.trace.batches import Source, lengths_of
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

PerToken = Float[Tensor, " token"]
Explainer = Callable[[Trace, Target], Tensor]
Attribution = str | Sequence[str] | Explainer | Mapping[str, Explainer]


@dataclass(frozen=True, kw_only=True, eq=False)
class Faithfulness(Result):
    """How faithful each attribution is to the model, compared with random rankings."""

    attributions: tuple[str, ...]  # the last one is "random"
    metrics: tuple[str, ...] = METRICS
    fractions: tuple[float, ...] = FRACTIONS
    erase: str
    mean: Float[Tensor, "attribution metric"]  # over the examples
    interval: Float[Tensor, "attribution metric bound"]  # 95 %, of the mean
    p_value: Float[Tensor, "attribution metric"]  # of the difference from random
    # of each example
    scores: dict[str, Float[Tensor, "example metric"]] = field(metadata={"over": "attribution"})
    # probability of the answer while the first tokens leave
    deletion: dict[str, Float[Tensor, "example fraction"]] = field(metadata={"over": "attribution"})
    # probability of the answer while only the first tokens are there
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
    erase: Erase = "hide",
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
        erase: how tokens are taken away: hide, delete or mask.
        rankings: how many random orders are the baseline.
        samples: how many texts LIME and SHAP look at.
        seed: same seed, same numbers.
        progress: is called with the number of examples done, and of how many.
    """
    require_distribution(subject)
    require_way(subject, erase)
    if not 1 <= rankings <= MOST_RANKINGS:
        raise BadRequestError(
            f"{rankings} random rankings were requested; give 1 to {MOST_RANKINGS:,}."
        )
    if isinstance(attribution, Mapping):
        explainers = dict(attribution)
    elif callable(attribution):
        explainers = {getattr(attribution, "__name__", "attribution"): attribution}
    else:
        known = attributions()
        named = [attribution] if isinstance(attribution, str) else list(dict.fromkeys(attribution))
        if not named:
            raise BadRequestError(f"No attribution was named; there are {', '.join(known)}.")

        def explainer(entry: Method) -> Explainer:
            options = {"erase": erase, "samples": samples, "seed": seed}
            return lambda trace, target: token_scores(entry, trace, target, **options)[0]

        for name in named:
            require_choice("attribution", name, known)
        explainers = {name: explainer(known[name]) for name in named}
    prompts = [prompt_of(subject, example, truncate=True) for example in read_examples(examples)]
    seeded = generator(seed)
    judged = []
    for number, prompt in enumerate(prompts, start=1):
        trace = capture(subject, **answered(prompt))
        target = choose_target(trace)
        case = _Case(trace, target, removable(trace, target), erase)
        judged.append(_judged(case, explainers, rankings, seeded))
        tell(progress, number, len(prompts))
    names = (*explainers, RANDOM)
    table = {name: torch.stack([case[name].metrics for case in judged]) for name in names}
    curves = {name: torch.stack([case[name].curves for case in judged]) for name in names}
    values = torch.stack([table[name].T for name in names])  # attribution, metric, example
    options = {"attribution": list(explainers), "erase": erase, "rankings": rankings}
    return build_result(
        Faithfulness,
        subject,
        "faithfulness",
        seed=seed,
        settings=options,
        checks=_checks(subject, [prompt.inputs for prompt in prompts], erase),
        attributions=names,
        erase=erase,
        mean=values.nanmean(-1),
        interval=bootstrap_interval(values, seed=seed),
        p_value=sign_flip_p_value((values - values[-1:]).nan_to_num(), seed=seed),
        scores=table,
        deletion={name: curve[:, 0] for name, curve in curves.items()},
        insertion={name: curve[:, 1] for name, curve in curves.items()},
    )


@dataclass(frozen=True, eq=False)
class _Case:
    """One text, the answer that is watched, and how tokens are taken away."""

    trace: Trace
    target: Target
    written: Bool[Tensor, " token"]
    erase: str

    def answers(self, removed: Sequence[Sequence[int]]) -> "_Answers":
        """The model's answers with each list of written tokens taken away."""
        subject, places = self.trace.subject, self.written.nonzero()[:, 0]
        texts = []
        for tokens in removed:
            marks = torch.zeros_like(self.written)
            marks[places[list(tokens)]] = True
            texts.append(erased(subject, self.trace.inputs, marks, self.erase))
        place = readout_position(self.trace, self.target, self.erase)
        indices = torch.tensor(self.target.indices)

        def read(output: HasLogits, lengths: Tensor) -> Tensor:
            logits = logits_along(output, place(lengths), len(indices)).float().cpu()
            shares = torch.softmax(logits, -1)[:, torch.arange(len(indices)), indices]
            share = shares[:, 0] if len(indices) == 1 else shares.log().mean(-1).exp()
            return torch.cat([to_float64(share).unsqueeze(1), to_float64(logits.argmax(-1))], 1)

        numbers = read_from(subject, texts, read)
        return _Answers(numbers[:, 0].float(), numbers[:, 1:].long())


class _Answers(NamedTuple):
    """What the model makes of several texts."""

    shares: Float[Tensor, " text"]  # of the target
    given: Int[Tensor, "text place"]  # what it would say instead, at each place of the target

    def flipped(self, unchanged: "_Answers") -> Bool[Tensor, " text"]:
        """Which answers are others than that to one text."""
        return (self.given != unchanged.given).any(-1)


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

    Every text with tokens taken away that any ranking needs is run in the same few passes.
    """
    count = int(case.written.sum())
    sizes = [math.ceil(share * count - 1e-9) for share in FRACTIONS]
    orders = [ranking.argsort(descending=True, stable=True).tolist() for ranking in scores]
    removed: list[Sequence[int]] = [[token] for token in range(count)]
    for order in orders:
        removed += [order[:size] for size in sizes] + [order[size:] for size in sizes]
    answers, unchanged = case.answers(removed), case.answers([[]])
    whole, turned = float(unchanged.shares[0]), answers.flipped(unchanged)
    single = whole - answers.shares[:count]  # what each token changes alone
    curves = answers.shares[count:].reshape(len(orders), 2, len(sizes))
    flips = turned[count:].reshape(len(orders), 2, len(sizes))[:, 0]
    metrics = [
        torch.tensor(
            [
                *_losses(whole, *curve),
                _agreement(ranking, single),
                float(turned[order[0]]),
                _first(flipping),
            ]
        )
        for curve, ranking, order, flipping in zip(curves, scores, orders, flips, strict=True)
    ]
    return torch.stack(metrics), curves


def _losses(
    whole: float, without_top: Float[Tensor, " fraction"], only_top: Float[Tensor, " fraction"]
) -> tuple[float, float, float, float]:
    """Comprehensiveness, sufficiency, deletion and insertion."""
    bins = [FRACTIONS.index(share) for share in BINS]
    curve = [FRACTIONS.index(share) for share in CURVE]
    return (
        float((whole - without_top[bins]).mean()),
        float((whole - only_top[bins]).mean()),
        float(torch.trapezoid(without_top[curve], torch.tensor(CURVE))),
        float(torch.trapezoid(only_top[curve], torch.tensor(CURVE))),
    )


def _agreement(scores: PerToken, single: PerToken) -> float:
    """Kendall's τ between scores and what each token changes alone."""
    if len(scores) <= 2 or not scores.std() > 0 or not single.std() > 0:
        return math.nan
    from scipy.stats import kendalltau  # only here: who only explains a text need not wait for it

    return float(kendalltau(scores.numpy(), single.numpy()).statistic)


def _first(flips: Bool[Tensor, " fraction"]) -> float:
    """The smallest share of tokens without which the answer flips."""
    return float(torch.tensor(FRACTIONS)[flips].amin()) if bool(flips.any()) else 1.0


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
