"""Everything that can go wrong, in four words a user can act on.

A message says what was requested, what was found instead, and what to do next.
"""

import re
from collections.abc import Iterable

_TOO_MUCH = re.compile("overflow|can't allocate|not enough memory|out of memory", re.I)


class ExhibitError(Exception):
    """Root of every error raised on purpose; the command line prints it without a traceback."""


class UnsupportedModelError(ExhibitError):
    """The model keeps something where we cannot reach it, and the message says why."""


class BadRequestError(ExhibitError):
    """The caller requested a layer, label, file or method that does not exist."""


class NotComputableError(ExhibitError):
    """The method's own mathematics does not apply to this input."""


class BrokenInvariantError(ExhibitError):
    """A self-check failed, so no numbers are given."""


KINDS = {
    kind.__name__: kind
    for kind in (
        ExhibitError,
        UnsupportedModelError,
        BadRequestError,
        NotComputableError,
        BrokenInvariantError,
    )
}


def of_kind(name: str, message: str) -> ExhibitError:
    """An error that came from another process, of the kind it had there."""
    return KINDS.get(name, ExhibitError)(message)


def kind_of(problem: ExhibitError) -> str:
    """The name of the kind of an error: its own, or that of the nearest kind it extends."""
    return next(cls.__name__ for cls in type(problem).__mro__ if cls.__name__ in KINDS)


def first_line(problem: BaseException) -> str:
    """What an error of another library says, in one line.

    >>> first_line(ValueError("Validation error:\\n  TypeError: not a number\\nmore"))
    'Validation error: TypeError: not a number'
    """
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])


def asks_too_much(problem: BaseException) -> bool:
    """Whether an error says that a number is too large, for its type or for the memory there is.

    >>> asks_too_much(RuntimeError("Storage size calculation overflowed with sizes=[10]"))
    True
    """
    if isinstance(problem, RuntimeError | TypeError | ValueError):  # torch has no type for it
        return _TOO_MUCH.search(str(problem)) is not None
    return isinstance(problem, MemoryError | OverflowError)


def require_choice(what: str, requested: object, choices: Iterable[str]) -> None:
    """Refuse a word that is none of the choices, and list them."""
    known = tuple(choices)
    if requested not in known:
        raise BadRequestError(f"There is no {what} {requested!r}; choose {', '.join(known)}.")
