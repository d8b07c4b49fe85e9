"""Figures of the room triggers."""

from typing import TYPE_CHECKING, Any

import torch

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure

if TYPE_CHECKING:
    pass
from exhibit_a.methods.triggers.triggers import Attack, Triggers


@figure.register(Triggers)
def triggers(result: Triggers, count: int = 12) -> Any:
    """The strongest patterns, and the class that each speaks for."""
    shown = result.patterns[:count][::-1]
    drawn = extra("matplotlib.figure").Figure(
        figsize=(6, 1.2 + 0.3 * len(shown)), layout="constrained"
    )
    axis = drawn.subplots()
    axis.barh(range(len(shown)), [sum(one.scores) for one in shown], color="#0072b2")
    names = [f"{one.text} → {result.labels[one.predicted]}" for one in shown]
    axis.set_yticks(range(len(shown)), names)
    axis.set_xlabel("contribution of the pattern's edges")
    return drawn


@figure.register(Attack)
def attack(result: Attack) -> Any:
    """The drop on the other classes, for each pattern and its controls."""
    count = len(result.patterns)
    drawn = extra("matplotlib.figure").Figure(
        figsize=(6.4, 1.2 + 0.45 * count), layout="constrained"
    )
    axes = drawn.subplots()
    series = {"attribution": result.after, "attention": result.attention, "random": result.random}
    colours = {"attribution": "#0072b2", "attention": "#e69f00", "random": "#999999"}
    for place, (name, found) in enumerate(series.items()):
        drops = [result.drop(pattern, found) for pattern in range(count)]
        at = torch.arange(count) + 0.27 * (place - 1)
        axes.barh(at.tolist(), drops, 0.25, label=name, color=colours[name])
    names = [f"{one.text} → {result.labels[one.predicted]}" for one in result.patterns]
    axes.set_yticks(range(count), names)
    axes.invert_yaxis()
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set_xlabel("accuracy lost on the other classes")
    axes.legend(frameon=False)
    return drawn
