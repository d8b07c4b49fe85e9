"""How do two results look beside each other on one figure?"""

from matplotlib.axes import Axes

from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, literal, name_ticks
from exhibit_a.report.palette import BLUE, GREY, VERMILION
from exhibit_a.trials.comparison import Comparison, HeadChange, WordChange

NAMED = 3  # heads: those whose shares differ most
BAR = 0.4


@draw.register(Comparison)
def comparison(result: Comparison, canvas: Canvas) -> Axes:
    """The shares of every head, or what both answers took from each word, or every tensor."""
    shares = [head for head in result.heads if None not in (head.first_share, head.second_share)]
    if shares:
        return _heads(result, shares, canvas.axes(4.5, 4.5))
    if result.words:
        return _words(result, result.words, canvas.axes(7.0, 3.0))
    axes = canvas.axes(7.0, 1.0 + 0.3 * max(1, len(result.tensors)))
    places = range(len(result.tensors))
    axes.barh(places, [tensor.largest for tensor in result.tensors], color=BLUE)
    name_ticks(axes.yaxis, [f"{tensor.field} {tensor.place}" for tensor in result.tensors])
    axes.set(xlabel="largest difference", title=_title(result))
    axes.invert_yaxis()
    return axes


def _heads(result: Comparison, heads: list[HeadChange], axes: Axes) -> Axes:
    """A point for each head; on the grey line both have the same share."""
    first, second = (
        [getattr(head, name) or 0.0 for head in heads] for name in ("first_share", "second_share")
    )
    axes.axline((0, 0), slope=1, color=GREY, linewidth=0.6)
    axes.scatter(first, second, s=14, color=BLUE)
    apart = sorted(range(len(heads)), key=lambda place: -abs(first[place] - second[place]))
    for place in apart[:NAMED]:
        axes.annotate(
            literal(heads[place].name),
            (first[place], second[place]),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize="x-small",
        )
    names = map(literal, result.names)
    axes.set(title=_title(result), aspect="equal")
    axes.set(**{f"{axis}label": f"share, {name}" for axis, name in zip("xy", names, strict=True)})
    return axes


def _words(result: Comparison, words: tuple[WordChange, ...], axes: Axes) -> Axes:
    """Two bars for each word."""
    for number, (name, colour) in enumerate(zip(result.names, (BLUE, VERMILION), strict=True)):
        scores = [word.second_score if number else word.first_score for word in words]
        places = [place + (number - 0.5) * BAR for place in range(len(words))]
        heights = [0.0 if score is None else score for score in scores]
        axes.bar(places, heights, BAR, color=colour, label=literal(name))
    axes.axhline(0, color=GREY, linewidth=0.6)
    name_ticks(axes.xaxis, [word.first or word.second or "" for word in words])
    axes.set(ylabel="attribution", title=_title(result))
    axes.legend(fontsize="x-small")
    return axes


def _title(result: Comparison) -> str:
    return " beside ".join(map(literal, result.names))
