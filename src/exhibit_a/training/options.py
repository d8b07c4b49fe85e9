"""Which options has a training? That depends on what is trained.

An option that was not given has its usual value; one that does not belong to this kind of training
is refused, so that nobody believes it was heard.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.shapes import Options
from exhibit_a.subject.sources import require_device
from exhibit_a.training.fit_translator import TranslatorSchedule

COUNT = (lambda value: isinstance(value, int) and value >= 1, "at least 1 and whole")
FASTEST = 10  # learning rate; any model is beside itself long before
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "epochs": COUNT,
    "batch_size": COUNT,
    "batch_tokens": COUNT,
    "patience": COUNT,
    "warmup": COUNT,
    "average": COUNT,
    "bleu_every": COUNT,
    "learning_rate": (lambda value: 0 < value <= FASTEST, f"above 0 and at most {FASTEST}"),
    "label_smoothing": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "max_length": (
        lambda value: isinstance(value, int) and value >= 4,
        "at least 4 and whole, for the special tokens of a pair",
    ),
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
            if name not in RANGES:
                continue
            is_within, words = RANGES[name]
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not is_within(value):
                raise BadRequestError(f"{name} is {value}. It must be {words}.")
        if not isinstance(options.get("half", False), bool):
            raise BadRequestError(f"half is {options['half']!r}. It must be True or False.")
        require_seed(self.seed)
        require_device(self.device)
