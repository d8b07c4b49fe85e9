"""What can be asked of a million texts?

A method says, for a batch of texts that have one length, what it found about each text and each
head. Its parameters are its fields, checked before anything runs. The numbers are those that the
function of the same name gives for one text, summed up; how near they come is in ``docs/corpus.md``
and in the tests.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from exhibit_a.corpus.findings import Findings, listed
from exhibit_a.corpus.plan import Plan, complaint
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.subject.guard import floating, frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.batches import padded


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of one length, encoded, with their places in the data."""

    subject: Subject
    inputs: Sequence[dict[str, Any]]
    numbers: Sequence[int]
    special: Bool[Tensor, "batch token"]

    @property
    def together(self) -> dict[str, Any]:
        """All of them as one set of inputs; nothing is padded."""
        return without_cache(self.subject.model, padded(self.subject, self.inputs))

    def split(self, tokens: int) -> "Iterator[Texts]":
        """The same texts, as many at a time as make ``tokens`` tokens."""
        size = max(1, tokens // self.special.shape[1])
        for start in range(0, len(self.inputs), size):
            some = slice(start, start + size)
            yield Texts(self.subject, self.inputs[some], self.numbers[some], self.special[some])


class Method(BaseModel):
    """A question about texts."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str] = ""
    whole: ClassVar[bool] = False  # whether it needs the whole data set at once
    can_be_dense: ClassVar[bool] = False


class TextMethod(Method):
    """A question that is asked of each text by itself."""

    @abstractmethod
    def prepared(self, subject: Subject, plan: Plan) -> "Question":
        """The method made ready for a model."""


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """A method, a model, and what they have in common for all texts."""

    method: Any
    subject: Subject
    plan: Plan

    @abstractmethod
    def __call__(self, texts: Texts) -> Findings:
        """What is found about some texts of one length."""


def watched(texts: Texts, tap: Tap) -> dict[str, list[Any]]:
    """Run the texts past a tap; what the model answers is returned."""
    subject = texts.subject
    with torch.no_grad(), frozen_eval(subject.model), subject.tapping(tap):
        output = subject.model(**texts.together)
    if not all(bool(part.isfinite().all()) for part in floating(output)):
        raise BrokenInvariantError("the model's answer is NaN or infinite")
    return answers(subject, output)


def answers(subject: Subject, output: Any) -> dict[str, list[Any]]:
    """What the model says to each text, and how sure it is."""
    kind = subject.anatomy.answers
    if kind not in ("classes", "value", "tokens"):
        return {}  # nothing that could be said in one word for each text
    logits = output.logits.float()
    if kind == "value":
        return {"answer_value": listed(logits[:, 0])}
    if kind == "tokens":
        logits = logits[:, -1]
    chance, index = torch.softmax(logits, -1).max(-1)
    names = [subject.labels[i] if kind == "classes" else str(i) for i in index.tolist()]
    return {"answer": names, "probability": listed(chance)}


def methods() -> dict[str, type[Method]]:
    """Every method, by its name."""
    from exhibit_a.corpus import set_methods, text_methods

    kinds = [*vars(text_methods).values(), *vars(set_methods).values()]
    own = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Method)]
    return {kind.name: kind for kind in own if kind.name}


def method_named(name: str, parameters: dict[str, Any]) -> Method:
    """The method with its parameters, or what is wrong with them."""
    known = methods()
    if name not in known:
        raise BadRequestError(f"There is no method {name!r}; choose {', '.join(known)}.")
    try:
        return known[name](**parameters)
    except ValidationError as problem:
        takes = ", ".join(known[name].model_fields) or "nothing"
        raise BadRequestError(f"{name}: {complaint(problem)}. It takes {takes}.") from None
