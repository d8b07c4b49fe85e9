"""Which passage did the answer rest on?

A language model is given a question with passages in front of it, and answers. What it owes to each
passage is read in two ways:

1. *Methods*, from one pass over the whole prompt: any attribution to tokens, for the
   log-probability of the whole answer, summed over the tokens of each sentence and each passage.
2. *Referees*, from prompts without some of the passages (``context_ablation.py``): leave one out,
   and a sparse linear model over random halves. They are what the methods are judged by: rank
   correlation, the same passage first, and how well the scores of the passages that are kept
   predict the answers to the random halves.

And is it any of them? The answer is also read without all passages. It needs them if it is more
than twice as likely with them (its log-probability falls by more than log 2). A passage is *needed*
if the answer loses more than that without it alone. Where no passage is needed alone, some may
stand in for each other: those that add more than log 2 in the linear model. If there are none of
these either, it is none of them: what passages do together by their mere presence, their form or
their topic, is not what one of them says. Then no score of a passage means anything, and `rests_on`
is empty.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import (
    BadRequestError,
    NotComputableError,
    UnsupportedModelError,
    require_choice,
)
from exhibit_a.methods.attribution.context_ablation import (
    Ablations,
    ContextPrompt,
    PassageScores,
    all_but_one,
    context_prompt,
    lasso,
    predicts,
    random_halves,
)
from exhibit_a.methods.custom_methods import Checks, attribution_of
from exhibit_a.methods.registry import Cost, Method, attributions, method
from exhibit_a.numerics.correlation import spearman
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.progress import Progress
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.shapes import Options
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.counting import Spent, counting_passes
from exhibit_a.trace.targets import Target, choose_target

METHODS = ("attention_gradient", "contribution_weights", "self_attribution", "reliance")
LITTLE = math.log(2)  # what the answer may lose without having needed something
GENERATED = 32  # tokens of an answer that the model gives itself
SAMPLES = 64  # random halves
FEWEST = 16
SHOWN = 40  # characters of a passage, where it has no room

SentenceScores = Float[Tensor, " sentence"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a method agrees with a referee about the passages."""

    spearman: float
    same_first: bool  # both put the same passage first


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ContextAttribution(Result):
    """What an answer owes to each passage: scores by methods, and what two referees say.

    All numbers are in log-probability of the answer (nats), except the scores of methods that
    measure otherwise (contribution weights are shares of attention).
    """

    question: str
    answer: str
    passages: tuple[str, ...]
    sentences: tuple[str, ...]
    passage_of: tuple[int, ...]  # for every sentence
    scores: dict[str, PassageScores]  # of each passage, by method
    sentence_scores: dict[str, SentenceScores]  # of each sentence, by method
    leave_one_out: PassageScores  # what the answer loses without each passage
    regression: PassageScores | None  # what each passage adds, over random halves
    predicts: dict[str, float]  # rank correlation with the answers to random halves, by method
    log_probability: float  # of the answer, with all passages
    without_passages: float  # and with none
    subsets: Bool[Tensor, "sample passage"]  # which passages were kept
    values: Float[Tensor, " sample"]  # and the log-probability of the answer then
    passes: dict[str, tuple[int, int]]  # forward and backward, of each method and referee

    @property
    def need(self) -> float:
        """What the answer loses without all passages."""
        return self.log_probability - self.without_passages

    @property
    def rests_on(self) -> tuple[int, ...]:
        """The passages that the answer rests on, the most needed first; empty if on none."""
        if self.need <= LITTLE:
            return ()
        return _above(self.leave_one_out) or self.stand_ins

    @property
    def stand_ins(self) -> tuple[int, ...]:
        """The passages that matter together where none is needed alone; known by regression."""
        if self.need <= LITTLE or _above(self.leave_one_out) or self.regression is None:
            return ()
        return _above(self.regression)

    @property
    def verdict(self) -> str:
        """What the answer rests on, in a sentence."""
        times = _times(self.need)
        if self.need <= LITTLE:
            return f"None of them: the answer is {times} as likely with the passages as without."
        if self.stand_ins:
            return (
                f"Several together: {_listed(self.stand_ins)} stand in for each other; the answer "
                f"is {times} as likely with the passages as without."
            )
        if not self.rests_on:
            requested = "alone" if self.regression is None else "alone or among others"
            return (
                f"None of them by itself: the answer is {times} as likely with the passages as "
                f"without, but no passage, {requested}, makes it twice as likely."
            )
        first, *others = self.rests_on
        also = f", and on {_listed(others)}" if others else ""
        loss = _times(float(self.leave_one_out[first]))
        return f"The answer rests on passage {first + 1} ({loss} as likely with it){also}."

    @property
    def agreement(self) -> dict[str, dict[str, Agreement]]:
        """How far each method agrees with each referee, and the referees with each other."""
        referees = {"leave_one_out": self.leave_one_out}
        judged = dict(self.scores)
        if self.regression is not None:
            referees["regression"] = judged["regression"] = self.regression
        return {
            name: {
                referee: _agreement(scores, truth)
                for referee, truth in referees.items()
                if referee != name
            }
            for name, scores in judged.items()
        }

    def ranking(self, method: str = "leave_one_out") -> tuple[int, ...]:
        """The passages by a method or referee, the highest first."""
        known: dict[str, PassageScores] = {**self.scores, "leave_one_out": self.leave_one_out}
        if self.regression is not None:
            known["regression"] = self.regression
        require_choice("method", method, known)
        return tuple(known[method].argsort(descending=True, stable=True).tolist())

    def summary(self) -> str:
        """The verdict, and what every result says about itself."""
        return f"{self.verdict} {super().summary()}"

    __repr__ = summary

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """The beginnings of the passages and sentences, which stand where tokens do elsewhere."""
        names = {"passage": self.passages, "sentence": self.sentences}
        return {axis: tuple(map(_beginning, names[axis])) for axis in leaf.dims if axis in names}


@method(
    question="Which passage did the answer rest on?",
    needs=("attention", "values", "hidden", "target", "text", "answer"),
    cost=Cost(forwards=100, per_layer=12, backwards=True, maps=4),
    command="context",
)
def context_attribution(
    subject: Subject,
    question: str,
    passages: Iterable[str],
    *,
    answer: str | None = None,
    generate: int = GENERATED,
    methods: Iterable[str] | None = None,
    samples: int = SAMPLES,
    template: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ContextAttribution:
    """Say which of the passages in front of a question the answer to it rests on.

    >>> stories = xa.load("stories")
    >>> facts = ["Tom has a red ball.", "Lily has a blue kite.", "The dog likes to run."]
    >>> found = xa.context_attribution(
    ...     stories, "Lily went to the park. She played with her", facts, answer=" blue kite",
    ...     template="{passages}\\n\\n{question}", methods=["attention_gradient"], samples=0)
    >>> found.rests_on[0], found.ranking("attention_gradient")[0]
    (1, 1)
    >>> found.verdict
    'The answer rests on passage 2 (...

    Args:
        subject: a language model.
        question: about the passages.
        passages: the texts in front of the question, two or more.
        answer: the answer to explain; without, what the model answers.
        generate: the largest number of tokens, where the model answers.
        methods: attributions to compare, any that give a score for each token; without,
            attention × gradient, contribution weights, self-attribution and reliance.
        samples: random halves of the passages for the regression; 0 for none.
        template: how the prompt is written, with {passages} and {question}.
        seed: same seed, same numbers.
    """
    require_seed(seed)
    if samples < 0 or 0 < samples < FEWEST:
        raise BadRequestError(f"{samples} samples make no regression; give 0, or {FEWEST} or more.")
    chosen = _chosen(methods)
    prompt = context_prompt(subject, question, passages, template)
    how: Options = {"generate": generate} if answer is None else {"target_text": answer}
    trace = capture(subject, prompt.written(range(len(prompt.passages))), **how)
    examined = _Examined(prompt, trace, choose_target(trace, "answer"), seed, progress)
    with counting_passes(subject) as examined.spent:
        for name, entry in chosen.items():
            examined.attribute(name, entry, requested=methods is not None)
        examined.leave_out()
        examined.regress(samples)
    return examined.result(methods=[*chosen], samples=samples)


def _chosen(methods: Iterable[str] | None) -> dict[str, Method]:
    """The attributions that are compared, by name."""
    known = attributions()
    named = [methods] if isinstance(methods, str) else methods
    usual = [name for name in METHODS if name in known]
    names = list(dict.fromkeys(usual if named is None else named))
    for name in names:
        require_choice("method", name, known)
    return {name: known[name] for name in names}


class _Examined:
    """One question with its passages, as far as it has been examined."""

    spent: Spent

    def __init__(
        self,
        prompt: ContextPrompt,
        trace: Trace,
        target: Target,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.prompt, self.trace, self.target, self.seed = prompt, trace, target, seed
        self.progress = progress
        self.ablations = Ablations(prompt, target)
        self.count = len(prompt.passages)
        self.sentence_scores: dict[str, SentenceScores] = {}
        self.left_out: dict[str, str] = {}
        self.passes: dict[str, tuple[int, int]] = {}
        self.checks: Checks = {"tokens": len(trace.tokens)}
        self.regression: PassageScores | None = None
        self.subsets = torch.zeros(0, self.count, dtype=torch.bool)
        self.values = torch.zeros(0)

    def attribute(self, name: str, entry: Method, *, requested: bool) -> None:
        """Step 1: the scores of a method for every sentence."""
        try:
            tokens = attribution_of(entry, self.trace, self.target, seed=self.seed)
        except (NotComputableError, UnsupportedModelError) as reason:
            if requested:
                raise
            self.left_out[name] = str(reason)
            return
        forwards, backwards = self.spent.taken()
        self.passes[name] = (forwards + 1, backwards)  # with the pass that all methods look at
        belongs = self.prompt.sentence_of_token
        scores = tokens.scores[: len(belongs)]
        self.sentence_scores[name] = _summed(scores, belongs, len(self.prompt.sentences))
        self.checks |= {f"{name}, {check}": value for check, value in tokens.checks.items()}

    def leave_out(self) -> None:
        """Step 2: the answer without each passage, with all and with none."""
        ends = torch.tensor([[True] * self.count, [False] * self.count])
        *lost, whole, none = self.ablations(
            torch.cat([all_but_one(self.count), ends]), self.progress
        ).tolist()
        self.whole, self.none = whole, none
        self.leave_one_out = whole - torch.tensor(lost)
        self.passes["leave_one_out"] = self.spent.taken()
        seen = float(to_float64(self.target.value(self.trace)))
        self.checks["log-probability, batched against alone"] = abs(seen - whole)

    def regress(self, samples: int) -> None:
        """Step 2: a linear model of the answer with random halves of the passages."""
        if not samples:
            return
        self.subsets = random_halves(self.count, samples, self.seed)
        self.values = self.ablations(self.subsets, self.progress)
        self.passes["regression"] = self.spent.taken()
        tokens = len(self.target.indices)
        self.regression, fit = lasso(self.subsets, self.values, tokens)
        self.checks["regression, rank correlation on subsets put aside"] = fit

    def result(self, **parameters: object) -> ContextAttribution:
        """Everything that was found."""
        assert self.trace.reply is not None
        sentences = self.prompt.sentences
        passage_of = tuple(sentence.passage for sentence in sentences)
        scores = {
            name: _summed(by_sentence, passage_of, self.count)
            for name, by_sentence in self.sentence_scores.items()
        }
        judged = scores | {"leave_one_out": self.leave_one_out}
        if self.left_out:
            self.checks["left out"] = self.left_out
        return build_result(
            ContextAttribution,
            self.trace.subject,
            "context_attribution",
            seed=self.seed,
            settings={
                "target": str(self.target),
                "template": self.prompt.template,
                "chat": self.prompt.in_chat,
                **parameters,
            },
            checks=self.checks,
            question=self.prompt.question,
            answer=self.trace.reply.text,
            passages=self.prompt.passages,
            sentences=tuple(sentence.text for sentence in sentences),
            passage_of=passage_of,
            scores=scores,
            sentence_scores=self.sentence_scores,
            leave_one_out=self.leave_one_out,
            regression=self.regression,
            predicts={name: predicts(s, self.subsets, self.values) for name, s in judged.items()}
            if len(self.values)
            else {},
            log_probability=self.whole,
            without_passages=self.none,
            subsets=self.subsets,
            values=self.values,
            passes=self.passes,
        )


def _summed(
    values: Float[Tensor, " part"], belongs: Sequence[int | None], count: int
) -> Float[Tensor, " whole"]:
    """Sums over what each part belongs to; parts that belong to nothing are left out."""
    sums = torch.zeros(count)
    inside = [place for place, whole in enumerate(belongs) if whole is not None]
    wholes = torch.tensor([belongs[place] for place in inside], dtype=torch.long)
    return sums.index_add(0, wholes, values[inside].float().cpu())


def _agreement(scores: PassageScores, truth: PassageScores) -> Agreement:
    everywhere = torch.ones(len(truth), dtype=torch.bool)
    correlation = float(spearman(scores, truth.to(scores), everywhere))
    return Agreement(correlation, int(scores.argmax()) == int(truth.argmax()))


def _above(effects: PassageScores) -> tuple[int, ...]:
    """The passages with more than a little effect, the largest first."""
    order = effects.argsort(descending=True, stable=True).tolist()
    return tuple(place for place in order if float(effects[place]) > LITTLE)


def _listed(places: Sequence[int]) -> str:
    names = [f"passage {place + 1}" for place in places]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _beginning(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _times(loss: float) -> str:
    """How many times as likely, for a difference of log-probabilities."""
    times = math.exp(min(abs(loss), 20.0))
    shown = f"{times:.1f}" if times < 10 else f"{times:,.0f}"
    return f"{shown} times" if loss >= 0 else f"1/{shown} times"
