"""A window of examples, made into a shard.

1. Every text is encoded; one that is too long is cut, left out or refused, as planned.
2. Texts of exactly the same length share batches, so that nothing is padded and no text's numbers
   depend on the length of the others.
3. The method runs on every batch. If a batch fails, its texts are run one by one, and those that
   fail are named.
4. The findings are put back into the order of the data and encoded as files.

All of it runs on one thread: sums over several threads depend on how many there are.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NotRequired, TypedDict

import torch
from torch import Tensor

from exhibit_a.corpus.findings import RESULT, ExampleFindings, files_of, rows_of
from exhibit_a.corpus.plan import Card, Model
from exhibit_a.corpus.seals import digest, quick_digest
from exhibit_a.corpus.tasks import Question, SetTask, Texts, TextTask, task_named
from exhibit_a.corpus.windows import PackedUnusable, Window
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError
from exhibit_a.examples import Example, Unusable
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.answers import prompt_of

TRIM_EVERY = 4  # batches after which unused memory is returned to the system
LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


class Receipt(TypedDict):
    """What a shard is made from, what it holds, and the hash of every file."""

    shard: int
    window: str  # its digest
    examples: int
    unusable: list[PackedUnusable]
    files: dict[str, str]  # the hash, by kind
    quick: NotRequired[dict[str, str]]  # the faster hash; version 0.1.0 had none


@dataclass(frozen=True, eq=False)
class Shard:
    """The files of one window as bytes, by kind, and their receipt."""

    receipt: Receipt
    files: dict[str, bytes]

    @property
    def number(self) -> int:
        """The number of its window."""
        return int(self.receipt["shard"])


@dataclass(frozen=True, eq=False)
class _Encoded:
    number: int
    example: Example
    prompt: Prompt
    names: tuple[str, ...]
    special: Tensor
    truncated: bool


class _TooLongError(BadRequestError):
    """A text is too long for the model, and the plan forbids to truncate it."""


class Worker:
    """Loads the model once and processes windows."""

    def __init__(self, card: Card, subject: Subject | None = None, device: str | None = None):
        self.card = card
        self.subject = subject or _reloaded(card.model, device)
        self.task = task_named(card.plan.method, dict(card.plan.parameters))
        self.question: Question | None = None
        if isinstance(self.task, TextTask):
            with one_thread():
                self.question = self.task.prepared(self.subject, card.plan)

    def __call__(self, window: Window) -> Shard:
        """The shard of a window."""
        if isinstance(self.task, SetTask):
            with one_thread():
                data = self.task.file(self.subject, list(window.examples), self.card.plan)
            files = {RESULT: data}
            count = len(window.examples)
            return Shard(receipt_of(window, count, window.unusable, files), files)
        with one_thread():
            encoded, unusable, too_long = self._encode(window)
            findings: list[ExampleFindings] = []
            for number, group in enumerate(_batches(encoded, self.card.plan.tokens)):
                usable, failed = self._findings(group)
                findings += usable
                unusable += failed
                if number % TRIM_EVERY == 0:
                    return_memory()
        if unusable and self.card.plan.unusable == "stop":
            raise BadRequestError(str(unusable[0]))
        findings.sort(key=lambda text: text.number)
        files = files_of(findings, self.subject.anatomy.sites, window.number)
        return Shard(receipt_of(window, len(findings), unusable + too_long, files), files)

    def _encode(self, window: Window) -> tuple[list[_Encoded], list[Unusable], list[Unusable]]:
        """The inputs of every example that can be used, those that cannot, and those too long."""
        encoded, unusable, too_long = [], list(window.unusable), []
        for place, example in enumerate(window.examples):
            try:
                prompt, cut = self._prompt(example)
            except _TooLongError as problem:
                if self.card.plan.too_long == "stop":
                    raise BadRequestError(f"Example {example.id}: {problem}") from None
                too_long.append(Unusable(f"Example {example.id}", _reason(problem)))
                continue
            except BadRequestError as problem:
                unusable.append(Unusable(f"Example {example.id}", _reason(problem)))
                continue
            ids = prompt.inputs["input_ids"][0]
            names, special = positions(self.subject.tokenizer, ids, len(ids))
            encoded.append(_Encoded(window.start + place, example, prompt, names, special, cut))
        return encoded, unusable, too_long

    def _prompt(self, example: Example) -> tuple[Prompt, bool]:
        """The inputs of an example with its answer, and whether its text was truncated."""
        try:
            return prompt_of(self.subject, example, truncate=False), False
        except BadRequestError as problem:
            cut = prompt_of(self.subject, example, truncate=True)
            if self.card.plan.too_long == "truncate":
                return cut, True
            raise _TooLongError(str(problem)) from None

    def _findings(self, group: Sequence[_Encoded]) -> tuple[list[ExampleFindings], list[Unusable]]:
        """The findings about texts of one length, and the texts on which the method fails."""
        special = torch.stack([text.special for text in group]).to(self.subject.device)
        texts = Texts(
            self.subject, [text.prompt for text in group], [text.number for text in group], special
        )
        try:
            assert self.question is not None
            findings = self.question(texts)
        except (BrokenInvariantError, LinAlgError) as problem:
            if len(group) == 1:
                return [], [Unusable(f"Example {group[0].example.id}", _reason(problem))]
            usable, failed = zip(*(self._findings([text]) for text in group), strict=True)
            return list(chain.from_iterable(usable)), list(chain.from_iterable(failed))
        return [
            ExampleFindings(text.number, text.example, text.names, text.truncated, row)
            for text, row in zip(group, rows_of(findings, len(group)), strict=True)
        ], []


def receipt_of(
    window: Window, examples: int, unusable: Sequence[Unusable], files: dict[str, bytes]
) -> Receipt:
    """The receipt of a window's shard."""
    return {
        "shard": window.number,
        "window": window.digest,
        "examples": examples,
        "unusable": [{"where": row.where, "reason": row.reason} for row in unusable],
        "files": {kind: digest(data) for kind, data in sorted(files.items())},
        "quick": {kind: quick_digest(data) for kind, data in sorted(files.items())},
    }


def _batches(encoded: Sequence[_Encoded], tokens: int) -> Iterator[list[_Encoded]]:
    """Texts of one length, as many together as make ``tokens`` tokens, shortest first."""
    by_length: dict[int, list[_Encoded]] = {}
    for text in encoded:
        by_length.setdefault(len(text.names), []).append(text)
    for length in sorted(by_length):
        size = max(1, tokens // length)
        same = by_length[length]
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _reloaded(model: Model, device: str | None) -> Subject:
    """The model of a card, loaded by its name; one with other weights is refused."""
    subject = load(model.name, dtype=model.dtype, tap=model.tap, device=device)
    loaded = Model.of(subject)
    fields = [name for name in Model.model_fields if getattr(loaded, name) != getattr(model, name)]
    if fields:
        raise BadRequestError(
            f"{model.name!r} does not load the model that this run is about: its "
            f"{', '.join(fields)} differ. Save the model to a folder and give that."
        )
    return subject


def _reason(problem: Exception) -> str:
    return (
        f"cannot be used: {problem}" if isinstance(problem, ExhibitError) else f"failed: {problem}"
    )


def return_memory() -> None:
    """Return unused memory to the system, where the C library can.

    Batches of many shapes fragment the memory, and a process that only reuses the fragments grows
    by a megabyte and more with every thousand texts.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
