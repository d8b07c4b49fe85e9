"""Figures of results, for a paper or a notebook: one function for each kind of result.

``figure(result)`` finds the function registered for the result's class, or for the nearest class it
extends. To draw a new kind of result, register one function with ``@draw.register``: it takes the
result and a `Canvas`, and options of its own by name.
"""

from exhibit_a.extras import missing

try:
    from exhibit_a.report.figures import attribution as attribution
    from exhibit_a.report.figures import comparison as comparison
    from exhibit_a.report.figures import context as context
    from exhibit_a.report.figures import explanation as explanation
    from exhibit_a.report.figures import heads as heads
    from exhibit_a.report.figures import identifiability as identifiability
    from exhibit_a.report.figures import maps as maps
    from exhibit_a.report.figures import mixing as mixing
    from exhibit_a.report.figures import reliance as reliance
    from exhibit_a.report.figures import trials as trials
    from exhibit_a.report.figures import triggers as triggers
    from exhibit_a.report.figures.dispatch import draw as draw
    from exhibit_a.report.figures.dispatch import figure as figure
    from exhibit_a.report.figures.drawing import Canvas as Canvas
    from exhibit_a.report.figures.heads import plot_curves as plot_curves
except ModuleNotFoundError as problem:
    raise missing(problem.name or "matplotlib") from problem
