"""Who draws a result, and who knows its class? Whoever offers to, by entry point.

Results stand to the left of everything that shows them, so they do not import it. They ask for it
by what it does, and the package that offers it says so in its metadata, in the group
``exhibit_a.providers``:

names      a class or function by its public name
page       a result as one HTML file
figure     a result as a matplotlib figure
screen     a result as a summary in the terminal
notebook   a result as HTML without scripts
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from exhibit_a.errors import ExhibitError

GROUP = "exhibit_a.providers"


@cache
def provider(name: str) -> Callable[..., Any]:
    """Whoever offers ``name``.

    >>> provider("names")("Result").__name__
    'Result'
    """
    for offer in entry_points(group=GROUP, name=name):
        found: Callable[..., Any] = offer.load()
        return found
    raise ExhibitError(
        f"Nothing offers {name!r} to results: the installation is incomplete or older than the "
        "code. Install exhibit-a again (pip install -e . in a checkout)."
    )
