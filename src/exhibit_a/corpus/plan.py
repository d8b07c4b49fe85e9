"""What is to be done, to which texts, by which model? The answers, as data that outlive the run.

A ``Plan`` fixes everything that decides a number: the method and its parameters, the seed, and
which examples share a batch. The ``Card`` adds the model, the data and the versions. It is written
before the first text is read, and a run is only ever continued by the same card.
"""

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, JsonValue, PositiveInt, ValidationError

from exhibit_a.errors import BadRequestError
from exhibit_a.subject.subject import Subject

SCHEMA = 1
LIBRARIES = ("exhibit_a", "torch", "transformers", "pyarrow")


class _Fixed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Plan(_Fixed):
    """What decides the numbers.

    Examples are taken in windows, in the order of the data; a window makes one shard. Within a
    window, texts of exactly the same length share batches of at most ``tokens`` tokens, so that
    nothing is padded. Neither depends on the engine or on the number of workers.
    """

    method: str
    parameters: dict[str, JsonValue] = {}
    seed: int = 0
    dense: bool = False  # also keep whole maps, as safetensors
    window: PositiveInt = 1024
    tokens: PositiveInt = 2048
    too_long: Literal["truncate", "skip", "stop"] = "truncate"
    unusable: Literal["stop", "skip"] = "stop"


class Model(_Fixed):
    """Which model: its name is not enough, so its weights are named by their hash."""

    name: str
    revision: str | None
    weights: str
    dtype: str
    tap: str

    @classmethod
    def of(cls, subject: Subject) -> "Model":
        """The description of a subject."""
        return cls(
            name=subject.name,
            revision=subject.revision,
            weights=weights_hash(subject.model),
            dtype=str(subject.model.dtype).removeprefix("torch."),
            tap=subject.anatomy.tap,
        )


class Data(_Fixed):
    """Where the examples come from; without a source, from the caller's hands."""

    source: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    identity: str | None = None

    @property
    def columns(self) -> dict[str, str | None]:
        """The names of columns, as reading takes them."""
        return self.model_dump(exclude={"source"})


class Card(_Fixed):
    """A run: what, by whom, on what, with which libraries."""

    card: int = SCHEMA
    plan: Plan
    model: Model
    data: Data
    versions: dict[str, str]

    def differences(self, other: "Card") -> list[str]:
        """What the other card has different, as "name: this, not that"."""
        mine, its = (dict(_flat(one.model_dump(mode="json"))) for one in (self, other))
        return [
            f"{name}: {mine.get(name)!r} here, {its.get(name)!r} asked"
            for name in sorted(mine.keys() | its.keys())
            if mine.get(name) != its.get(name)
        ]


def versions() -> dict[str, str]:
    """The libraries on which a number may depend."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}


def weights_hash(model: torch.nn.Module) -> str:
    """A name for the weights of a model: equal weights, equal name."""
    digest = hashlib.sha256()
    for name, part in sorted(model.state_dict().items()):
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}\n".encode())
        flat = part.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_card(path: Path) -> Card:
    """The card of a run folder."""
    if not path.is_file():
        raise BadRequestError(f"{path.parent} holds no corpus run (there is no {path.name}).")
    try:
        return Card.model_validate_json(path.read_bytes())
    except (ValidationError, OSError) as problem:
        raise BadRequestError(
            f"{path} is damaged or was written by another version: {_told(problem)}"
        ) from None


def checked_plan(**settings: Any) -> Plan:
    """A plan, or what is wrong with it in one line."""
    try:
        return Plan(**settings)
    except ValidationError as problem:
        raise BadRequestError(f"This cannot be planned: {_told(problem)}") from None


def told(problem: ValidationError) -> str:
    """The first complaint of a validation, with the name of what it is about."""
    first = problem.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _told(problem: Exception) -> str:
    return told(problem) if isinstance(problem, ValidationError) else str(problem)


def as_json(value: Any) -> bytes:
    """The same bytes for the same value."""
    return (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def _flat(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
