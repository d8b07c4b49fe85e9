"""Chooses what a result is shown over: words, or the tokens of a tokenizer.

A result is shown over the words of its text wherever the tokenizer knows which characters its
tokens stand for; ``by`` asks for other units, "token" among them. What has no words (no text, ids
without their text, numbers that cannot be added up) is shown over its tokens, unless words were
requested by name: then the reason is an error.
"""

from typing import TypeVar

from exhibit_a.errors import NotComputableError
from exhibit_a.results.result import Result
from exhibit_a.trace.units import UnitSpec

USUAL = "word"
TOKEN = "token"

Kind = TypeVar("Kind", bound=Result)


def reading(result: Kind, by: UnitSpec | None = None) -> Kind:
    """The result over the units that a person reads; without ``by`` over words, if it has any.

    >>> raw = xa.companions(xa.capture(subject, "it never drags"), methods=["raw"])["raw"]
    >>> reading(raw).tokens
    ('[CLS]', 'it', 'never', 'drags', '[SEP]')
    >>> reading(raw, "token").tokens
    ('[CLS]', 'it', 'never', 'drag', '##s', '[SEP]')
    """
    if by == unit_of(result) or (by is None and not has_words(result)):
        return result
    try:
        return result.by(USUAL if by is None else by)
    except NotComputableError:
        if by is None:
            return result
        raise


def has_words(result: Result) -> bool:
    """Whether a result is over tokens whose places in their text are certain.

    The places of a picture are counted in tokens, so what looks at one stays over tokens.
    """
    layouts = result.layouts.values()
    return (
        bool(layouts)
        and result.scene is None
        and all(
            layout.unit == TOKEN and not layout.warning and any(layout.spans) for layout in layouts
        )
    )


def unit_of(result: Result) -> str:
    """What the positions of a result are: tokens, unless it was put over units."""
    return next((layout.unit for layout in result.layouts.values()), TOKEN)
