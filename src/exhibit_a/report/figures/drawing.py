"""Begins, labels and colours every figure in the same way.

A `Canvas` holds what the caller of ``plot`` requested: axes to draw into, a size, a colour map,
names in place of the tokens. A figure gets its axes and its colours from it; heat maps, names along
an axis, colour bars and legends are drawn by the functions below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, FuncNorm, LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.figures.paper import (
    LINE,
    NameLocator,
    PaperFigure,
    axis_length,
    figure_of,
    text_size,
)
from exhibit_a.report.palette import AGAINST, ANCHORS, FOR, SEQUENTIAL, SERIES, SIGNED
from exhibit_a.shapes import Options

COLUMNS = {"one column": 3.3, "two columns": 6.9}  # of a paper, in inches
PAGE = 9.0  # inches; no figure is higher
LOW = 2.5  # inches; no figure that is fitted to a column is lower
BESIDE, BELOW = 1.6, 1.2  # inches that names and legends take of any figure, whatever its size
STACKED = 2.9  # inches of each panel, where they stand below each other in a column
NARROW = 1.9  # inches; panels narrower than this stand below each other
IN_A_COLUMN = 0.8  # text in a column of a paper, relative to matplotlib's own size
NAME = 20  # characters of a name; the rest of it is left out
LETTER = 0.65  # the width of a letter, in font sizes
WORD = 12  # characters; no line of text is broken into shorter ones
MARKS = ("##", "Ġ", "▁", "</w>")  # of word pieces, by the tokenizers that are most used
LINES = ("-", "--", ":", "-.")
MARKERS = "osD^vP"
ROW = 0.17  # inches; a row of a legend in a column of a paper
WRAPPED = 26  # characters in a line next to a colour bar

Size = str | Sequence[float]  # a name of COLUMNS, or inches
Labels = str | Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Canvas:
    """Where a figure of one kind of result is drawn, how large, and with what."""

    kind: str
    ax: Axes | None = None
    figsize: Size | None = None
    cmap: str | Colormap | None = None
    tokens: Labels | None = None

    def axes(self, width: float, height: float, *, rows: bool = False) -> Axes:
        """The caller's axes, or new ones in a figure of this size, unless another was requested.

        ``rows`` says that the height is that of some rows of text, and does not depend on the
        width.
        """
        if self.ax is not None:
            return self.ax
        figure = PaperFigure(self._size(width, height, rows=rows))
        return figure.add_subplot()

    def panels(
        self,
        count: int,
        size: tuple[float, float],
        *,
        ratios: Sequence[float] | None = None,
        sharey: bool = False,
        below: bool = False,
    ) -> list[Axes]:
        """New axes in a row; ``below`` each other if so requested, or where a row is too narrow."""
        if self.ax is not None:
            raise BadRequestError(
                f"The figure of {self.kind} has {count} panels, which do not fit into one ax; "
                "leave ax out."
            )
        width, height = self._size(*size, rows=below)
        narrow = width / count < NARROW
        if narrow and not below and isinstance(self.figsize, str):
            height = min(PAGE, STACKED * count)
        figure = PaperFigure((width, height))
        options: Options = {"squeeze": False, "sharey": sharey}
        if below or narrow:
            options["height_ratios"] = ratios if below else None
            return list(figure.subplots(count, 1, **options)[:, 0])
        return list(figure.subplots(1, count, width_ratios=ratios, **options)[0])

    def finished(self, axes: Axes) -> Figure:
        """The figure around these axes, with the text of a paper if it has the width of one."""
        figure = figure_of(axes)
        if self.ax is not None or not isinstance(figure, PaperFigure):
            return figure
        if isinstance(self.figsize, str):
            for text in figure.findobj(Text):
                text.set_fontsize(float(text.get_fontsize()) * IN_A_COLUMN)
            for axis in (axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)):
                axis.set_tick_params(labelsize=text_size(axis))
        figure.settle()
        while _wrap(figure):
            figure.settle()
        return figure

    def labels(self, tokens: Sequence[str], stack: str = "") -> list[str]:
        """What stands for these tokens of a stack: they themselves, or what the caller gave."""
        if self.tokens is None:
            return list(tokens)
        if isinstance(self.tokens, str):
            require_choice("way to write tokens", self.tokens, ("words",))
            return [_unmarked(token) for token in tokens]
        by_stack = self.tokens if isinstance(self.tokens, Mapping) else {stack: self.tokens}
        labels = list(by_stack.get(stack, tokens))
        if len(labels) != len(tokens):
            raise BadRequestError(
                f"{len(tokens)} tokens cannot be named by {len(labels)} labels. Give one for each, "
                "or, for a model of two stacks, a mapping from each stack to its labels."
            )
        return labels

    @property
    def signed(self) -> Colormap:
        """The colour map of signed numbers, from against to for."""
        if self.cmap is not None:
            return colormap(self.cmap)
        anchors = list(zip((ANCHORS + 1) / 2, SIGNED / 255, strict=True))
        return LinearSegmentedColormap.from_list("exhibit-a signed", anchors)

    @property
    def unsigned(self) -> Colormap:
        """The colour map of numbers without a sign, from little to much."""
        if self.cmap is not None:
            return colormap(self.cmap)
        return LinearSegmentedColormap.from_list("exhibit-a", list(SEQUENTIAL / 255))

    def series(self, count: int) -> list[str]:
        """Colours for things without an order."""
        if self.cmap is not None:
            return self.shades(count)
        return [SERIES[place % len(SERIES)] for place in range(count)]

    def shades(self, count: int) -> list[str]:
        """Colours for things in order; none is so light that paper hides it."""
        return [to_hex(self.unsigned(place)) for place in np.linspace(0.25, 1, count)]

    def by_sign(self, numbers: Sequence[float]) -> list[str]:
        """The colour of each number: that of what speaks for the answer, or against it."""
        against, favour = AGAINST, FOR
        if self.cmap is not None:
            against, favour = (to_hex(self.signed(place)) for place in (0.15, 0.85))
        return [favour if number >= 0 else against for number in numbers]

    def _size(self, width: float, height: float, *, rows: bool = False) -> tuple[float, float]:
        if self.figsize is None:
            return width, min(height, PAGE)
        if isinstance(self.figsize, str):
            require_choice("size of a figure", self.figsize, COLUMNS)
            column = COLUMNS[self.figsize]
            share = (column - BESIDE) / (width - BESIDE)
            fitted = height if rows else max(LOW, BELOW + share * (height - BELOW))
            return column, min(fitted, PAGE)
        try:
            given = width, height = tuple(float(side) for side in self.figsize)
        except (TypeError, ValueError):
            given = (0.0, 0.0)
        if min(given) <= 0:
            raise BadRequestError(
                f"figsize is (width, height) in inches, {' or '.join(map(repr, COLUMNS))}; "
                f"{self.figsize!r} is not."
            )
        return width, height


def colormap(name: str | Colormap) -> Colormap:
    """A colour map by its name, or as it is."""
    if isinstance(name, Colormap):
        return name
    if name not in colormaps:
        raise BadRequestError(f"matplotlib has no colour map {name!r}; try 'viridis'.")
    return colormaps[name]


def numbers_of(tensor: Tensor) -> NDArray[np.float64]:
    """A tensor of any type and device as numbers that matplotlib can draw."""
    array: NDArray[np.float64] = to_float64(tensor.detach()).cpu().numpy()
    return array


def literal(text: str) -> str:
    """A text in which nothing is a command to matplotlib, and nothing is invisible."""
    shown = "".join(letter if letter.isprintable() else "·" for letter in text)
    return shown.replace("$", r"\$")


def shortened(name: str, length: int = NAME) -> str:
    """A name of a length that fits along an axis."""
    return name if len(name) <= length else f"{name[: length - 1]}…"


def name_ticks(
    axis: Axis,
    names: Sequence[object],
    *,
    weights: Sequence[float] | None = None,
    length: int = NAME,
) -> None:
    """Name the positions 0, 1, 2 … of an axis, as many as can be read; the heaviest first.

    Names below the figure stand upright unless there is room for all of them side by side.
    """
    shown = [literal(shortened(str(name), length)) for name in names]

    def name_at(position: float, _: int | None = None) -> str:
        place = round(position)
        return shown[place] if 0 <= place < len(shown) and abs(position - place) < 1e-6 else ""

    axis.set_tick_params(labelsize="small", length=2)
    breadth = LINE
    if isinstance(axis, XAxis):
        side_by_side = LETTER * max(map(len, shown), default=0) + 1
        upright = side_by_side * text_size(axis) * len(shown) > axis_length(axis)
        axis.set_tick_params(rotation=90 if upright else 0)
        breadth = LINE if upright else side_by_side
    axis.set_major_locator(NameLocator(len(shown), weights, breadth))
    axis.set_major_formatter(FuncFormatter(name_at))


def heat_map(
    axes: Axes,
    canvas: Canvas,
    numbers: Tensor,
    *,
    limit: float | None = None,
    linear: bool = False,
    square: bool = True,
) -> AxesImage:
    """A table as colours. With a limit, or with numbers below zero, the scale is signed.

    Like that of the page, the scale goes by square roots, so that small numbers show next to large
    ones, unless it is to be ``linear``. A ``square`` table has square cells.
    """
    table = numbers_of(numbers)
    largest = float(np.nanmax(np.abs(table), initial=0.0)) if limit is None else limit
    signed = limit is not None or bool((table < 0).any())
    ends = (-(largest or 1.0) if signed else 0.0, largest or 1.0)
    rows, columns = table.shape
    return axes.imshow(
        table,
        cmap=canvas.signed if signed else canvas.unsigned,
        norm=Normalize(*ends) if linear else FuncNorm((_root, _square), *ends),
        aspect="equal" if square and rows == columns else "auto",
    )


def colour_bar(mappable: ScalarMappable, axes: Axes | Sequence[Axes], label: str) -> None:
    """What the colours mean, next to the axes."""
    first = axes if isinstance(axes, Axes) else axes[0]
    bar = first.figure.colorbar(mappable, ax=axes, shrink=0.9, pad=0.02)
    bar.set_label(fill(literal(label), WRAPPED))
    bar.ax.tick_params(labelsize="small")


def legend(canvas: Canvas, *named: Axes, **options: Any) -> None:
    """The names of the series in these axes, each once: in the caller's axes where they fit best.

    In a figure of ours they stand next to everything else, or below it in a narrow figure.
    """
    if canvas.ax is not None:
        canvas.ax.legend(fontsize="small", **options)
        return
    series: dict[str, Artist] = {}
    for axes in named:
        handles, names = axes.get_legend_handles_labels()
        series = series | dict(zip(names, handles, strict=True))
    figure = figure_of(named[0])
    has_room = figure.get_figwidth() > 2 * NARROW
    place: dict[str, Any] = {"loc": "outside right center"}
    if not has_room:
        place = {"loc": "outside lower center", "ncols": 2}
        if isinstance(canvas.figsize, str):
            figure.set_figheight(min(figure.get_figheight() + ROW * len(series) / 2, PAGE))
    figure.legend(
        series.values(), series.keys(), fontsize="small", frameon=False, **place, **options
    )


def inner_legend(axes: Axes) -> None:
    """The names of the series inside the axes, for figures whose lines leave room."""
    axes.legend(fontsize="x-small", frameon=False)


def root_scale(axes: Axes) -> None:
    """Heights by square roots, so that small weights show next to large ones."""
    axes.set_yscale("function", functions=(_root, _square))


def map_side(count: int, longest: float = 6.0) -> float:
    """Inches for the rows or columns of a heat map: room for each name, up to a limit."""
    return min(max(0.16 * count, 1.8), longest)


def evenly(count: int, most: int) -> set[int]:
    """At most ``most`` of the places 0, 1, 2 …, the first and the last among them."""
    return set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist())


def _wrap(figure: Figure) -> bool:
    """Break titles and names of axes that are longer than the figure; whether there were any."""
    whole, any_broken = figure.bbox, False
    for panel in figure.axes:
        for text in (panel.title, panel.xaxis.label, panel.yaxis.label):
            box = text.get_window_extent()
            upright = text.get_rotation() == 90
            length = box.height if upright else box.width
            middle = (box.y0 + box.y1) / 2 if upright else (box.x0 + box.x1) / 2
            room = 2 * min(middle, (whole.height if upright else whole.width) - middle)
            if length > room > 0 and "\n" not in text.get_text():
                letters = int(len(text.get_text()) * room / length)
                text.set_text(fill(text.get_text(), max(letters, WORD)))
                any_broken = any_broken or "\n" in text.get_text()
    return any_broken


def _root(numbers: np.ndarray) -> np.ndarray:
    rooted: np.ndarray = np.sign(numbers) * np.sqrt(np.abs(numbers))
    return rooted


def _square(numbers: np.ndarray) -> np.ndarray:
    squared: np.ndarray = numbers * np.abs(numbers)
    return squared


def _unmarked(token: str) -> str:
    """A token without the marks of its tokenizer, unless nothing else is left."""
    word = token
    for mark in MARKS:
        word = word.removeprefix(mark).removesuffix(mark)
    return word or token
