"""Reads what a model learns from: labelled texts as tokens, and pairs of sentences."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example
from exhibit_a.examples.files import require_file
from exhibit_a.examples.labels import split_off
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.subject.encoding import NO_PAIRS, length_limit, separates

Pairs = list[tuple[str, str]]


def split(
    examples: Sequence[Example], fraction: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """The examples that remain, and a random part held out, both in the order of the data."""
    kept, held_out = split_off(len(examples), fraction, seed)
    return [examples[n] for n in sorted(kept)], [examples[n] for n in sorted(held_out)]


def label_numbers(model: PreTrainedModel) -> dict[str, int]:
    """The number of each label in the model's output."""
    return {name: int(number) for name, number in (model.config.label2id or {}).items()}


def encode(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    max_length: int,
) -> list[dict[str, Any]]:
    """Tokenise every example, truncated to what the model accepts; ``labels`` is its number."""
    if any(example.pair is not None for example in examples) and not separates(tokenizer):
        raise BadRequestError(NO_PAIRS)
    limit = min(max_length, length_limit(model, tokenizer) or max_length)
    numbers = label_numbers(model)
    encoded = []
    for example in examples:
        inputs = dict(tokenizer(example.text, example.pair, truncation=True, max_length=limit))
        if example.label is not None:
            inputs["labels"] = numbers[example.label]
        encoded.append(inputs)
    tokenizer("")  # a fast tokenizer remembers its last limit and would save it
    return encoded


def read_pairs(source: object) -> Pairs:
    """Pairs of a sentence and its translation: of two files, two lists, or a list of pairs.

    >>> read_pairs([("two dogs", "zwei Hunde")])
    [('two dogs', 'zwei Hunde')]
    >>> read_pairs((["two dogs", "a cat"], ["zwei Hunde"]))
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: There are 2 sentences and 1 translations; both must ...
    """
    if isinstance(source, tuple) and len(source) == 2:
        texts, translations = _lines(source[0]), _lines(source[1])
        if len(texts) != len(translations):
            raise BadRequestError(
                f"There are {len(texts)} sentences and {len(translations)} translations; both must "
                "have the same number of lines, and line n of one must translate line n of the "
                "other."
            )
        pairs = list(zip(texts, translations, strict=True))
    elif isinstance(source, Iterable) and not isinstance(source, str):
        pairs = [_pair(item, number) for number, item in enumerate(source, 1)]
    else:
        raise BadRequestError(
            f"Translation is learnt from two files (sentences, translations) or a list of pairs; "
            f"{type(source).__name__} was given."
        )
    if not pairs:
        raise BadRequestError("There is no sentence to learn from.")
    for number, pair in enumerate(pairs, 1):
        for side, text in zip(("sentence", "translation"), pair, strict=True):
            if not text.strip():
                raise BadRequestError(f"The {side} in line {number} is empty; remove the pair.")
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise BadRequestError(
                    f"Line {number} holds half a character (a lone surrogate); write it anew as "
                    "UTF-8."
                )
    return pairs


def _lines(source: object) -> list[str]:
    if isinstance(source, str | Path):
        path = Path(source)
        require_file(path)
        free = free_bytes(torch.device("cpu"))
        if (size := path.stat().st_size) > free // 8:  # bytes, then words
            raise BadRequestError(
                f"{path} has {size / 1e9:.1f} GB, too much for the memory that is free."
            )
        try:
            return path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
        except OSError as problem:
            raise BadRequestError(f"{path} cannot be read: {problem.strerror}.") from problem
        except UnicodeDecodeError as problem:
            line = problem.object[: problem.start].count(b"\n") + 1
            raise BadRequestError(
                f"{path} is not UTF-8: line {line} has byte {problem.object[problem.start]:#04x}. "
                "Convert it first (iconv -t UTF-8)."
            ) from problem
    if isinstance(source, Sequence):
        return [_text(line, number) for number, line in enumerate(source, 1)]
    raise BadRequestError(f"A file or a list of sentences was expected, found {source!r}.")


def _pair(item: object, number: int) -> tuple[str, str]:
    if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 2:
        raise BadRequestError(f"Item {number} is no pair of a sentence and its translation.")
    return _text(item[0], number), _text(item[1], number)


def _text(line: object, number: int) -> str:
    if not isinstance(line, str):
        raise BadRequestError(f"Item {number} is {type(line).__name__}, not text.")
    return line
