"""How strong are the patterns that single answers rest on, and what do they break elsewhere?"""

import torch
from matplotlib.axes import Axes

from exhibit_a.methods.triggers.triggers import Attack, Triggers
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, name_ticks
from exhibit_a.report.figures.legends import legend
from exhibit_a.report.palette import GREY

PATTERN = 40  # characters of a pattern and its class


@draw.register(Triggers)
def triggers(result: Triggers, canvas: Canvas, *, count: int = 12) -> Axes:
    """The strongest patterns, and the class that each speaks for."""
    shown = result.patterns[:count][::-1]
    axes = canvas.axes(6.0, 1.2 + 0.3 * len(shown), rows=True)
    strengths = [sum(pattern.scores) for pattern in shown]
    axes.barh(range(len(shown)), strengths, color=canvas.series(1))
    name_ticks(
        axes.yaxis,
        [f"{pattern.text} → {result.labels[pattern.predicted]}" for pattern in shown],
        weights=strengths,
        length=PATTERN,
    )
    axes.set_xlabel("contribution of the pattern's edges")
    return axes


@draw.register(Attack)
def attack(result: Attack, canvas: Canvas) -> Axes:
    """The drop on the other classes, for each pattern and its controls."""
    count = len(result.patterns)
    axes = canvas.axes(6.8, 1.2 + 0.45 * count, rows=True)
    series = {"attribution": result.after, "attention": result.attention, "random": result.random}
    colours = canvas.series(len(series))
    for place, (name, accuracy) in enumerate(series.items()):
        drops = [result.drop(pattern, accuracy) for pattern in range(count)]
        heights = torch.arange(count) + 0.27 * (place - 1)
        axes.barh(heights.tolist(), drops, 0.25, label=name, color=colours[place])
    name_ticks(
        axes.yaxis,
        [f"{pattern.text} → {result.labels[pattern.predicted]}" for pattern in result.patterns],
        length=PATTERN,
    )
    axes.invert_yaxis()
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("accuracy lost on the other classes")
    legend(canvas, axes)
    return axes
