"""How is a figure begun, labelled and coloured, in the same way for every kind of result?

A `Canvas` holds what the caller of ``plot`` asked for: axes to draw into, a size, a colour map,
names in place of the tokens. A figure asks it for its axes and its colours; heat maps, names along
an axis, colour bars and legends are drawn by the functions below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from exhibit_a.errors import BadRequestError, require_choice
from exhibit_a.report.figures.paper import LINE, NameLocator, PaperFigure
from exhibit_a.report.palette import AGAINST, ANCHORS, FOR, SEQUENTIAL, SERIES, SIGNED

COLUMNS = {"one column": 3.3, "two columns": 6.9}  # of a paper, in inches
PAGE = 9.0  # inches; no figure is higher
LOW = 2.3  # inches; no figure that is fitted to a column is lower
NARROW = 1.9  # inches; panels narrower than this stand below each other
IN_A_COLUMN = 0.8  # text in a column of a paper, relative to matplotlib's own size
NAME = 20  # characters of a name; the rest of it is left out
LETTER = 0.65  # the width of a letter, in font sizes
MARKS = ("##", "Ġ", "▁", "</w>")  # of word pieces, by the tokenizers that are most used
LINES = ("-", "--", ":", "-.")

Size = tuple[float, float] | Literal["one column", "two columns"]
Labels = Literal["words"] | Sequence[str] | Mapping[str, Sequence[str]]
Table = Float[np.ndarray, "row column"]


@dataclass(frozen=True)
class Canvas:
    """Where a figure of one kind of result is drawn, how large, and with what."""

    kind: str
    ax: Axes | None = None
    figsize: Any = None
    cmap: str | Colormap | None = None
    tokens: Any = None

    def axes(self, width: float, height: float, *, rows: bool = False) -> Axes:
        """The caller's axes, or new ones in a figure of this size, unless another was asked for.

        ``rows`` says that the height is that of so many rows of text, and does not depend on the
        width.
        """
        if self.ax is not None:
            return self.ax
        figure = PaperFigure(figsize=self._size(width, height, rows=rows), layout="constrained")
        return figure.add_subplot()

    def panels(
        self,
        count: int,
        width: float,
        height: float,
        *,
        ratios: Sequence[float] | None = None,
        sharey: bool = False,
    ) -> list[Axes]:
        """New axes in a row; or in a column, where the row would be too narrow for them."""
        if self.ax is not None:
            raise BadRequestError(
                f"The figure of {self.kind} has {count} panels, which do not fit into one ax; "
                "leave ax out."
            )
        size = self._size(width, height)
        in_a_row = size[0] / count >= NARROW
        if not in_a_row and isinstance(self.figsize, str):
            size = (size[0], min(PAGE, LOW * count))
        figure = PaperFigure(figsize=size, layout="constrained")
        grid: Any = {"width_ratios": ratios} if in_a_row else {}
        shape = (1, count) if in_a_row else (count, 1)
        return list(figure.subplots(*shape, squeeze=False, sharey=sharey, **grid).flat)

    def finished(self, axes: Axes) -> Figure:
        """The figure around these axes, with the text of a paper if it has the width of one."""
        figure: Figure = axes.get_figure(root=True)  # type: ignore[assignment, unused-ignore]
        if self.ax is None and isinstance(self.figsize, str):
            for text in figure.findobj(Text):
                text.set_fontsize(text.get_fontsize() * IN_A_COLUMN)
            for panel in figure.axes:
                for axis in (panel.xaxis, panel.yaxis):
                    axis.set_tick_params(labelsize=axis.get_major_ticks(1)[0].label1.get_size())
        return figure

    def labels(self, tokens: Sequence[str], stack: str = "") -> list[str]:
        """What stands for these tokens of a stack: they themselves, or what the caller gave."""
        if self.tokens is None:
            return list(tokens)
        if isinstance(self.tokens, str):
            require_choice("way to write tokens", self.tokens, ("words",))
            return [_unmarked(token) for token in tokens]
        by_stack = isinstance(self.tokens, Mapping)
        labels = list(self.tokens.get(stack, tokens) if by_stack else self.tokens)
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
        anchors = zip((ANCHORS + 1) / 2, SIGNED / 255, strict=True)
        return LinearSegmentedColormap.from_list("exhibit-a", [(at, rgb) for at, rgb in anchors])

    @property
    def unsigned(self) -> Colormap:
        """The colour map of numbers without a sign, from little to much."""
        return colormap(self.cmap or SEQUENTIAL)

    def series(self, count: int) -> list[str]:
        """Colours for so many things without an order."""
        if self.cmap is not None:
            return self.shades(count)
        return [SERIES[place % len(SERIES)] for place in range(count)]

    def shades(self, count: int) -> list[str]:
        """Colours for so many things in order; none is so light that paper hides it."""
        return [to_hex(self.unsigned(place)) for place in np.linspace(0.2, 1, count)]

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
            fitted = height if rows else max(LOW, height * column / width)
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
        raise BadRequestError(f"matplotlib has no colour map {name!r}; try {SEQUENTIAL!r}.")
    return colormaps[name]


def numbers_of(tensor: Tensor) -> np.ndarray:  # type: ignore[type-arg, unused-ignore]
    """A tensor of any type and device as numbers that matplotlib can draw."""
    array: np.ndarray = tensor.detach().double().cpu().numpy()  # type: ignore[type-arg, unused-ignore]
    return array


def readable(name: str) -> str:
    """A name of a length that fits, in which nothing is a command to matplotlib."""
    shown = "".join(letter if letter.isprintable() else "·" for letter in name)
    shown = shown if len(shown) <= NAME else f"{shown[: NAME - 1]}…"
    return shown.replace("$", r"\$")


def name_ticks(
    axis: Axis, names: Sequence[object], *, weights: Sequence[float] | None = None
) -> None:
    """Name the positions 0, 1, 2 … of an axis, as many as can be read; the heaviest first.

    Names below the figure stand upright unless there is room for all of them side by side.
    """
    shown = [readable(str(name)) for name in names]

    def name_at(position: float, _: int | None = None) -> str:
        place = round(position)
        return shown[place] if 0 <= place < len(shown) and abs(position - place) < 1e-6 else ""

    axis.set_tick_params(labelsize="small", length=2)
    breadth = LINE
    if axis.axis_name == "x":
        size = axis.get_major_ticks(1)[0].label1.get_size()
        side_by_side = LETTER * max(map(len, shown), default=0) + 1
        room = axis.axes.get_window_extent().width * 72 / axis.axes.get_figure(root=True).dpi
        upright = side_by_side * size * len(shown) > 0.8 * room
        axis.set_tick_params(rotation=90 if upright else 0)
        breadth = LINE if upright else side_by_side
    axis.set_major_locator(NameLocator(len(shown), weights, breadth))
    axis.set_major_formatter(FuncFormatter(name_at))


def heat_map(
    axes: Axes, canvas: Canvas, numbers: Tensor, *, limit: float | None = None
) -> AxesImage:
    """A table as colours. With a limit, or with numbers below zero, the scale is signed."""
    table = numbers_of(numbers)
    largest = float(np.nanmax(np.abs(table), initial=0.0)) if limit is None else limit
    signed = limit is not None or bool((table < 0).any())
    rows, columns = table.shape
    return axes.imshow(
        table,
        cmap=canvas.signed if signed else canvas.unsigned,
        vmin=-(largest or 1.0) if signed else 0.0,
        vmax=largest or 1.0,
        aspect="equal" if rows == columns else "auto",
    )


def colour_bar(mappable: Any, axes: Axes | Sequence[Axes], label: str) -> None:
    """What the colours mean, beside the axes."""
    first = axes if isinstance(axes, Axes) else axes[0]
    bar = first.figure.colorbar(mappable, ax=axes, shrink=0.9, pad=0.02)
    bar.set_label(label)
    bar.ax.tick_params(labelsize="small")


def legend(canvas: Canvas, axes: Axes, **options: Any) -> None:
    """The names of the series: beside the axes in a figure of ours, inside those of the caller."""
    beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5), "borderaxespad": 0.0}
    chosen: dict[str, Any] = {"loc": "best"} if canvas.ax is not None else beside
    axes.legend(**{"fontsize": "small", "frameon": False, **chosen, **options})


def map_side(count: int, longest: float = 6.0) -> float:
    """Inches for so many rows or columns of a heat map: room for each name, up to a limit."""
    return min(max(0.16 * count, 1.8), longest)


def evenly(count: int, most: int) -> set[int]:
    """At most so many of the places 0, 1, 2 …, the first and the last among them."""
    return set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist())


def _unmarked(token: str) -> str:
    """A token without the marks of its tokenizer, unless nothing else is left."""
    word = token
    for mark in MARKS:
        word = word.removeprefix(mark).removesuffix(mark)
    return word or token
