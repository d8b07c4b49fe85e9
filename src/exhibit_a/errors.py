"""Everything that can go wrong, in four words a user can act on.

A message says what was asked, what was found instead, and what to do next.
"""


class ExhibitError(Exception):
    """Root of every error raised on purpose; the command line prints it without a traceback."""


class UnsupportedModelError(ExhibitError):
    """The model keeps something where we cannot reach it, and the message says why."""


class BadRequestError(ExhibitError):
    """The caller asked for a layer, label, file or method that does not exist."""


class NotComputableError(ExhibitError):
    """The method's own mathematics does not apply to this input."""


class BrokenInvariantError(ExhibitError):
    """A self-check failed, so no numbers are given."""


def first_line(problem: Exception) -> str:
    """What an error of somebody else's says, in one line."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
