"""Every registered method as a question to a million texts.

A task is a method with its parameters, checked before anything runs. There are three kinds:

1. *text by text*: the method itself, and what its result says about each text and its heads
   (``summaries.py``);
2. *permutation*: what ``permutation_test`` measures of each text, in batches of one length;
3. *whole*: one question to all examples together, answered with one result.

Parameters are those of the method's own signature.
"""

import inspect
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

import torch
from jaxtyping import Bool
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from torch import Tensor

from exhibit_a.corpus.plan import COLUMNS, PLANNED, Plan, complaint
from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.examples import Example
from exhibit_a.methods.explanation.shuffling import Rerun, Shuffling, chosen_sites, conditions
from exhibit_a.methods.options import Option
from exhibit_a.methods.registry import Method, find, methods
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.result import Result
from exhibit_a.results.store import read
from exhibit_a.shapes import HasLogits, Inputs, Options
from exhibit_a.subject.prompts import Prompt, Reply
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import Gold, gold_of_replies, logits_at, require_distribution
from exhibit_a.trace.batches import run

PERMUTATION = "permutation"  # the task that has a name of its own
DEFAULTS = {"hidden_attribution": {"probes": 8}}  # all directions take a pass each
ONE_TEXT = (("trace",), ("trace", "target"), ("attribution",), ("subject", "text"))
AT_ONCE = 512  # tokens of texts that a method is given at once, where it takes several
ALL_TEXTS = (("subject", "examples"), ("subject", "texts"), ("subject", "examples", "importance"))
# Each of the companions is a task by itself; the other cuts the text anew, and texts are encoded.
NOT_TASKS = ("companions", "identifiability_by_length")


Lists = dict[str, list[Any]]  # a list for each text, by name


@dataclass(frozen=True, eq=False)
class Findings:
    """The results of a method for the texts of a batch, in their order."""

    numbers: Mapping[str, Sequence[str | float]] = field(default_factory=dict)  # per text
    lists: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)  # per text, short
    heads: dict[str, list[Tensor]] = field(default_factory=dict)  # per site, (text, head)
    dense: list[dict[str, Tensor]] = field(default_factory=list)  # per text


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts of one length, encoded, with their places in the data."""

    subject: Subject
    prompts: Sequence[Prompt]
    numbers: Sequence[int]
    special: Bool[Tensor, "batch token"]

    @property
    def inputs(self) -> list[Inputs]:
        """What the model is given for each."""
        return [prompt.inputs for prompt in self.prompts]

    def gold(self, output: HasLogits) -> Gold:
        """The answers that the texts have; for one without, what the model says after it."""
        last = self.special.shape[1] - 1
        if self.subject.anatomy.answers != "tokens":
            return Gold(logits_at(output).argmax(-1, keepdim=True))
        predicted = logits_at(output, last).argmax(-1).tolist()
        replies = [prompt.reply for prompt in self.prompts]
        return gold_of_replies(
            [
                reply or Reply((token,), last, "")
                for reply, token in zip(replies, predicted, strict=True)
            ],
            self.subject.device,
        )

    def split(self, tokens: int) -> "Iterator[TextBatch]":
        """The same texts, as many at a time as make ``tokens`` tokens."""
        size = max(1, tokens // self.special.shape[1])
        for start in range(0, len(self.prompts), size):
            few = slice(start, start + size)
            yield TextBatch(self.subject, self.prompts[few], self.numbers[few], self.special[few])


class Task(BaseModel):
    """A method and its parameters, which are the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str] = ""
    can_be_dense: ClassVar[bool] = False


class TextTask(Task):
    """A method that looks at each text by itself."""

    @abstractmethod
    def prepared(self, subject: Subject, plan: Plan) -> "CorpusTask":
        """The task made ready for a model."""


class SetTask(Task):
    """A question to all examples together."""

    def result(self, subject: Subject, examples: list[Example], plan: Plan) -> Result:
        """The answer."""
        method, options = find(self.name), self.model_dump()
        texts = [example.text for example in examples]
        data = texts if "texts" in method.takes else examples
        if "importance" in method.takes:
            from exhibit_a.methods.heads.importance import HeadImportance

            path = options.pop("importance")
            ranking = read(path)
            if not isinstance(ranking, HeadImportance):
                raise BadRequestError(
                    f"{path} holds a {type(ranking).__name__}; a HeadImportance is needed."
                )
            options["importance"] = ranking
        answer: Result = method.function(subject, data, **options, **_seed(method, plan))
        return answer

    def file(self, subject: Subject, examples: list[Example], plan: Plan) -> bytes:
        """The answer as the bytes of a result file."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.result(subject, examples, plan).save(Path(folder) / "result.safetensors")
            return path.read_bytes()


@dataclass(frozen=True, eq=False)
class CorpusTask(ABC):
    """A task, a model, and what they have in common for all texts."""

    task: Any
    subject: Subject
    plan: Plan

    @abstractmethod
    def __call__(self, texts: TextBatch) -> Findings:
        """What is found about texts of one length."""


class OneByOne(TextTask):
    """A method, whose results are summed up."""

    can_be_dense: ClassVar[bool] = True

    def prepared(self, subject: Subject, plan: Plan) -> CorpusTask:
        """Nothing to prepare."""
        return _OneByOne(self, subject, plan)


class _OneByOne(CorpusTask):
    def __call__(self, texts: TextBatch) -> Findings:
        from exhibit_a.corpus.summaries import joined, results_of_texts, summary_of

        method = find(self.task.name)
        options = self.task.model_dump() | _seed(method, self.plan)
        summaries = []
        for few in texts.split(AT_ONCE if method.takes_several else 1):
            results = results_of_texts(method, self.subject, few.prompts, options)
            for text, (result, output) in zip(few.split(1), results, strict=True):
                columns = {} if output is None else answers(text, output)
                answer = {name: column[0] for name, column in columns.items()}
                summary = summary_of(result)
                summaries.append(replace(summary, numbers=answer | summary.numbers))
        return joined(summaries, dense=self.plan.dense)


class PermutationTask(TextTask):
    """What shuffling attention does to each answer, at each site and at all of them together."""

    name: ClassVar[str] = PERMUTATION
    what: Literal["attention", "keys", "features"] = "attention"
    scope: Literal["row", "head", "example"] = "row"
    repeats: int = Field(default=20, ge=1)

    def prepared(self, subject: Subject, plan: Plan) -> CorpusTask:
        """Settle the sites; a model without a distribution is refused."""
        require_distribution(subject)
        scope = "head" if self.what != "attention" and self.scope == "row" else self.scope
        chosen = chosen_sites(subject, self.what, scope, None)
        return _Permutation(self, subject, plan, scope, conditions(chosen))


@dataclass(frozen=True, eq=False)
class _Permutation(CorpusTask):
    scope: str
    groups: list[frozenset[int]]

    def __call__(self, texts: TextBatch) -> Findings:
        batch = run(texts.subject, texts.inputs)
        length = texts.special.shape[1]
        lengths = torch.full((len(texts.inputs),), length)
        rerun = Rerun(batch, lengths, list(texts.numbers), texts.gold(batch.output))
        lists: dict[str, list[Tensor]] = {"change": [], "flips": [], "uniform_change": []}
        for group in self.groups:
            plan = Shuffling(self.task.what, self.scope, group, self.plan.seed, length)
            moved, flipped, _ = rerun.measure(plan, self.task.repeats)
            lists["change"].append(to_float64(moved[:, :-1]).mean(1))
            lists["flips"].append(to_float64(flipped[:, :-1]).mean(1))
            lists["uniform_change"].append(to_float64(moved[:, -1]))
        return Findings(
            answers(texts, batch.output),
            {name: listed(torch.stack(sites, 1)) for name, sites in lists.items()},
        )


def tasks() -> dict[str, Method]:
    """Every method that can run over a corpus, by name."""
    return {
        name: method
        for name, method in methods().items()
        if method.takes in (*ONE_TEXT, *ALL_TEXTS) and name not in NOT_TASKS
    }


def names() -> list[str]:
    """The names that can be given."""
    return [*tasks(), PERMUTATION]


def task_named(name: str, parameters: Options) -> Task:
    """The task with its parameters, or what is wrong with them."""
    require_choice("method", name, names())
    kind = PermutationTask if name == PERMUTATION else task_of(tasks()[name])
    try:
        return kind(**parameters)
    except ValidationError as problem:
        takes = ", ".join(kind.model_fields) or "nothing"
        raise BadRequestError(f"{name}: {complaint(problem)}. It takes {takes}.") from None


def task_of(method: Method) -> type[Task]:
    """The task of a method: its parameters are those of its signature that JSON can say.

    What the plan or a column says for each text (a seed, a pair, a label) is no parameter.
    """
    base = OneByOne if method.takes in ONE_TEXT else SetTask
    defaults = {name: option.default for name, option in method.options.items()}
    defaults |= DEFAULTS.get(method.name, {})
    fields: Options = {
        name: (hint, ... if defaults[name] is inspect.Parameter.empty else defaults[name])
        for name, option in method.options.items()
        if name not in (*PLANNED, *COLUMNS) and (hint := _json_type(option)) is not None
    }
    if "importance" in method.takes:
        fields["importance"] = (str, ...)  # a saved result of head_importance
    kind: type[Task] = create_model(method.name, __base__=base, **fields)
    kind.name = method.name
    kind.__doc__ = method.does
    return kind


def answers(texts: TextBatch, output: HasLogits) -> Lists:
    """What the model says to each text, or the answer it was given; and how sure it is."""
    subject, kind = texts.subject, texts.subject.anatomy.answers
    if kind not in ("classes", "value", "tokens"):
        return {}  # no answer of one word for each text
    if kind == "value":
        return {"answer_value": listed(logits_at(output)[:, 0])}
    chance, index = torch.softmax(logits_at(output, -1), -1).max(-1)
    words = [subject.labels[i] if kind == "classes" else str(i) for i in index.tolist()]
    if any(prompt.reply for prompt in texts.prompts):
        _, loss = texts.gold(output).right_and_loss(output)
        chance = (-loss).exp()
        answered = zip(texts.prompts, words, strict=True)
        words = [prompt.reply.text if prompt.reply else word for prompt, word in answered]
    return {"answer": words, "probability": listed(chance)}


def _seed(method: Method, plan: Plan) -> dict[str, int]:
    return {"seed": plan.seed} if "seed" in method.options else {}


def _json_type(option: Option) -> object:
    """The part of an option's type that JSON can say, or None where there is no such part."""
    parts = (
        get_args(option.type) if get_origin(option.type) in (Union, UnionType) else (option.type,)
    )
    plain = [part for part in parts if _is_plain(part)]
    if not plain or plain == [NoneType]:
        return None
    return Union[tuple(plain)]  # noqa: UP007 - built from a list


def _is_plain(hint: object) -> bool:
    if get_origin(hint) is Literal:
        return True
    if "Sequence" in str(get_origin(hint)) or get_origin(hint) in (list, tuple):
        return all(_is_plain(part) for part in get_args(hint) if part is not Ellipsis)
    return hint in (str, int, float, bool, NoneType)


def listed(tensor: Tensor) -> list[Any]:
    """A tensor as nested lists of Python numbers, in double precision."""
    return to_float64(tensor.detach()).tolist()
