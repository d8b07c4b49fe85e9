"""Figures of the room heads."""

from typing import TYPE_CHECKING, Any

import torch

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure

if TYPE_CHECKING:
    pass
from collections.abc import Sequence

from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.methods.heads.importance import HeadImportance, HeadSimilarity
from exhibit_a.methods.heads.removal import Pruning


@figure.register(PruningCurve)
def pruning_curve(result: PruningCurve) -> Any:
    """The curve with its intervals."""
    return plot_curves([result])


@figure.register(HeadImportance)
def head_importance(result: HeadImportance) -> Any:
    """The table of heads; darker matters more."""
    sites, heads = result.scores.shape
    drawn = extra("matplotlib.figure").Figure(
        figsize=(2 + 0.4 * heads, 1.5 + 0.35 * sites), layout="constrained"
    )
    axes = drawn.subplots()
    image = axes.imshow(result.scores.numpy(force=True), cmap="cividis_r")
    names = [
        f"{site.stack} {site.layer}" + " cross" * (site.kind == "cross") for site in result.sites
    ]
    axes.set_yticks(range(sites), names)
    axes.set_xticks(range(heads))
    axes.set(xlabel="head", title=f"importance by {result.by}, {result.examples} examples")
    drawn.colorbar(image)
    return drawn


@figure.register(HeadSimilarity)
def head_similarity(result: HeadSimilarity) -> Any:
    """Every head as a point: its importance in one task against the other."""
    drawn = extra("matplotlib.figure").Figure(figsize=(4.5, 4.2), layout="constrained")
    axes = drawn.subplots()
    site = torch.arange(len(result.first)).unsqueeze(1).expand_as(result.first)
    colours = axes.scatter(
        result.first.numpy(force=True), result.second.numpy(force=True), c=site, cmap="viridis"
    )
    axes.set(xlabel=result.names[0], ylabel=result.names[1], title=f"Pearson {result.pearson:.2f}")
    drawn.colorbar(colours, label="site")
    return drawn


@figure.register(Pruning)
def pruning(result: Pruning) -> Any:
    """Size and time of the smaller model beside those of the whole one."""
    drawn = extra("matplotlib.figure").Figure(figsize=(5, 2.2), layout="constrained")
    axis = drawn.subplots()
    shares = [after / before for before, after in (result.parameters, result.seconds)]
    axis.barh(["parameters", "time"], shares, color="#0072b2")
    axis.axvline(1, color="0.4", linewidth=0.8)
    axis.set(xlabel="share of the whole model", title=f"without {len(result.heads)} heads")
    return drawn


def plot_curves(curves: Sequence[PruningCurve]) -> Any:
    """Several curves in one picture."""
    drawn = extra("matplotlib.figure").Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = drawn.subplots()
    colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
    for place, curve in enumerate(curves):
        style = {
            "color": colours[place % len(colours)],
            "linestyle": "-" if curve.order == "least" else "--",
        }
        axes.plot(
            curve.fraction,
            curve.accuracy,
            marker="o",
            label=f"{curve.by}, {curve.order} first",
            **style,
        )
        axes.fill_between(
            curve.fraction,
            curve.interval[:, 0],
            curve.interval[:, 1],
            color=style["color"],
            alpha=0.15,
        )
    axes.set(xlabel="share of heads silenced", ylabel="accuracy", ylim=(0, 1))
    axes.legend(fontsize=7)
    return drawn
