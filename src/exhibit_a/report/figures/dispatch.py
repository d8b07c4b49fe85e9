"""Which function draws this result, and what may it be asked for?"""

from functools import singledispatch
from inspect import signature

from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from exhibit_a.errors import BadRequestError
from exhibit_a.report.display_units import reading, unit_of
from exhibit_a.report.figures.drawing import Canvas, Labels, Size
from exhibit_a.results.result import Result
from exhibit_a.trace.units import Asked

COMMON = ("ax", "figsize", "cmap", "tokens", "by")


def figure(
    result: Result,
    *,
    ax: Axes | None = None,
    figsize: Size | None = None,
    cmap: str | Colormap | None = None,
    tokens: Labels | None = None,
    by: Asked | None = None,
    **options: object,
) -> Figure:
    """Draw a result, and give back the figure that it stands in.

    ``ax`` draws into axes of the caller's; a figure of several panels refuses it. ``figsize`` is in
    inches, or "one column" or "two columns" of a paper. ``cmap`` is a colour map or its name.
    ``tokens`` are names to show in place of the tokens: one for each, or such names for each stack,
    or "words" for the tokens without the marks of their tokenizer. ``by`` are the units of the text
    to draw over; without, words where there are any, unless ``tokens`` names the tokens. Other
    options are the figure's.
    """
    if by is None and tokens is not None:
        by = unit_of(result)
    result = reading(result, by)
    function = draw.dispatch(type(result))
    known = list(signature(function).parameters)[2:]
    unknown = [name for name in options if name not in known and "options" not in known]
    if unknown:
        raise BadRequestError(
            f"The figure of {type(result).__name__} has no option {unknown[0]!r}; "
            f"choose {', '.join((*COMMON, *known))}."
        )
    canvas = Canvas(type(result).__name__, ax, figsize, cmap, tokens)
    return canvas.finished(function(result, canvas, **options))


@singledispatch
def draw(result: Result, canvas: Canvas, **options: object) -> Axes:  # noqa: ARG001
    """Draw a result on a canvas; kinds that have a figure are registered with this."""
    raise BadRequestError(f"{canvas.kind} has no plot. Draw from to_pandas() instead.")
