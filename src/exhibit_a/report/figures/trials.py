"""How does a trial look on one figure?"""

from matplotlib.axes import Axes

from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, literal, name_ticks
from exhibit_a.report.figures.legends import legend
from exhibit_a.report.figures.paper import axis_length
from exhibit_a.report.palette import GREY, OF_WORD
from exhibit_a.subject.anatomy import main_stack
from exhibit_a.subject.site_names import layer_name
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import WORDS

MARK = 0.6  # of the room for a head that the largest mark takes
MARKERS = dict(zip(WORDS, "sDXo^", strict=True))


@draw.register(Trial)
def trial(result: Trial, canvas: Canvas) -> Axes:
    """The heads, coloured by verdict and as large as their share, above the tokens."""
    scores = result.token_scores
    height = 1.8 + min(0.3 * len(result.sites), 5.0)
    if scores is None:
        axes = canvas.axes(7.0, height)
        _heads(result, canvas, axes)
        return axes
    heads, tokens = canvas.panels(2, (7.0, height + 2.0), ratios=(height, 2.0), below=True)
    _heads(result, canvas, heads)
    strengths = scores.tolist()
    names = canvas.labels(result.tokens or (), main_stack(result.sites))
    tokens.bar(range(len(names)), strengths, color=canvas.by_sign(strengths))
    tokens.axhline(0, color=GREY, linewidth=0.6)
    name_ticks(tokens.xaxis, names, weights=[abs(score) for score in strengths])
    tokens.set(ylabel="attribution", xlim=(-0.7, len(names) - 0.3))
    return heads


def _heads(result: Trial, canvas: Canvas, axes: Axes) -> None:
    """Every head as a mark, in a row for each site."""
    largest = max((abs(verdict.reliance or 0.0) for verdict in result.verdicts), default=0.0) or 1.0
    most = max(site.heads for site in result.sites)
    cell = min(axis_length(axes.xaxis) / most, axis_length(axes.yaxis) / len(result.sites))
    area = (MARK * cell) ** 2
    for word in sorted({verdict.word for verdict in result.verdicts}, key=WORDS.index):
        verdicts = [verdict for verdict in result.verdicts if verdict.word == word]
        axes.scatter(
            [verdict.head for verdict in verdicts],
            [verdict.site for verdict in verdicts],
            s=[
                area * (0.15 + 0.85 * abs(verdict.reliance or 0.0) / largest)
                for verdict in verdicts
            ],
            c=OF_WORD[word],
            marker=MARKERS[word],
            label=f"{word} ({len(verdicts)})",
        )
    name_ticks(axes.yaxis, [layer_name(site, result.sites) for site in result.sites])
    name_ticks(axes.xaxis, range(most))
    title = literal(result.target or result.provenance.model)
    axes.set(xlabel="head", title=f"{title}: {result.word}")
    axes.set(xlim=(-0.7, most - 0.3), ylim=(len(result.sites) - 0.4, -0.6))
    whole = None if result.reliance is None else result.reliance.size
    size = f"size: share of the\nmargin, up to {largest / whole:.0%}" if whole else ""
    legend(canvas, axes, title=size, title_fontsize="x-small", markerscale=0.7)
