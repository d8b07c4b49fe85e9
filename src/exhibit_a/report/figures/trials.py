"""Figures of the room trials."""

from typing import TYPE_CHECKING

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure
from exhibit_a.report.palette import AGAINST, FOR, OF_WORD

if TYPE_CHECKING:
    import matplotlib.figure
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS


@figure.register(Trial)
def trial(result: Trial) -> "matplotlib.figure.Figure":
    """The heads, coloured by verdict and as large as their effect, above the tokens."""
    tokens, scores = result.tokens or (), result.token_scores
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(7, 1.8 + 0.3 * len(result.sites) + 1.6 * (scores is not None)),
        layout="constrained",
    )
    panels = drawn.subplots(1 if scores is None else 2, 1, squeeze=False)[:, 0]
    largest = max((one.change or 0.0 for one in result.verdicts), default=0.0) or 1.0
    for word in sorted({one.word for one in result.verdicts}, key=WORDS.index):
        own = [one for one in result.verdicts if one.word == word]
        panels[0].scatter(
            [one.head for one in own],
            [one.site for one in own],
            s=[20 + 180 * (one.change or 0.0) / largest for one in own],
            c=OF_WORD[word],
            marker="s",
            label=f"{word} ({len(own)})",
        )
    names = [f"{one.stack[:3]} {one.layer}" + "x" * (one.kind == "cross") for one in result.sites]
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set(xlabel="head", title=f"{result.target or result.provenance.model}: {result.word}")
    panels[0].invert_yaxis()
    size = f"size: change when\npermuted, up to {largest:.2g}" if result.permutation_change else ""
    panels[0].legend(
        title=size,
        fontsize="small",
        title_fontsize="x-small",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        markerscale=0.7,
    )
    if scores is not None:
        places, heights = range(len(tokens)), scores.tolist()
        colours = [FOR if height >= 0 else AGAINST for height in heights]
        panels[1].bar(places, heights, color=colours)
        panels[1].axhline(0, color="0.4", linewidth=0.6)
        panels[1].set_xticks(places, tokens, rotation=90, fontsize="x-small")
        panels[1].set_ylabel("attribution")
    return drawn
