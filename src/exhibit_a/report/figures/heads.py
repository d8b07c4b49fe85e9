"""How do the heads that matter look, and what is left without the others?"""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.methods.heads.importance import HeadImportance, HeadSimilarity
from exhibit_a.methods.heads.patching import HeadPatching
from exhibit_a.methods.heads.pruning import Pruning
from exhibit_a.methods.heads.sinks import SinkDiagnosis
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, Size, heat_map, name_ticks, numbers_of
from exhibit_a.report.figures.legends import colour_bar, inner_legend
from exhibit_a.report.figures.reliance import head_table
from exhibit_a.report.palette import GREY
from exhibit_a.shapes import SiteHeads
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.site_names import layer_name

MARKERS = "osD^vP"


def plot_curves(
    curves: Sequence[PruningCurve],
    *,
    ax: Axes | None = None,
    figsize: Size | None = None,
    cmap: str | Colormap | None = None,
) -> Figure:
    """Several pruning curves in one figure: solid where the least important heads go first."""
    canvas = Canvas("PruningCurve", ax, figsize, cmap)
    return canvas.finished(_curves(curves, canvas))


@draw.register(PruningCurve)
def pruning_curve(result: PruningCurve, canvas: Canvas) -> Axes:
    """The curve with its intervals."""
    return _curves([result], canvas)


@draw.register(HeadImportance)
def head_importance(result: HeadImportance, canvas: Canvas) -> Axes:
    """The table of heads; darker matters more."""
    axes = head_map(tuple(result.scores), result.sites, canvas, "importance")
    axes.set_title(f"importance by {result.measure}, {result.examples} examples", fontsize="medium")
    return axes


@draw.register(HeadSimilarity)
def head_similarity(result: HeadSimilarity, canvas: Canvas) -> Axes:
    """Every head as a point: its importance in one task against the other."""
    axes = canvas.axes(4.8, 4.0)
    site = torch.arange(len(result.first)).unsqueeze(1).expand_as(result.first)
    points = axes.scatter(
        numbers_of(result.first),
        numbers_of(result.second),
        c=numbers_of(site),
        cmap=canvas.unsigned,
        edgecolors=GREY,
        linewidths=0.5,
    )
    axes.set(xlabel=result.names[0], ylabel=result.names[1], title=f"Pearson {result.pearson:.2f}")
    axes.locator_params(axis="x", nbins=5)
    colour_bar(points, axes, "site")
    return axes


@draw.register(HeadPatching)
def head_patching(result: HeadPatching, canvas: Canvas) -> Axes:
    """What the answer changes by when each head says what it says to the other prompt."""
    axes = head_map(result.effects, result.sites, canvas, "change of the answer")
    axes.set_title(f"to first order; r {result.correlation:.2f} with true patching")
    return axes


@draw.register(SinkDiagnosis)
def sink_diagnosis(result: SinkDiagnosis, canvas: Canvas) -> Axes:
    """The weight that each head puts on the token it looks at most."""
    axes = head_map(result.weight, result.sites, canvas, "weight on one token")
    axes.set_title("mean over rows", fontsize="medium")
    return axes


def head_map(
    numbers: tuple[SiteHeads, ...], sites: tuple[Site, ...], canvas: Canvas, name: str
) -> Axes:
    """A number for every head, layers down and heads across."""
    heads = max(site.heads for site in sites)
    axes = canvas.axes(2.2 + min(0.4 * heads, 8), 1.5 + min(0.35 * len(sites), 7))
    image = heat_map(axes, canvas, head_table(numbers, heads), even=True, square=False)
    name_ticks(axes.yaxis, [layer_name(site, sites) for site in sites])
    name_ticks(axes.xaxis, range(heads))
    axes.set_xlabel("head")
    colour_bar(image, axes, name)
    return axes


@draw.register(Pruning)
def pruning(result: Pruning, canvas: Canvas) -> Axes:
    """Size and time of the smaller model beside those of the whole one."""
    axes = canvas.axes(5.0, 2.2, rows=True)
    shares = [after / before for before, after in (result.parameters, result.seconds)]
    axes.barh(["parameters", "time"], shares, color=canvas.series(1))
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.set(xlabel="share of the whole model", title=f"without {len(result.heads)} heads")
    return axes


def _curves(curves: Sequence[PruningCurve], canvas: Canvas) -> Axes:
    axes = canvas.axes(5.2, 3.6)
    for place, (curve, colour) in enumerate(zip(curves, canvas.series(len(curves)), strict=True)):
        fraction, interval = numbers_of(curve.fraction), numbers_of(curve.interval)
        axes.plot(
            fraction,
            numbers_of(curve.accuracy),
            color=colour,
            linestyle="-" if curve.order == "least" else "--",
            marker=MARKERS[place % len(MARKERS)],
            markersize=4,
            label=f"{curve.measure}, {curve.order} first",
        )
        axes.fill_between(fraction, interval[:, 0], interval[:, 1], color=colour, alpha=0.15)
    axes.set(xlabel="share of heads silenced", ylabel="accuracy", ylim=(0, 1.02))
    inner_legend(axes)
    return axes
