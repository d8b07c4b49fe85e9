"""How does a window of examples become a shard?

1. Every text is encoded; one that is too long is cut, left out or refused, as planned.
2. Texts of exactly the same length share batches, so that nothing is padded and no text's numbers
   depend on how long its neighbours are.
3. The method answers for every batch. A batch in which a text fails is asked again one by one, and
   the failing texts are named.
4. The findings are put back into the order of the data and written as bytes.

All of it on one thread: sums over many threads depend on how many there are.
"""

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from exhibit_a.corpus.findings import RESULT, Found, files_of, rows_of
from exhibit_a.corpus.methods import Question, TextMethod, Texts, method_named
from exhibit_a.corpus.plan import Card, Model
from exhibit_a.corpus.set_methods import SetMethod
from exhibit_a.corpus.windows import Window
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError
from exhibit_a.examples import Example, Unusable
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.subject import Subject, load

TIDY = 4  # batches between two times that memory is given back
LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Shard:
    """The files of one window as bytes, by kind, and the receipt that vouches for them."""

    receipt: dict[str, Any]
    files: dict[str, bytes]

    @property
    def number(self) -> int:
        """The number of its window."""
        return int(self.receipt["shard"])


@dataclass(frozen=True, eq=False)
class _Encoded:
    number: int
    example: Example
    inputs: dict[str, Any]
    names: tuple[str, ...]
    special: Tensor
    truncated: bool


class _TooLongError(BadRequestError):
    """A text could be used if it were shorter, and it must not be cut."""


class Worker:
    """A model that waits for windows."""

    def __init__(self, card: Card, subject: Subject | None = None, device: str | None = None):
        self.card = card
        self.subject = subject or _reloaded(card.model, device)
        self.method = method_named(card.plan.method, dict(card.plan.parameters))
        self.question: Question | None = None
        if isinstance(self.method, TextMethod):
            with one_thread():
                self.question = self.method.prepared(self.subject, card.plan)

    def __call__(self, window: Window) -> Shard:
        """The shard of a window."""
        if isinstance(self.method, SetMethod):
            with one_thread():
                data = self.method.file(self.subject, list(window.examples), self.card.plan)
            files = {RESULT: data}
            count = len(window.examples)
            return Shard(receipt_of(window, count, window.unusable, files), files)
        with one_thread():
            encoded, unusable, too_long = self._encode(window)
            found: list[Found] = []
            for number, group in enumerate(_batches(encoded, self.card.plan.tokens)):
                some, refused = self._found(group)
                found += some
                unusable += refused
                if number % TIDY == 0:
                    give_back()
        if unusable and self.card.plan.unusable == "stop":
            raise BadRequestError(str(unusable[0]))
        found.sort(key=lambda one: one.number)
        files = files_of(found, self.subject.anatomy.sites, window.number)
        return Shard(receipt_of(window, len(found), unusable + too_long, files), files)

    def _encode(self, window: Window) -> tuple[list[_Encoded], list[Unusable], list[Unusable]]:
        """The inputs of every example that can be used, those that cannot, and those too long."""
        encoded, unusable, too_long = [], list(window.unusable), []
        for place, example in enumerate(window.examples):
            try:
                inputs, cut = self._inputs(example)
            except _TooLongError as problem:
                if self.card.plan.too_long == "stop":
                    raise BadRequestError(f"Example {example.id}: {problem}") from None
                too_long.append(Unusable(f"Example {example.id}", _reason(problem)))
                continue
            except BadRequestError as problem:
                unusable.append(Unusable(f"Example {example.id}", _reason(problem)))
                continue
            ids = inputs["input_ids"][0]
            names, special = positions(self.subject.tokenizer, ids, len(ids))
            encoded.append(_Encoded(window.start + place, example, inputs, names, special, cut))
        return encoded, unusable, too_long

    def _inputs(self, example: Example) -> tuple[dict[str, Any], bool]:
        """Inputs, and whether the text had to be cut."""
        try:
            return self.subject.encode(example.text, example.pair), False
        except BadRequestError as problem:
            cut = self.subject.encode(example.text, example.pair, truncate=True)
            if self.card.plan.too_long == "truncate":
                return cut, True
            raise _TooLongError(str(problem)) from None

    def _found(self, group: Sequence[_Encoded]) -> tuple[list[Found], list[Unusable]]:
        """What is found about texts of one length; texts that fail are named."""
        special = torch.stack([one.special for one in group]).to(self.subject.device)
        texts = Texts(
            self.subject, [one.inputs for one in group], [one.number for one in group], special
        )
        try:
            assert self.question is not None
            findings = self.question(texts)
        except (BrokenInvariantError, LinAlgError) as problem:
            if len(group) == 1:
                return [], [Unusable(f"Example {group[0].example.id}", _reason(problem))]
            singly = [self._found([one]) for one in group]
            return [one for part in singly for one in part[0]], [
                one for part in singly for one in part[1]
            ]
        parts = rows_of(findings, len(group))
        return [
            Found(one.number, one.example, one.names, one.truncated, **part)
            for one, part in zip(group, parts, strict=True)
        ], []


def receipt_of(
    window: Window, examples: int, unusable: Sequence[Unusable], files: dict[str, bytes]
) -> dict[str, Any]:
    """What vouches for a shard: whose it is, what it holds, and the hash of every file."""
    return {
        "shard": window.number,
        "window": window.digest,
        "examples": examples,
        "unusable": [asdict(one) for one in unusable],
        "files": {kind: hashlib.sha256(data).hexdigest() for kind, data in sorted(files.items())},
    }


def _batches(encoded: Sequence[_Encoded], tokens: int) -> Iterator[list[_Encoded]]:
    """Texts of one length, as many together as make ``tokens`` tokens, shortest first."""
    by_length: dict[int, list[_Encoded]] = {}
    for one in encoded:
        by_length.setdefault(len(one.names), []).append(one)
    for length in sorted(by_length):
        size = max(1, tokens // length)
        same = by_length[length]
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _reloaded(model: Model, device: str | None) -> Subject:
    """The model of a card, loaded by its name; it must be the very same."""
    subject = load(model.name, dtype=model.dtype, tap=model.tap, device=device)
    if (found := Model.of(subject)) != model:
        differ = [
            name for name in Model.model_fields if getattr(found, name) != getattr(model, name)
        ]
        raise BadRequestError(
            f"{model.name!r} does not load the model that this run is about: its "
            f"{', '.join(differ)} differ. Save the model to a folder and give that."
        )
    return subject


def _reason(problem: Exception) -> str:
    return (
        f"cannot be used: {problem}" if isinstance(problem, ExhibitError) else f"failed: {problem}"
    )


def give_back() -> None:
    """Return unused memory to the system, where the C library can.

    Batches of many shapes leave holes between what is in use, and a process that only ever reuses
    them grows by a megabyte and more with every thousand texts.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
