"""Finds the code that draws a result, by entry point, so that results need not import it.

Imports point from the code that shows results to results, never back. So a result looks up what it
needs by name among the entry points of the group ``exhibit_a.providers``:

names      a class or function by its public name
page       a result as one HTML file
figure     a result as a matplotlib figure
screen     a result as a summary in the terminal
latex      that summary as a table for a paper
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
    """The function that an installed package registered under a name.

    >>> provider("names")("Result").__name__
    'Result'
    >>> provider("sculpture")
    Traceback (most recent call last):
    exhibit_a.errors.ExhibitError: No package provides 'sculpture' for results: ...
    """
    for entry_point in entry_points(group=GROUP, name=name):
        function: Callable[..., Any] = entry_point.load()
        return function
    raise ExhibitError(
        f"No package provides {name!r} for results: the installation is incomplete or older than "
        "the code. Install exhibit-a again (pip install -e . in a checkout)."
    )
