"""How do tests of attention as an explanation, and scores of tokens, look?"""

import torch
from matplotlib.axes import Axes

from exhibit_a.methods.custom_methods import TokenAttribution
from exhibit_a.methods.explanation.adversarial import AdversarialAttention
from exhibit_a.methods.explanation.adversarial_keys import AdversarialKeys
from exhibit_a.methods.explanation.faithfulness import RANDOM, Faithfulness
from exhibit_a.methods.explanation.permutation import PermutationTest
from exhibit_a.methods.explanation.pictures import Pictures
from exhibit_a.numerics.distances import FARTHEST
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import (
    LINES,
    Canvas,
    heat_map,
    literal,
    name_ticks,
    numbers_of,
)
from exhibit_a.report.figures.legends import inner_legend, legend
from exhibit_a.report.palette import GREY, SERIES

FEW_STEPS = 20  # of training; with fewer, each is marked
PICTURE_NAME = 42  # characters: what a picture is called, and the advice about it


@draw.register(TokenAttribution)
def token_attribution(result: TokenAttribution, canvas: Canvas) -> Axes:
    """One bar for each token; where not all names fit, the strongest tokens are named."""
    strengths = result.scores.tolist()
    names = canvas.labels(result.tokens or [str(place) for place in range(len(strengths))])
    axes = canvas.axes(6.0, 1.0 + 0.2 * len(strengths), rows=True)
    axes.barh(range(len(strengths)), strengths, color=canvas.by_sign(strengths))
    axes.axvline(0, color=GREY, linewidth=0.6)
    name_ticks(axes.yaxis, names, weights=[abs(score) for score in strengths])
    axes.set(ylim=(len(strengths) - 0.4, -0.6), xlabel=literal(f"{result.method}, {result.target}"))
    return axes


@draw.register(Pictures)
def pictures(result: Pictures, canvas: Canvas) -> Axes:
    """The words of the text in the shades of each picture, and whether it may be shown."""
    largest = result.scores.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float).tiny)
    count = len(result.words)
    axes = canvas.axes(3.5 + 0.25 * min(count, 40), 1.6 + 0.25 * len(result), rows=True)
    heat_map(axes, canvas, result.scores / largest, even=True)
    axes.set_aspect("auto")
    weights = (result.scores / largest).abs().amax(0).tolist()
    name_ticks(axes.xaxis, canvas.labels(result.words), weights=weights)
    rows = [f"{picture.label}: {picture.advice}" for picture in result.values()]
    name_ticks(axes.yaxis, rows, length=PICTURE_NAME)
    return axes


@draw.register(AdversarialAttention)
def adversarial_attention(result: AdversarialAttention, canvas: Canvas) -> Axes:
    """Divergence under each condition, against what is possible at all."""
    axes = canvas.axes(7.0, 3.2)
    places = range(len(result.conditions))
    reached, possible = canvas.series(2)
    label = f"answer within {result.epsilon:g}"
    axes.bar(places, numbers_of(result.divergence), color=reached, label=label)
    axes.plot(
        places, numbers_of(result.bound), "_", color=possible, markersize=20, markeredgewidth=2,
        label="any answer",
    )  # fmt: skip
    axes.axhline(FARTHEST, color=GREY, linestyle="--", label="ln 2")
    name_ticks(axes.xaxis, result.conditions)
    axes.set_ylabel("Jensen–Shannon divergence")
    legend(canvas, axes)
    return axes


@draw.register(AdversarialKeys)
def adversarial_keys(result: AdversarialKeys, canvas: Canvas) -> Axes:
    """Training curves of the adversary, and how far its attention really moved."""
    left, right = canvas.panels(2, (8.0, 3.0))
    for place, (term, colour) in enumerate(zip(result.terms, canvas.series(2), strict=True)):
        curve = numbers_of(result.curves["adversary"][:, place])
        marker = "." if len(curve) < FEW_STEPS else None
        left.plot(curve, color=colour, linestyle=LINES[place], marker=marker, label=term)
    left.set_xlabel("step")
    marks = {"adversary": "o-", "opposite": "s--", "random": "^:"}
    for (name, mark), colour in zip(marks.items(), canvas.series(len(marks)), strict=True):
        place = result.conditions.index(name)
        right.plot(numbers_of(result.divergence[place]), mark, color=colour, label=name)
    name_ticks(right.xaxis, range(result.divergence.shape[1]))
    right.set(xlabel="site", ylabel="Jensen–Shannon divergence")
    for axes in (left, right):
        inner_legend(axes)
    return left


@draw.register(Faithfulness)
def faithfulness(result: Faithfulness, canvas: Canvas) -> Axes:
    """The probability of the answer while top-ranked tokens leave, and while only they stay.

    Attributions are listed by comprehensiveness, the best first.
    """
    panels = canvas.panels(2, (9.0, 4.2), sharey=True)
    best_first = result.mean[:, 0].argsort(descending=True, stable=True).tolist()
    colours = canvas.series(len(best_first))
    sides = (
        (result.deletion, "top tokens taken away"),
        (result.insertion, "only top tokens kept"),
    )
    for axes, (curves, title) in zip(panels, sides, strict=True):
        for rank, place in enumerate(best_first):
            name = result.attributions[place]
            axes.plot(
                result.fractions,
                numbers_of(curves[name].mean(0)),
                color=GREY if name == RANDOM else colours[rank],
                linestyle=LINES[rank // len(SERIES) % len(LINES)] if name != RANDOM else "-",
                linewidth=3 if name == RANDOM else 1.5,
                label=name,
            )
        axes.set_xlabel(f"share of tokens, {title}")
    panels[0].set_ylabel("probability of the model's answer")
    legend(canvas, panels[0])
    return panels[0]


@draw.register(PermutationTest)
def permutation_test(result: PermutationTest, canvas: Canvas) -> Axes:
    """Accuracy under each condition, beside the model's own and the uniform extreme."""
    axes = canvas.axes(7.0, 3.2)
    places = torch.arange(len(result.conditions))
    axes.axhline(result.own_accuracy, color=GREY, linestyle="--", label="as trained")
    shuffled = (result.accuracy, result.accuracy_interval, f"{result.what} shuffled")
    uniform = (result.uniform_accuracy, result.uniform_accuracy_interval, "uniform")
    for shift, mark, colour, (mean, ends, label) in zip(
        (-0.1, 0.1), "os", canvas.series(2), (shuffled, uniform), strict=True
    ):
        spread = numbers_of((ends.mT - mean).abs())
        axes.errorbar(
            numbers_of(places + shift), numbers_of(mean), spread, fmt=mark, color=colour,
            label=label,
        )  # fmt: skip
    name_ticks(axes.xaxis, result.conditions)
    axes.set_ylabel("accuracy")
    legend(canvas, axes)
    return axes
