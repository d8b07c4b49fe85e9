"""Which questions take a data set as a whole?

They rank, test or fit over all examples at once, so they are one piece of work whose output is one
result, stored as ``xa.read`` reads it. The run around them is the same: a plan, a card, a receipt.
"""

import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from exhibit_a.corpus.methods import Method
from exhibit_a.corpus.plan import Plan
from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.methods.heads.curve import pruning_curve
from exhibit_a.methods.heads.importance import HeadImportance, head_importance
from exhibit_a.methods.mixing.token_identifiability import token_identifiability
from exhibit_a.results.result import Result
from exhibit_a.results.store import read
from exhibit_a.subject.subject import Subject


class SetMethod(Method):
    """A question to all examples together."""

    name: ClassVar[str] = ""
    whole: ClassVar[bool] = True

    @abstractmethod
    def result(self, subject: Subject, examples: list[Example], plan: Plan) -> Result:
        """The answer."""

    def file(self, subject: Subject, examples: list[Example], plan: Plan) -> bytes:
        """The answer as the bytes of a result file."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.result(subject, examples, plan).save(Path(folder) / "result.safetensors")
            return path.read_bytes()


class ImportanceMethod(SetMethod):
    """Which heads matter for the labels of a data set."""

    name: ClassVar[str] = "head_importance"
    by: Literal["attribution", "taylor", "ablation", "attention"] = "attribution"
    tolerance: float = Field(default=0.01, gt=0, lt=1)

    def result(self, subject: Subject, examples: list[Example], plan: Plan) -> Result:
        """A score for every head."""
        del plan
        return head_importance(subject, examples, by=self.by, tolerance=self.tolerance)


class PruningMethod(SetMethod):
    """How many heads can go before the answers go with them."""

    name: ClassVar[str] = "pruning_curve"
    importance: str  # a saved result of head_importance
    order: Literal["least", "most"] = "least"

    def result(self, subject: Subject, examples: list[Example], plan: Plan) -> Result:
        """Accuracy as heads are silenced."""
        del plan
        ranking = read(self.importance)
        if not isinstance(ranking, HeadImportance):
            raise BadRequestError(
                f"{self.importance} holds a {type(ranking).__name__}; a HeadImportance is needed."
            )
        return pruning_curve(subject, examples, ranking, order=self.order)


class PermutationTestMethod(SetMethod):
    """Whether shuffling attention costs accuracy, with p-values."""

    name: ClassVar[str] = "permutation_test"
    what: Literal["attention", "keys", "features"] = "attention"
    scope: Literal["row", "head", "example", "global"] = "row"
    repeats: int = Field(default=20, ge=1)

    def result(self, subject: Subject, examples: list[Example], plan: Plan) -> Result:
        """The test."""
        options: dict[str, Any] = self.model_dump()
        return permutation_test(subject, examples, seed=plan.seed, **options)


class TokensMethod(SetMethod):
    """How often a token can be found again from its hidden vector."""

    name: ClassVar[str] = "token_identifiability"
    maps: tuple[Literal["identity", "linear", "mlp"], ...] = ("identity", "linear")
    metric: Literal["cosine", "l2"] = "cosine"
    candidates: Literal["sequence", "dataset", "vocab"] = "sequence"

    def result(self, subject: Subject, examples: list[Example], plan: Plan) -> Result:
        """The rate, layer by layer."""
        texts = [example.text for example in examples]
        return token_identifiability(
            subject,
            texts,
            maps=self.maps,
            metric=self.metric,
            candidates=self.candidates,
            seed=plan.seed,
        )
