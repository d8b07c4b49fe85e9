"""Which method runs on which texts with which model, as data stored with the run.

A ``Plan`` fixes everything that decides a number: the method and its parameters, the seed, and
which examples share a batch. The ``Card`` adds the model, the data and the library versions. It is
written before the first shard, and only a run with the same card can be resumed.

The stream of examples is cut into ``Window``s of a fixed size. A window is the unit of work, of
loss (what a crash costs) and of output (one shard). It is identified by its number and by a digest
of its content: a resumed run reads the data again and must find the same windows.
"""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, JsonValue, PositiveInt, ValidationError
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example, Unusable
from exhibit_a.examples.columns import Columns
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.results.plain import JSON
from exhibit_a.subject.subject import Subject

SCHEMA = 2  # of run folders
LIBRARIES = ("exhibit_a", "torch", "transformers", "pyarrow", "duckdb")
PLANNED = ("seed", "dense", "window", "tokens", "too_long", "unusable")
COLUMNS = ("text", "pair", "label", "answer", "identity")


class _Fixed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Plan(_Fixed):
    """Everything that decides the numbers.

    Examples are processed in windows, in the order of the data; a window makes one shard. Within a
    window, texts of exactly the same length share batches of at most ``tokens`` tokens, so that
    nothing is padded. Neither depends on the engine or on the number of workers.
    """

    method: str
    parameters: dict[str, JsonValue] = {}
    seed: int = 0
    dense: bool = False  # also store whole maps, as safetensors
    window: PositiveInt = 1024
    tokens: PositiveInt = 2048
    too_long: Literal["truncate", "skip", "stop"] = "truncate"
    unusable: Literal["stop", "skip"] = "stop"


class Model(_Fixed):
    """Which model: a name can stand for other weights later, so their hash is stored too."""

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
    """Where the examples come from; without a source they were given as objects."""

    source: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    answer: str | None = None
    identity: str | None = None
    windows: tuple[str, ...] | None = None  # a digest of each, where the data can be read twice

    @property
    def columns(self) -> Columns:
        """The names of the columns, as ``stream_examples`` takes them."""
        return self.text, self.pair, self.label, self.answer


class Card(_Fixed):
    """A run: its plan, model, data and library versions."""

    card: int = SCHEMA
    plan: Plan
    model: Model
    data: Data
    versions: dict[str, str]
    device: str | None = None  # the kind of device on which the numbers are computed

    def differences(self, other: "Card") -> list[str]:
        """Every entry in which another card differs, as "name: stored here, other requested"."""
        stored, requested = (dict(_flat(card.model_dump(mode="json"))) for card in (self, other))
        return [
            f"{name}: {stored.get(name)!r} here, {requested.get(name)!r} requested"
            for name in sorted(stored.keys() | requested.keys())
            if stored.get(name) != requested.get(name)
        ]


def versions() -> dict[str, str]:
    """The libraries on which a number may depend."""
    return {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}


def weights_hash(model: torch.nn.Module) -> str:
    """A hash of the weights of a model, with their names, dtypes and shapes."""
    digest = hashlib.sha256()
    for name, stored in sorted(model.state_dict().items()):
        for weight in _ordinary(stored):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
            flat = weight.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _ordinary(stored: object) -> Iterator[Tensor]:
    """What a module stores as tensors of numbers: quantised layers store other things too."""
    if isinstance(stored, list | tuple):
        for part in stored:
            yield from _ordinary(part)
    elif isinstance(stored, Tensor) and hasattr(stored, "__tensor_flatten__"):
        names, _ = stored.__tensor_flatten__()
        for name in names:
            yield from _ordinary(getattr(stored, name))
    elif isinstance(stored, Tensor):
        yield stored.dequantize() if stored.is_quantized else stored


def checked_plan(**settings: JSON) -> Plan:
    """A plan with these settings; settings that are not valid are refused in one line."""
    try:
        plan = Plan.model_validate(settings)
    except ValidationError as problem:
        raise BadRequestError(f"This cannot be planned: {complaint(problem)}") from None
    require_seed(plan.seed)
    return plan


def complaint(problem: ValidationError) -> str:
    """The first error of a validation, after the name of the setting that it is about."""
    first = problem.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def digest(data: bytes) -> str:
    """The SHA-256 of bytes, the one hash of a run folder."""
    return hashlib.sha256(data).hexdigest()


def as_json(value: object) -> bytes:
    """JSON with sorted keys: the same bytes for the same value."""
    return (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode(
        "utf-8", "surrogatepass"
    )


@dataclass(frozen=True)
class Window:
    """Consecutive examples, the place of the first one, and the unusable rows among them."""

    number: int
    start: int
    examples: tuple[Example, ...]
    unusable: tuple[Unusable, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the content."""
        return digest(self.packed())

    def packed(self) -> bytes:
        """The window as bytes, for a worker on another machine."""
        return as_json(asdict(self))

    @classmethod
    def unpacked(cls, data: bytes) -> "Window":
        """The window that was packed."""
        packed = json.loads(data)
        examples = tuple(Example(**fields) for fields in packed["examples"])
        unusable = tuple(Unusable(**fields) for fields in packed["unusable"])
        return cls(packed["number"], packed["start"], examples, unusable)


def windows(stream: Iterable[Example | Unusable], size: int | None) -> Iterator[Window]:
    """The stream in windows of ``size`` examples, or all of it in one."""
    number = start = 0
    examples: list[Example] = []
    unusable: list[Unusable] = []
    for entry in stream:
        if isinstance(entry, Unusable):
            unusable.append(entry)
            continue
        if len(examples) == size:
            yield Window(number, start, tuple(examples), tuple(unusable))
            number, start = number + 1, start + len(examples)
            examples, unusable = [], []
        examples.append(entry)
    if examples or unusable:
        yield Window(number, start, tuple(examples), tuple(unusable))


def _flat(value: JSON, name: str = "") -> Iterator[tuple[str, JSON]]:
    """The entries of nested dictionaries, each under the path of its keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
