"""Finds the tokens of a text that belong together, and the characters that each of them stands for.

A text is tokenised without the special tokens that a tokenizer adds around it. Neighbouring tokens
that are the text, a message of a conversation or the answer form a span.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from exhibit_a.subject.encoding import Tokenizer

Ids = tuple[int, ...]
Characters = tuple[int, int]  # start and stop in a text


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring tokens of the input that belong together."""

    kind: Literal["text", "message", "answer"]
    name: str  # the role of a message; empty otherwise
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Question:
    """A prompt without its answer."""

    ids: Ids
    text: str | None  # as the tokenizer was given it; None where it was encoded already
    spans: tuple[Span, ...]


def with_places(tokenizer: Tokenizer, text: str) -> tuple[Ids, list[Characters]]:
    """The tokens of a text without special ones, and the characters of each."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return tuple(encoded["input_ids"]), list(encoded["offset_mapping"])
    ids = ids_of(tokenizer, text)
    ends = [len(tokenizer.decode(ids[:count])) for count in range(len(ids) + 1)]
    return ids, list(pairwise(ends))


def ids_of(tokenizer: Tokenizer, text: str) -> Ids:
    """The tokens of a text without special ones."""
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
