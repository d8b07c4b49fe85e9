"""Figures of results, for a paper or a notebook, from the blocks that describe them."""

from exhibit_a.extras import missing

try:
    from exhibit_a.report.figures.drawing import Canvas as Canvas
    from exhibit_a.report.figures.lowering import figure as figure
    from exhibit_a.report.figures.lowering import plot_curves as plot_curves
except ModuleNotFoundError as problem:
    raise missing(problem.name or "matplotlib") from problem
