"""Which sentence translates which? Two texts, one sentence a line, the same number of lines.

A pair of files, a pair of lists, or a list of pairs. What is wrong with them is told in one line,
before anything is learnt: other numbers of lines, a line that is empty, bytes that are no UTF-8.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.files import require_file
from exhibit_a.numerics.memory import free_bytes

Pairs = list[tuple[str, str]]


def read_pairs(source: object) -> Pairs:
    """Pairs of a sentence and its translation.

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
        if not (pair[0].strip() and pair[1].strip()):
            side = "sentence" if not pair[0].strip() else "translation"
            raise BadRequestError(f"The {side} in line {number} is empty; remove the pair.")
        if not "".join(pair).isascii() and any(map(_is_half, "".join(pair))):
            raise BadRequestError(
                f"Line {number} holds half a character (a lone surrogate); write it anew as UTF-8."
            )
    return pairs


def _lines(source: object) -> list[str]:
    if isinstance(source, str | Path):
        return _lines_of_file(Path(source))
    if isinstance(source, Sequence):
        return [_text(line, number) for number, line in enumerate(source, 1)]
    raise BadRequestError(f"A file or a list of sentences was expected, found {source!r}.")


def _lines_of_file(path: Path) -> list[str]:
    require_file(path)
    if (size := path.stat().st_size) > free_bytes(torch.device("cpu")) // 8:  # bytes, then words
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


def _pair(item: object, number: int) -> tuple[str, str]:
    if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 2:
        raise BadRequestError(f"Item {number} is no pair of a sentence and its translation.")
    return _text(item[0], number), _text(item[1], number)


def _text(line: object, number: int) -> str:
    if not isinstance(line, str):
        raise BadRequestError(f"Item {number} is {type(line).__name__}, not text.")
    return line


def _is_half(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"
