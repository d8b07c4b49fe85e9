"""Figures of the room explanation."""

from typing import TYPE_CHECKING

import torch

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure
from exhibit_a.report.palette import BLUE, VERMILION

if TYPE_CHECKING:
    import matplotlib.figure
from exhibit_a.methods.explanation.adversarial import AdversarialAttention
from exhibit_a.methods.explanation.adversarial_keys import AdversarialKeys
from exhibit_a.methods.explanation.companions import TokenAttribution
from exhibit_a.methods.explanation.faithfulness import RANDOM, STYLES, Faithfulness
from exhibit_a.methods.explanation.permutation import PermutationTest
from exhibit_a.numerics.distances import FARTHEST


@figure.register(AdversarialAttention)
def adversarial_attention(result: AdversarialAttention) -> "matplotlib.figure.Figure":
    """Divergence under each condition, against what is possible at all."""
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(7, 3.2), layout="constrained"
    )
    axes, places = drawn.subplots(), torch.arange(len(result.conditions)).numpy()
    axes.bar(
        places, result.divergence.tolist(), color=BLUE, label=f"answer within {result.epsilon:g}"
    )
    axes.plot(
        places, result.bound.tolist(), "_", color=VERMILION, markersize=24, label="any answer"
    )
    axes.axhline(FARTHEST, color="0.4", linestyle="--", label="ln 2")
    axes.set_xticks(places, result.conditions)
    axes.set_ylabel("Jensen–Shannon divergence")
    axes.legend(frameon=False)
    return drawn


@figure.register(AdversarialKeys)
def adversarial_keys(result: AdversarialKeys) -> "matplotlib.figure.Figure":
    """Training curves of the adversary, and how far its attention really moved."""
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(8, 3), layout="constrained"
    )
    left, right = drawn.subplots(1, 2)
    for place, (term, color) in enumerate(zip(result.terms, (BLUE, VERMILION), strict=True)):
        left.plot(result.curves["adversary"][:, place].tolist(), color=color, label=term)
    left.set_xlabel("step")
    left.legend(frameon=False)
    for name, marks in (("adversary", "o-"), ("opposite", "s--"), ("random", "^:")):
        place = result.conditions.index(name)
        right.plot(result.divergence[place].tolist(), marks, label=name)
    right.set_xlabel("site")
    right.set_ylabel("Jensen–Shannon divergence")
    right.legend(frameon=False)
    return drawn


@figure.register(TokenAttribution)
def token_attribution(result: TokenAttribution) -> "matplotlib.figure.Figure":
    """One bar for each token."""
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(6, 0.6 + 0.22 * len(result.scores)), layout="constrained"
    )
    axes, places = drawn.subplots(), torch.arange(len(result.scores)).numpy()
    colors = [BLUE if score >= 0 else VERMILION for score in result.scores.tolist()]
    axes.barh(places, result.scores.cpu().numpy(), color=colors)
    axes.set_yticks(places, result.tokens or places)
    axes.invert_yaxis()
    axes.set_xlabel(f"{result.method}, {result.target}")
    return drawn


@figure.register(Faithfulness)
def faithfulness(result: Faithfulness) -> "matplotlib.figure.Figure":
    """The probability of the answer while top-ranked tokens leave, and while only they stay.

    Attributions are listed by comprehensiveness, the best first.
    """
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(9, 4.2), layout="constrained"
    )
    colours = extra("matplotlib").color_sequences["petroff10"]  # safe for the colour-blind
    best_first = result.mean[:, 0].argsort(descending=True, stable=True).tolist()
    for axes, curves, title in zip(
        drawn.subplots(1, 2, sharey=True),
        (result.deletion, result.insertion),
        ("top tokens taken away", "only top tokens kept"),
        strict=True,
    ):
        for rank, place in enumerate(best_first):
            name = result.attributions[place]
            look = {"color": colours[rank % 10], "linestyle": STYLES[rank // 10 % 3]}
            if name == RANDOM:
                look = {"color": "0.3", "linewidth": 3}
            axes.plot(result.fractions, curves[name].mean(0).tolist(), label=name, **look)
        axes.set_xlabel(f"share of tokens, {title}")
    drawn.axes[0].set_ylabel("probability of the model's answer")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside right center")
    return drawn


@figure.register(PermutationTest)
def permutation_test(result: PermutationTest) -> "matplotlib.figure.Figure":
    """Accuracy under each condition, beside the model's own and the uniform extreme."""
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(7, 3.2), layout="constrained"
    )
    axes, places = drawn.subplots(), torch.arange(len(result.conditions)).numpy()
    axes.axhline(result.own_accuracy, color="0.4", linestyle="--", label="as trained")
    for shift, look, color, mean, ends, label in (
        (-0.1, "o", BLUE, result.accuracy, result.accuracy_interval, f"{result.what} shuffled"),
        (0.1, "s", VERMILION, result.uniform_accuracy, result.uniform_accuracy_interval, "uniform"),
    ):
        spread = (ends.mT - mean).abs().numpy()
        axes.errorbar(places + shift, mean.numpy(), spread, fmt=look, color=color, label=label)
    axes.set_xticks(places, result.conditions)
    axes.set_ylabel("accuracy")
    axes.legend(frameon=False)
    return drawn
