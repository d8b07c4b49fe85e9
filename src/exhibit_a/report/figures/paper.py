"""What a figure for a paper needs and matplotlib does not do by itself.

Saved as SVG or PDF, its words stay words, which can be searched, selected and set in
the font of the paper. Its file is written whole or not at all. And an axis with a name at every
position shows as many names as can be read side by side, instead of all of them on top of each
other.
"""

import io
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Locator

from exhibit_a.results.files import write_whole

PAD = 0.07  # inches around each panel
LINE = 1.2  # the height of a line of text, in font sizes


class PaperFigure(Figure):
    """A figure whose text is saved as text; matplotlib's own settings stay as they are."""

    def __init__(self, size: tuple[float, float]) -> None:
        super().__init__(figsize=size, layout=ConstrainedLayoutEngine(h_pad=PAD, w_pad=PAD))

    def settle(self) -> None:
        """Lay the figure out, so that sizes and places are known before it is drawn."""
        engine = self.get_layout_engine()
        assert engine is not None
        engine.execute(self)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save the figure, as matplotlib does it; a file is replaced when the new one is whole."""
        if isinstance(fname, str | PathLike):
            path, drawn = Path(fname), io.BytesIO()
            if not (options.get("format") or path.suffix):
                path = path.with_name(f"{path.name}.{rcParams['savefig.format']}")
            self.savefig(drawn, **{"format": path.suffix.removeprefix("."), **options})
            write_whole(path, drawn.getvalue())
            return
        with rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "ps.fonttype": 42}):
            super().savefig(fname, **options)


class NameLocator(Locator):
    """Which of the positions 0, 1, 2 … get their name, so that no two names touch?

    As many as fit: evenly, or, with ``weights``, the names of the heaviest positions first. What
    fits is decided when the figure is drawn, by the length of the axis and the size of its text;
    ``breadth`` is what one name takes of the axis, in font sizes.
    """

    def __init__(
        self, count: int, weights: Sequence[float] | None = None, breadth: float = LINE
    ) -> None:
        self.count, self.weights, self.breadth = count, weights, breadth

    def __call__(self) -> list[int]:
        """The positions with a name, between the limits of the axis."""
        return self.tick_values(*self._own_axis().get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> list[int]:
        """The same between any limits."""
        low, high = sorted((vmin, vmax))
        places = range(max(0, math.ceil(low)), min(self.count - 1, math.floor(high)) + 1)
        axis = self._own_axis()
        spacing = self.breadth * text_size(axis) * (high - low) / max(axis_length(axis), 1)
        step = max(1, math.ceil(spacing))  # positions from one name to the next
        if self.weights is None or step == 1:
            return list(places[::step])
        chosen: list[int] = []
        for place in sorted(places, key=self._lightness):
            if all(abs(place - other) >= step for other in chosen):
                chosen.append(place)
        return sorted(chosen)

    def _lightness(self, place: int) -> float:
        assert self.weights is not None
        return -self.weights[place]

    def _own_axis(self) -> Axis:
        assert isinstance(self.axis, Axis)
        return self.axis


def figure_of(axes: Axes) -> Figure:
    """The whole figure that axes stand in."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def text_size(axis: Axis) -> float:
    """The size of the names along an axis, in points."""
    return float(axis.get_major_ticks(1)[0].label1.get_fontsize())


def axis_length(axis: Axis) -> float:
    """How long an axis is drawn, in points."""
    box = axis.axes.get_window_extent()
    pixels = box.width if isinstance(axis, XAxis) else box.height
    return float(pixels * 72 / figure_of(axis.axes).dpi)
