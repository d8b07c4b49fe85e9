"""What does the answer lose without each passage, and do the methods see it?"""

import torch
from matplotlib.axes import Axes

from exhibit_a.methods.attribution.context import ContextAttribution
from exhibit_a.methods.explanation.heat_maps import label_of
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, name_ticks
from exhibit_a.report.figures.legends import legend
from exhibit_a.report.palette import GREY

NAME = 44  # characters of a passage


@draw.register(ContextAttribution)
def context(result: ContextAttribution, canvas: Canvas) -> Axes:
    """The referees as bars, in log-probability; the methods as dots, each on its own scale."""
    count = len(result.passages)
    axes = canvas.axes(7.2, 1.4 + 0.42 * count, rows=True)
    bars = {"leave one out": result.leave_one_out}
    if result.regression is not None:
        bars["regression"] = result.regression
    colours = canvas.series(len(bars) + len(result.scores))
    largest = max(float(values.abs().amax()) for values in bars.values()) or 1.0
    heights = torch.arange(count)
    for place, (name, values) in enumerate(bars.items()):
        offset = 0.36 * (place - (len(bars) - 1) / 2)
        axes.barh(
            (heights + offset).tolist(), values.tolist(), 0.34, label=name, color=colours[place]
        )
    for place, (name, scores) in enumerate(result.scores.items(), len(bars)):
        scaled = scores / (scores.abs().amax() or 1.0) * largest
        axes.plot(
            scaled.tolist(),
            heights.tolist(),
            "o",
            ms=4,
            label=label_of(name),
            color=colours[place],
        )
    names = [f"{place + 1}  {passage}" for place, passage in enumerate(result.passages)]
    name_ticks(axes.yaxis, names, length=NAME)
    axes.invert_yaxis()
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("log-probability that the answer loses; methods on a scale of their own")
    legend(canvas, axes)
    return axes
