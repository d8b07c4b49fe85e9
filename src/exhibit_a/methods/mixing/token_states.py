"""How do the hidden states of any number of texts go by without ever being kept?

Texts are read in windows. Within a window, inputs of the same shape form a batch, so nothing is
padded and every family can be fed. Each text belongs to one part of the data (train, validation,
test) by the luck of a seeded draw; a pass over one part runs only the texts of that part, and only
up to the last layer that is looked at.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.examples import Example, iterate_examples
from exhibit_a.numerics.seeds import generator
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.guard import StopEarly, frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.layers import LayerRecorder

PARTS = {"train": 0.7, "validation": 0.15, "test": 0.15}
WINDOW = 2048  # texts that are sorted by shape together
TOKENS = 1024  # in one batch: larger ones are no faster on a CPU


@dataclass(frozen=True, eq=False)
class StateBatch:
    """Some texts of equal length: their hidden states and what their tokens are."""

    hidden: Float[Tensor, "layer text token d_model"]  # layer 0: the input of the first layer
    ids: Int[Tensor, "text token"]  # positions are numbered where there are no token ids
    special: Bool[Tensor, "text token"]
    real: Bool[Tensor, "text token"]


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts that can be read again and again, each in one part of the data."""

    source: Any
    seed: int

    def part(self, name: str) -> Iterator[Any]:
        """The texts of one part, in their order."""
        chance = generator(self.seed)
        for text in self._all():
            luck = float(torch.rand((), generator=chance))
            start = 0.0
            for other, share in PARTS.items():
                start += share
                if luck < start or other == "test":
                    if other == name:
                        yield text
                    break

    def _all(self) -> Iterator[Any]:
        if isinstance(self.source, Iterator):
            raise BadRequestError(
                "The texts are read several times, and an iterator can be read only once: give a "
                "list, a file, or a collection that starts anew each time."
            )
        if not isinstance(self.source, str | Path) and _encoded(self.source):
            yield from self.source
        else:
            yield from iterate_examples(self.source)


def states(subject: Subject, texts: Iterable[Any]) -> Iterator[StateBatch]:
    """The hidden states of the texts, a batch of equal shapes at a time."""
    waiting = iter(texts)
    while window := list(islice(waiting, WINDOW)):
        alike: dict[Any, list[dict[str, Any]]] = {}
        for text in window:
            inputs = _inputs(subject, text)
            shape = tuple((k, v.shape) for k, v in inputs.items() if isinstance(v, Tensor))
            alike.setdefault(shape, []).append(inputs)
        for group in alike.values():
            length = max(v.shape[-1] for v in group[0].values() if isinstance(v, Tensor))
            size = max(1, TOKENS // length)
            for start in range(0, len(group), size):
                yield _run(subject, _joined(group[start : start + size]))


@torch.no_grad()
def _run(subject: Subject, inputs: dict[str, Any]) -> StateBatch:
    """One batch through the first stack of the model."""
    model, anatomy = subject.model, subject.anatomy
    stack = anatomy.sites[0].stack
    layers = [layer for layer in anatomy.layers if layer.stack == stack]
    recorder = LayerRecorder(enough=len(layers))
    with suppress(StopEarly), frozen_eval(model), recorder.watching(model, layers):
        model(**without_cache(model, inputs))
    seen = [given for given in recorder.inputs if given is not None]
    hidden = torch.stack([*seen, recorder.states[-1]]).float().cpu()
    if not bool(hidden.isfinite().all()):
        raise BrokenInvariantError("A hidden state is NaN or infinite; no numbers are given.")
    count, tokens = hidden.shape[1:3]
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if ids is None:
        _, special = positions(subject.tokenizer, None, tokens)
        ids, marks = torch.arange(tokens).expand(count, -1), special.expand(count, -1)
    else:
        marks = torch.stack([positions(subject.tokenizer, row, tokens)[1] for row in ids.cpu()])
    real = torch.ones(count, tokens, dtype=torch.bool)
    if mask is not None and mask.shape == real.shape:
        real = mask.bool().cpu()
    return StateBatch(hidden, ids.cpu(), marks, real)


def _inputs(subject: Subject, text: Any) -> dict[str, Any]:
    if isinstance(text, Example):
        return subject.encode(text.text, text.pair, truncate=True)
    return subject.encode(text, truncate=True)


def _joined(group: list[dict[str, Any]]) -> dict[str, Any]:
    first = group[0]
    return {
        name: torch.cat([one[name] for one in group]) if isinstance(part, Tensor) else part
        for name, part in first.items()
    }


def _encoded(source: Iterable[Any]) -> bool:
    """Whether these are encoded inputs or images rather than texts."""
    first = next(iter(source), None)
    if isinstance(first, Mapping):
        return any(isinstance(part, Tensor) for part in first.values())
    return not isinstance(first, str | Example | tuple | list | None)
