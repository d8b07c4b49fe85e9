"""What do the colours and lines of a figure stand for?"""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from exhibit_a.report.figures.drawing import NARROW, PAGE, Canvas, literal
from exhibit_a.report.figures.paper import figure_of

ROW = 0.17  # inches; a row of a legend in a column of a paper
WRAPPED = 26  # characters in a line beside a colour bar


def colour_bar(mappable: ScalarMappable, axes: Axes | Sequence[Axes], label: str) -> None:
    """What the colours mean, beside the axes."""
    first = axes if isinstance(axes, Axes) else axes[0]
    bar = first.figure.colorbar(mappable, ax=axes, shrink=0.9, pad=0.02)
    bar.set_label(fill(literal(label), WRAPPED))
    bar.ax.tick_params(labelsize="small")


def legend(canvas: Canvas, *named: Axes, **options: Any) -> None:
    """The names of the series in these axes, each once: in the caller's axes where they fit best.

    In a figure of ours they stand beside everything else, or below it in a narrow figure.
    """
    if canvas.ax is not None:
        canvas.ax.legend(fontsize="small", **options)
        return
    series: dict[str, Artist] = {}
    for axes in named:
        handles, names = axes.get_legend_handles_labels()
        series = series | dict(zip(names, handles, strict=True))
    figure = figure_of(named[0])
    beside = figure.get_figwidth() > 2 * NARROW
    place: dict[str, Any] = {"loc": "outside right center"}
    if not beside:
        place = {"loc": "outside lower center", "ncols": 2}
        if isinstance(canvas.figsize, str):
            figure.set_figheight(min(figure.get_figheight() + ROW * len(series) / 2, PAGE))
    figure.legend(
        series.values(), series.keys(), fontsize="small", frameon=False, **place, **options
    )


def inner_legend(axes: Axes) -> None:
    """The names of the series inside the axes, for figures whose lines leave room."""
    axes.legend(fontsize="x-small", frameon=False)
