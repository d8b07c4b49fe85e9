"""Which options has a training? That depends on what is trained.

An option that was not given has its usual value; one that does not belong to this kind of training
is refused, so that nobody believes it was heard.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.shapes import Options
from exhibit_a.training.fit_translator import TranslatorSchedule

AT_LEAST_ONE = (lambda value: value >= 1, "at least 1")
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "epochs": AT_LEAST_ONE,
    "batch_size": AT_LEAST_ONE,
    "batch_tokens": AT_LEAST_ONE,
    "patience": AT_LEAST_ONE,
    "warmup": AT_LEAST_ONE,
    "average": AT_LEAST_ONE,
    "bleu_every": AT_LEAST_ONE,
    "learning_rate": (lambda value: 0 < value < math.inf, "above 0 and finite"),
    "label_smoothing": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "max_length": (lambda value: value >= 4, "at least 4, for the special tokens of a pair"),
    "holdout": (lambda value: 0 < value < 1, "above 0 and below 1"),
}


@dataclass(frozen=True)
class Kind:
    """A kind of training: what it makes, and the usual values of the options that it has."""

    makes: str
    usual: Mapping[str, object]

    def settled(self, given: Mapping[str, object]) -> Options:
        """The value of every option of this kind; None is an option that was not given."""
        asked = {name: value for name, value in given.items() if value is not None}
        for name in asked:
            if name not in self.usual:
                raise BadRequestError(
                    f"{name} does not apply to {self.makes}; its options: {', '.join(self.usual)}."
                )
        return {**self.usual, **asked}


_COLUMNS = dict.fromkeys(("teacher", "text", "pair", "label"))
FINE_TUNING = Kind(
    "an encoder that is fine-tuned",
    {
        **_COLUMNS,
        "epochs": 3,
        "batch_size": 48,
        "learning_rate": 1.5e-4,
        "label_smoothing": 0.0,
        "patience": 2,
        "freeze_embeddings": True,
        "max_length": 128,
    },
)
CLASSIFIER = Kind(
    "a classifier made from nothing",
    {
        **_COLUMNS,
        "epochs": 10,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "label_smoothing": 0.0,
        "patience": 3,
        "max_length": 128,
    },
)
TRANSLATOR = Kind(
    "a translator",
    {f.name: f.default for f in fields(TranslatorSchedule) if f.name not in ("seed", "clip")},
)


@dataclass(frozen=True)
class Request:
    """What to learn from, where the model goes, and what holds for every kind of training."""

    train: Any
    dev: Any
    out: Path
    holdout: float
    seed: int
    device: str
    progress: bool

    def require_ranges(self, options: Mapping[str, Any]) -> None:
        """Refuse numbers that make no sense, before anything is read."""
        for name, value in {**options, "holdout": self.holdout}.items():
            if name in RANGES and not RANGES[name][0](value):
                raise BadRequestError(f"{name} is {value}. It must be {RANGES[name][1]}.")
        require_seed(self.seed)
