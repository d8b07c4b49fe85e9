"""What do the heads of four tasks look like? Figures for one column of a paper, from docs/data.

tasks-effectiveness   accuracy when each layer loses 0, 1, … 12 heads, in each example's own order
tasks-pruning-least   accuracy along one ranking of all heads by every measure, least first
tasks-pruning-most    the same, most important first
tasks-importance      which heads matter, by attribution, each task relative to its strongest head
tasks-pairs           the importance of every head in one task against another, six pairs

Lines differ in colour, in dashes and in marks, so that they can be told in grey.
"""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
import words
from drawing import save
from four_tasks import MEASURES, TASKS
from matplotlib.axes import Axes
from task_heads import CURVES, EFFECTIVENESS, IMPORTANCE, OWN, PAPER

from exhibit_a.report.figures import Canvas
from exhibit_a.report.figures.drawing import COLUMNS, LINES, MARKERS, colour_bar, heat_map
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import GREY

WIDTH = COLUMNS["one column"]
SMALL = 7  # points
ROOM = (0, 1.02)  # of accuracies
Rows = Sequence[dict[str, Any]]


def figures(options: argparse.Namespace) -> None:
    """Every figure that there are data for."""
    folder = options.figures or Path(__file__).parents[1] / "docs/figures"
    tables = words.rows(options.docs / IMPORTANCE)
    curves = words.rows(options.docs / CURVES)
    own = words.rows(options.docs / EFFECTIVENESS)
    drawn = {
        "tasks-effectiveness": (own, own_orders),
        "tasks-pruning-least": ([row for row in curves if row["order"] == "least"], rankings),
        "tasks-pruning-most": ([row for row in curves if row["order"] == "most"], rankings),
        "tasks-importance": (tables, heat_maps),
        "tasks-pairs": (tables, scatters),
    }
    with matplotlib.rc_context({"font.size": SMALL, "axes.titlesize": SMALL}):
        for name, (rows, draw) in drawn.items():
            if rows:
                save(draw(rows), folder / f"{name}.svg")
                print(folder / f"{name}.svg")


def panels(rows: int, columns: int, height: float) -> tuple[PaperFigure, list[Axes]]:
    """A figure of one column with so many panels."""
    figure = PaperFigure((WIDTH, height))
    return figure, list(np.atleast_1d(figure.subplots(rows, columns)).flatten())


def of_tasks(rows: Rows, axes: Sequence[Axes]) -> Iterator[tuple[str, Axes, Rows]]:
    """Each task with its panel and its rows; the panel of a task without rows stays empty."""
    for name, panel in zip(TASKS, axes, strict=True):
        panel.set_title(name)
        yield name, panel, [row for row in rows if row["task"] == name]


def own_orders(rows: Rows) -> PaperFigure:
    """Attribution, attention and chance, most and least important heads first."""
    figure, axes = panels(2, 2, 3.4)
    colours = dict(zip(OWN, Canvas("PruningCurve").series(len(OWN)), strict=True))
    for _, panel, mine in of_tasks(rows, axes):
        for row in mine:
            if row["measure"] == "random" and row["order"] == "least":
                continue  # an order at random has no beginning
            most = row["order"] == "most"
            name = row["measure"] + (
                "" if row["measure"] == "random" else f", {row['order']} first"
            )
            panel.plot(
                row["accuracy"],
                label=name,
                color=colours[row["measure"]],
                linestyle=":" if row["measure"] == "random" else "--" if most else "-",
                marker=MARKERS[OWN.index(row["measure"])],
                markersize=2.5,
                linewidth=0.9,
            )
        panel.set(ylim=ROOM, xticks=range(0, 13, 4))
    return labelled(figure, axes, "heads silenced per layer")


def rankings(rows: Rows) -> PaperFigure:
    """One line for each measure, with the interval of the first."""
    figure, axes = panels(2, 2, 3.4)
    colours = dict(zip(MEASURES, Canvas("PruningCurve").series(len(MEASURES)), strict=True))
    shares = [tenth / 10 for tenth in range(11)]
    for _, panel, mine in of_tasks(rows, axes):
        for row in mine:
            place = MEASURES.index(row["measure"])
            colour = colours[row["measure"]]
            panel.plot(
                shares,
                row["accuracy"],
                label=row["measure"],
                color=colour,
                linestyle=LINES[place % len(LINES)],
                marker=MARKERS[place],
                markersize=2.5,
                linewidth=0.9,
            )
            if row["measure"] == PAPER:
                low, high = zip(*row["interval"], strict=True)
                panel.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set(ylim=ROOM)
    return labelled(figure, axes, "share of heads silenced")


def labelled(figure: PaperFigure, axes: Sequence[Axes], below: str) -> PaperFigure:
    """Names of the axes at the outer panels, and one legend below them."""
    for panel in axes[-2:]:
        panel.set_xlabel(below)
    for panel in axes[::2]:
        panel.set_ylabel("accuracy")
    series: dict[str, Any] = {}
    for panel in axes:
        handles, names = panel.get_legend_handles_labels()
        series |= dict(zip(names, handles, strict=True))
    place = {
        "loc": "outside lower center",
        "ncols": 2 if any("," in name for name in series) else 3,
    }
    figure.legend(
        series.values(), series.keys(), fontsize=SMALL - 1, frameon=False, handlelength=2.6, **place
    )
    return figure


def table_of(rows: Rows, task: str) -> torch.Tensor | None:
    """The importance by attribution, relative to the strongest head; none where it is missing."""
    for row in rows:
        if (row["task"], row["measure"]) == (task, PAPER):
            table = torch.tensor(row["table"])
            return table / table.max()
    return None


def heat_maps(rows: Rows) -> PaperFigure:
    """Layers down, heads across; dark heads matter."""
    figure, axes = panels(2, 2, 2.4)
    canvas, image = Canvas("HeadImportance"), None
    for name, panel, _ in of_tasks(rows, axes):
        table = table_of(rows, name)
        if table is not None:
            shown = table.clamp_min(0)
            image = heat_map(panel, canvas, shown, linear=True, square=False)
        panel.set(xticks=range(0, 12, 4), yticks=range(0, 6, 2))
    for panel in axes[-2:]:
        panel.set_xlabel("head")
    for panel in axes[::2]:
        panel.set_ylabel("layer")
    if image is not None:
        colour_bar(image, axes, "importance by attribution, of the strongest head's")
    return figure


def scatters(rows: Rows) -> PaperFigure:
    """Six pairs of tasks; every head is a point, darker in later layers."""
    figure, axes = panels(3, 2, 4.6)
    canvas = Canvas("HeadSimilarity")
    for panel, (first, second) in zip(axes, itertools.combinations(TASKS, 2), strict=True):
        across, up = table_of(rows, first), table_of(rows, second)
        panel.set(xlabel=first, ylabel=second)
        if across is None or up is None:
            continue
        layer = torch.arange(len(across)).unsqueeze(1).expand_as(across)
        panel.scatter(
            across, up, c=layer, cmap=canvas.unsigned, s=8, edgecolors=GREY, linewidths=0.3
        )
        pearson = float(torch.corrcoef(torch.stack([across.flatten(), up.flatten()]))[0, 1])
        panel.set_title(f"Pearson {pearson:.2f}")
    return figure
