"""Reads the hidden states of any number of texts without keeping them.

Texts are read in windows. Within a window, inputs of the same shape form a batch, so that nothing
has to be padded, which not every family allows. Each text belongs to one split of the data (train,
validation, test) by a seeded draw; a pass over a split runs only the texts of that split, and only
up to the last layer that is needed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.examples import Example, iterate_examples
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Inputs
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.guard import StopEarly, frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.passes import LayerRecorder

Split = Literal["train", "validation", "test"]
Source = str | Path | Iterable[object]  # a file, texts, examples, encoded inputs or images

SPLITS: dict[Split, float] = dict(zip(get_args(Split), (0.7, 0.15, 0.15), strict=True))
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
    """Texts that can be read again and again, each in one split of the data."""

    source: Source
    seed: int

    def split(self, name: Split) -> Iterator[object]:
        """The texts of one split, in their order."""
        chance = generator(self.seed)
        for text in self._all():
            if _split_at(float(torch.rand((), generator=chance))) == name:
                yield text

    def _all(self) -> Iterator[object]:
        if isinstance(self.source, Iterator):
            raise BadRequestError(
                "The texts are read several times, and an iterator can be read only once: give a "
                "list, a file, or a collection that starts anew each time."
            )
        if not isinstance(self.source, str | Path) and _encoded(self.source):
            yield from self.source
        else:
            yield from iterate_examples(self.source)


def states(subject: Subject, texts: Iterable[object]) -> Iterator[StateBatch]:
    """The hidden states of the texts, a batch of equal shapes at a time."""
    waiting = iter(texts)
    while window := list(islice(waiting, WINDOW)):
        alike: dict[tuple[tuple[str, torch.Size], ...], list[Inputs]] = {}
        for text in window:
            inputs = _inputs(subject, text)
            shapes = tuple((k, v.shape) for k, v in inputs.items() if isinstance(v, Tensor))
            alike.setdefault(shapes, []).append(inputs)
        for shapes, group in alike.items():
            size = max(1, TOKENS // max(shape[-1] for _, shape in shapes))
            for start in range(0, len(group), size):
                yield _run(subject, _joined(group[start : start + size]))


def _split_at(draw: float) -> Split:
    """The split that a number between 0 and 1 falls into."""
    end = 0.0
    for split, share in SPLITS.items():
        end += share
        if draw < end:
            return split
    return "test"  # rounding


@torch.no_grad()
def _run(subject: Subject, inputs: Inputs) -> StateBatch:
    """One batch through the first stack of the model."""
    model, anatomy = subject.model, subject.anatomy
    stack = anatomy.main_stack
    layers = [layer for layer in anatomy.layers if layer.stack == stack]
    recorder = LayerRecorder(enough=len(layers))
    with suppress(StopEarly), frozen_eval(model), recorder.watching(model, layers):
        model(**without_cache(model, inputs))
    layer_inputs = [states for states in recorder.inputs if states is not None]
    hidden = torch.stack([*layer_inputs, recorder.states[-1]]).float().cpu()
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


def _inputs(subject: Subject, text: object) -> Inputs:
    """Model inputs for a text, an example, encoded inputs or an image."""
    if isinstance(text, Example):
        return subject.encode(text.text, text.pair, truncate=True)
    return subject.encode(text, truncate=True)


def _joined(group: list[Inputs]) -> Inputs:
    """Inputs of the same shapes as one batch."""
    return {
        name: torch.cat([inputs[name] for inputs in group]) if isinstance(value, Tensor) else value
        for name, value in group[0].items()
    }


def _encoded(source: Iterable[object]) -> bool:
    """Whether these are encoded inputs or images rather than texts."""
    first = next(iter(source), None)
    if isinstance(first, Mapping):
        return any(isinstance(value, Tensor) for value in first.values())
    return not isinstance(first, str | Example | tuple | list | None)
