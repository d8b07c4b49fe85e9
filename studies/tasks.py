"""Four tasks, as in Hao et al.: do the same heads matter, and to which measure?

    python studies/tasks.py train --data DATA --work WORK [--tasks RTE MRPC] [--base FOLDER]
    python studies/tasks.py heads --data DATA --work WORK [--tasks …] [--measures …]
    python studies/tasks.py curves --data DATA --work WORK [--tasks …]
    python studies/tasks.py effectiveness --data DATA --work WORK [--tasks …]
    python studies/tasks.py pairs --data DATA --work WORK
    python studies/tasks.py trees --data DATA --work WORK [--figures FOLDER]
    python studies/tasks.py triggers --data DATA --work WORK [--tasks …]
    python studies/tasks.py figures --figures FOLDER

``train``   classifiers from all-MiniLM-L6-v2 for MRPC and RTE, by ``xa.train``, from the encoder
            itself and from the embedded ``nli`` as intermediate task, at several learning rates; a
            tenth of the training data says which is kept. SST-2 and MNLI-subset are the embedded
            ``sentiment`` and ``nli`` (``make models`` is their recipe). Every try goes to
                                      docs/data/tasks-tries.jsonl; accuracy on the development set,
                                      with Wilson's interval, and
            F1 for MRPC, into the ledger
``heads``, ``curves``, ``effectiveness``, ``pairs``
            which heads matter, by which measure, and are like tasks alike; ranked on ``--ranked``
            examples (reliance on the first ``--relied`` of them, with at most ``--points`` of the
            path), judged on ``--judged`` others
``trees``, ``triggers``
            how the words reach the answers, and do those of ``--patterns`` training examples turn
            ``--attacked`` others
``figures`` the figures of all of it, for one column of a paper, from docs/data alone

WORK keeps models and results; what is there already is not made again. The parts are in
``four_tasks.py``.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import four_tasks
import matplotlib
import numpy as np
import torch
from four_tasks import CURVES, EFFECTIVENESS, EVERY, IMPORTANCE, MEASURES, OWN, PAPER, TASKS
from matplotlib.axes import Axes
from study import DOCS, Row, parse, rows, save

from exhibit_a.report.figures import Canvas
from exhibit_a.report.figures.drawing import COLUMNS, LINES, MARKERS, colour_bar, heat_map
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import GREY

PARTS = ("train", "heads", "curves", "effectiveness", "pairs", "trees", "triggers")
SMALL = 7  # points
ROOM = (0, 1.02)  # of accuracies
Rows = Sequence[Row]


def main() -> None:
    given = {"data": Path, "work": Path, "tasks": (str,), "docs": DOCS, "figures": Path}
    given |= {"base": Path, "epochs": int, "rates": (float,), "examples": int}
    given |= {"measures": MEASURES, "ranked": 200, "relied": 200, "points": int, "judged": 400}
    options = parse(__doc__, part=(*PARTS, "figures"), patterns=500, attacked=400, **given)
    if options.part == "figures":
        figures(options)
        return
    if options.data is None or options.work is None:
        sys.exit("error: give --data and --work")
    options.work.mkdir(parents=True, exist_ok=True)
    if options.tasks is None:  # what stands apart is only ranked and compared
        options.tasks = list(EVERY if options.part in ("heads", "pairs") else TASKS)
    getattr(four_tasks, options.part)(options)


def figures(options: argparse.Namespace) -> None:
    """Every figure that there are data for; lines differ in colour, dashes and marks, to be told in
    grey."""
    folder = options.figures or Path(__file__).parents[1] / "docs/figures"
    tables, curves, own = (
        rows(options.docs / name) for name in (IMPORTANCE, CURVES, EFFECTIVENESS)
    )
    drawn = {
        "tasks-effectiveness": (own, own_orders),
        "tasks-pruning-least": ([row for row in curves if row["order"] == "least"], rankings),
        "tasks-pruning-most": ([row for row in curves if row["order"] == "most"], rankings),
        "tasks-importance": (tables, heat_maps),
        "tasks-pairs": (tables, scatters),
    }
    with matplotlib.rc_context({"font.size": SMALL, "axes.titlesize": SMALL}):
        for name, (found, draw) in drawn.items():
            if found:
                save(draw(found), folder / f"{name}.svg")


def panels(down: int, across: int, height: float) -> tuple[PaperFigure, list[Axes]]:
    """A figure of one column with so many panels."""
    figure = PaperFigure((COLUMNS["one column"], height))
    return figure, list(np.atleast_1d(figure.subplots(down, across)).flatten())


def of_tasks(found: Rows, axes: Sequence[Axes]) -> Iterator[tuple[str, Axes, Rows]]:
    """Each task with its panel and its rows; the panel of a task without rows stays empty."""
    for name, panel in zip(TASKS, axes, strict=True):
        panel.set_title(name)
        yield name, panel, [row for row in found if row["task"] == name]


def own_orders(found: Rows) -> PaperFigure:
    """Accuracy when each layer loses 0, 1, … 12 heads, in each example's own order."""
    figure, axes = panels(2, 2, 3.4)
    colours = dict(zip(OWN, Canvas("PruningCurve").series(len(OWN)), strict=True))
    for _, panel, mine in of_tasks(found, axes):
        for row in mine:
            measure, most = row["measure"], row["order"] == "most"
            if measure == "random" and not most:
                continue  # an order at random has no beginning
            look = {"color": colours[measure], "marker": MARKERS[OWN.index(measure)]}
            look |= {"linestyle": ":" if measure == "random" else "--" if most else "-"}
            look |= {
                "label": measure if measure == "random" else f"{measure}, {row['order']} first"
            }
            panel.plot(row["accuracy"], markersize=2.5, linewidth=0.9, **look)
        panel.set(ylim=ROOM, xticks=range(0, 13, 4))
    return labelled(figure, axes, "heads silenced per layer")


def rankings(found: Rows) -> PaperFigure:
    """Accuracy along one ranking of all heads by every measure, with the interval of the
    paper's."""
    figure, axes = panels(2, 2, 3.4)
    colours = dict(zip(MEASURES, Canvas("PruningCurve").series(len(MEASURES)), strict=True))
    shares = [tenth / 10 for tenth in range(11)]
    for _, panel, mine in of_tasks(found, axes):
        for row in mine:
            measure = row["measure"]
            place = MEASURES.index(measure)
            look = {
                "color": colours[measure],
                "linestyle": LINES[place % len(LINES)],
                "marker": MARKERS[place],
            }
            panel.plot(
                shares, row["accuracy"], label=measure, markersize=2.5, linewidth=0.9, **look
            )
            if measure == PAPER:
                low, high = zip(*row["interval"], strict=True)
                panel.fill_between(
                    shares, low, high, color=colours[measure], alpha=0.15, linewidth=0
                )
        panel.set(ylim=ROOM)
    return labelled(figure, axes, "share of heads silenced")


def labelled(figure: PaperFigure, axes: Sequence[Axes], below: str) -> PaperFigure:
    """Names of the axes at the outer panels, and one legend below them."""
    for panel in axes[-2:]:
        panel.set_xlabel(below)
    for panel in axes[::2]:
        panel.set_ylabel("accuracy")
    series: Row = {}
    for panel in axes:
        handles, names = panel.get_legend_handles_labels()
        series |= dict(zip(names, handles, strict=True))
    look = {"loc": "outside lower center", "ncols": 2 if any("," in name for name in series) else 3}
    figure.legend(
        series.values(), series.keys(), fontsize=SMALL - 1, frameon=False, handlelength=2.6, **look
    )
    return figure


def table_of(found: Rows, task: str) -> torch.Tensor | None:
    """The importance by attribution, relative to the strongest head; none where it is missing."""
    for row in found:
        if (row["task"], row["measure"]) == (task, PAPER):
            table = torch.tensor(row["table"])
            return table / table.max()
    return None


def heat_maps(found: Rows) -> PaperFigure:
    """Layers down, heads across; dark heads matter."""
    figure, axes = panels(2, 2, 2.4)
    canvas, image = Canvas("HeadImportance"), None
    for name, panel, _ in of_tasks(found, axes):
        if (table := table_of(found, name)) is not None:
            image = heat_map(panel, canvas, table.clamp_min(0), linear=True, square=False)
        panel.set(xticks=range(0, 12, 4), yticks=range(0, 6, 2))
    for panel in axes[-2:]:
        panel.set_xlabel("head")
    for panel in axes[::2]:
        panel.set_ylabel("layer")
    if image is not None:
        colour_bar(image, axes, "importance by attribution, of the strongest head's")
    return figure


def scatters(found: Rows) -> PaperFigure:
    """Six pairs of tasks; every head is a point, darker in later layers."""
    figure, axes = panels(3, 2, 4.6)
    canvas = Canvas("HeadSimilarity")
    for panel, (first, second) in zip(axes, itertools.combinations(TASKS, 2), strict=True):
        across, up = table_of(found, first), table_of(found, second)
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


if __name__ == "__main__":
    main()
