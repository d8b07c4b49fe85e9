"""Which function draws this result?"""

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from exhibit_a.errors import BadRequestError
from exhibit_a.results.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@singledispatch
def figure(result: Result, **options: Any) -> "Figure":  # noqa: ARG001
    """Draw a result; kinds that have a picture are registered beside this."""
    raise BadRequestError(f"{type(result).__name__} has no plot. Draw from to_pandas() instead.")
