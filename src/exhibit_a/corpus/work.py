"""A window of examples is made into a shard: the method runs, and its findings become files.

1. Every text is encoded; one that is too long is cut, left out or refused, as planned.
2. Texts of exactly the same length share batches, so that nothing is padded and no text's numbers
   depend on the length of the others.
3. The method runs on every batch. If a batch fails, its texts are run one by one, and those that
   fail are named.
4. The findings are put back into the order of the data and become two tables (one row for each
   example; one for each example, site and head) and, if there are maps, one safetensors file.

All of it runs on one thread: sums over several threads depend on how many there are. The same
window gives the same bytes, whoever does the work.
"""

import ctypes
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
import transformers
from torch import Tensor

from exhibit_a.corpus.plan import Card, Model, Window, digest
from exhibit_a.corpus.tasks import CorpusTask, SetTask, TextBatch, TextTask, task_named
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError
from exhibit_a.examples import Example, Unusable
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.answers import prompt_of

EXAMPLES, HEADS, DENSE, RESULT = "examples", "heads", "dense", "result"
ENDINGS = {
    EXAMPLES: ".parquet",
    HEADS: ".parquet",
    DENSE: ".safetensors",
    RESULT: ".safetensors",
}
PER_TOKEN = "token_"  # how the name of a list with one number for each token begins
TRIM_EVERY = 4  # batches after which unused memory is returned to the system
LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


class Receipt(TypedDict):
    """What a shard is made from, what it holds, and the hash of every file."""

    shard: int
    window: str  # its digest
    examples: int
    unusable: list[dict[str, str]]  # where, and the reason
    files: dict[str, str]  # the hash, by kind


@dataclass(frozen=True, eq=False)
class Shard:
    """The files of one window as bytes, by kind, and their receipt."""

    receipt: Receipt
    files: dict[str, bytes]

    @property
    def number(self) -> int:
        """The number of its window."""
        return int(self.receipt["shard"])


class Encoded(NamedTuple):
    """An example with its place in the data and its tokens."""

    number: int
    example: Example
    prompt: Prompt
    names: tuple[str, ...]
    special: Tensor
    truncated: bool


class ExampleFindings(NamedTuple):
    """What was found about one text."""

    text: Encoded
    numbers: dict[str, str | float]
    lists: dict[str, Sequence[float]]
    heads: dict[str, np.ndarray]  # of all sites, one after the other
    dense: dict[str, Tensor]


class _TooLongError(BadRequestError):
    """A text is too long for the model, and the plan forbids to truncate it."""


class Worker:
    """Loads the model once and processes windows."""

    def __init__(self, card: Card, subject: Subject | None = None, device: str | None = None):
        self.card = card
        if subject is None:  # loaded by its name; one with other weights is refused
            model = card.model
            subject = load(model.name, dtype=model.dtype, tap=model.tap, device=device)
            loaded = dict(Model.of(subject))
            other = [name for name, fact in model if loaded[name] != fact]
            if other:
                raise BadRequestError(
                    f"{model.name!r} does not load the model that this run is about: its "
                    f"{', '.join(other)} differ. Save the model to a folder and give that."
                )
        self.subject = subject
        self.task = task_named(card.plan.method, dict(card.plan.parameters))
        self.question: CorpusTask | None = None
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
        findings.sort(key=lambda one: one.text.number)
        files = files_of(findings, self.subject.anatomy.sites, window.number)
        return Shard(receipt_of(window, len(findings), unusable + too_long, files), files)

    def _encode(self, window: Window) -> tuple[list[Encoded], list[Unusable], list[Unusable]]:
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
            encoded.append(Encoded(window.start + place, example, prompt, names, special, cut))
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

    def _findings(self, group: Sequence[Encoded]) -> tuple[list[ExampleFindings], list[Unusable]]:
        """The findings about texts of one length, and the texts on which the method fails."""
        special = torch.stack([text.special for text in group]).to(self.subject.device)
        texts = TextBatch(
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
        heads = {
            name: torch.cat([site.float() for site in sites], 1).numpy(force=True)
            for name, sites in findings.heads.items()
        }
        return [
            ExampleFindings(
                text,
                {name: column[row] for name, column in findings.numbers.items()},
                {name: column[row] for name, column in findings.lists.items()},
                {name: numbers[row] for name, numbers in heads.items()},
                findings.dense[row] if findings.dense else {},
            )
            for row, text in enumerate(group)
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
    }


def files_of(
    findings: Sequence[ExampleFindings], sites: Sequence[Site], shard: int
) -> dict[str, bytes]:
    """The files of a window's findings, by kind."""
    files = {EXAMPLES: parquet(_examples(findings, shard))}
    if findings and findings[0].heads:
        files[HEADS] = parquet(_heads(findings, sites))
    if findings and findings[0].dense:
        tensors = {
            f"{one.text.number}/{name}": tensor.contiguous()
            for one in findings
            for name, tensor in one.dense.items()
        }
        files[DENSE] = safetensors.torch.save(tensors)
    return files


def parquet(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    # Text repeats, so that a dictionary saves space there; elsewhere it only costs.
    texts = [
        field.name
        for field in table.schema
        if pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    ]
    pq.write_table(
        table, buffer, compression="zstd", use_dictionary=texts, write_page_checksum=True
    )
    return buffer.getvalue()


def _examples(findings: Sequence[ExampleFindings], shard: int) -> pa.Table:
    texts = [one.text for one in findings]
    columns: dict[str, pa.Array] = {
        "example": pa.array([text.number for text in texts], pa.int64()),
        "id": pa.array([text.example.id for text in texts], pa.string()),
        "shard": pa.array([shard] * len(texts), pa.int32()),
        "label": pa.array([text.example.label for text in texts], pa.string()),
        "tokens": pa.array([list(text.names) for text in texts], pa.list_(pa.string())),
        "length": pa.array([len(text.names) for text in texts], pa.int32()),
        "truncated": pa.array([text.truncated for text in texts], pa.bool_()),
    }
    if findings:
        for name, first in findings[0].numbers.items():
            kind = pa.string() if isinstance(first, str) else pa.float64()
            columns[name] = pa.array([one.numbers[name] for one in findings], kind)
        for name in findings[0].lists:
            rows = [one.lists[name] for one in findings]
            # as long as the text: another type, which is not averaged place by place
            list_of = pa.large_list if name.startswith(PER_TOKEN) else pa.list_
            columns[name] = pa.array(rows, list_of(pa.float32()))
    return pa.table(columns)


def _heads(findings: Sequence[ExampleFindings], sites: Sequence[Site]) -> pa.Table:
    """Every head of every site of every example, in this order."""
    count, heads = len(findings), [site.heads for site in sites]
    place = np.arange(count).repeat(sum(heads))
    ids = pa.array([one.text.example.id for one in findings], pa.string())
    columns: dict[str, pa.Array] = {
        "example": pa.array(np.array([one.text.number for one in findings])[place], pa.int64()),
        "id": pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), ids),
        "site": pa.array(np.tile(_repeated([s.index for s in sites], heads), count)),
        "layer": pa.array(np.tile(_repeated([s.layer for s in sites], heads), count)),
        "head": pa.array(
            np.tile(np.concatenate([np.arange(n, dtype=np.int16) for n in heads]), count)
        ),
    }
    for name in findings[0].heads:
        values = np.concatenate([one.heads[name] for one in findings])
        columns[name] = pa.array(values, pa.float32())
    return pa.table(columns)


def _repeated(numbers: list[int], times: list[int]) -> np.ndarray:
    return np.repeat(np.array(numbers, dtype=np.int16), times)


def _batches(encoded: Sequence[Encoded], tokens: int) -> Iterator[list[Encoded]]:
    """Texts of one length, as many together as make ``tokens`` tokens, shortest first."""
    by_length: dict[int, list[Encoded]] = {}
    for text in encoded:
        by_length.setdefault(len(text.names), []).append(text)
    for length in sorted(by_length):
        size = max(1, tokens // length)
        same = by_length[length]
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _reason(problem: Exception) -> str:
    return (
        f"cannot be used: {problem}" if isinstance(problem, ExhibitError) else f"failed: {problem}"
    )


def prepare_process() -> None:
    """One thread of torch, and no words from transformers, in a process that only works."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def return_memory() -> None:
    """Return unused memory to the system, where the C library can.

    Batches of many shapes fragment the memory, and a process that only reuses the fragments grows
    by a megabyte and more with every thousand texts.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
