"""How does it look that words flow into each other's vectors?"""

from matplotlib.axes import Axes

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.mixing.head_mixing import HeadMixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.mixing.token_identifiability import MAPS, TokenIdentifiability
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import (
    Canvas,
    evenly,
    heat_map,
    literal,
    name_ticks,
    numbers_of,
)
from exhibit_a.report.figures.legends import colour_bar, inner_legend, legend
from exhibit_a.report.palette import GREY, VERMILION
from exhibit_a.subject.site_names import place_name

MARKERS = "osD^"


@draw.register(HeadMixing)
def head_mixing(result: HeadMixing, canvas: Canvas) -> Axes:
    """How far attention and contribution disagree, head by head."""
    axes = canvas.axes(6.0, 3.4)
    heads, mean = canvas.series(2)
    for site, scores in enumerate(result.total_variation):
        distances = numbers_of(scores)
        axes.plot([site] * len(distances), distances, "o", color=heads, alpha=0.6)
        axes.plot(site, distances.mean(), "_", color=mean, markersize=18, markeredgewidth=2)
    places = zip(result.stack, result.layer, result.kind, strict=True)
    name_ticks(axes.xaxis, [place_name(*place, set(result.stack)) for place in places])
    axes.set(ylabel="weight that lies elsewhere", xlabel="attention site", ylim=(0, 1))
    return axes


@draw.register(HiddenAttribution)
def hidden_attribution(
    result: HiddenAttribution, canvas: Canvas, *, token: int | None = None
) -> Axes:
    """Own share by layer, the neighbour profile, and what is in the vector of one token.

    Without ``token``, the token with the least of itself left at the end.
    """
    self_shares = result.self_contribution
    chosen = int(self_shares[-1].argmin()) if token is None else token
    if not 0 <= chosen < self_shares.shape[1]:
        raise BadRequestError(
            f"There is no token {chosen}; valid are 0 to {self_shares.shape[1] - 1}."
        )
    boxes, profile, story = canvas.panels(3, (12.0, 3.6), ratios=(1, 1, 1.4))
    boxes.boxplot(
        numbers_of(self_shares.T),
        positions=range(len(self_shares)),
        widths=0.6,
        medianprops={"color": VERMILION},
    )
    name_ticks(boxes.xaxis, range(len(self_shares)))
    boxes.set(xlabel="layer", ylabel="contribution of the token itself", ylim=(0, 1.02))
    named = evenly(len(self_shares), 5)
    for layer, (row, colour) in enumerate(
        zip(numbers_of(result.neighbours), canvas.shades(len(self_shares)), strict=True)
    ):
        profile.plot(row, color=colour, label=f"layer {layer}" if layer in named else None)
    profile.set(xlabel="distance", ylabel="share of contribution")
    profile.set_yscale("symlog", linthresh=1e-2)
    inner_legend(profile)
    shares = result.contribution[:, chosen]
    image = heat_map(story, canvas, shares, square=False)
    names = canvas.labels(result.source_tokens, result.source)
    name_ticks(story.xaxis, names, weights=shares.amax(0).tolist())
    name_ticks(story.yaxis, range(len(self_shares)))
    story.set_ylabel("layer")
    story.set_title(f"what is in “{literal(names[chosen])}” ({chosen})", fontsize="medium")
    colour_bar(image, story, "contribution")
    return boxes


@draw.register(TokenIdentifiability)
def token_identifiability(result: TokenIdentifiability, canvas: Canvas) -> Axes:
    """Rate by layer, a line for each map, with intervals, control and chance."""
    axes = canvas.axes(6.0, 3.6)
    colours = dict(zip(MAPS, canvas.series(len(MAPS)), strict=True))
    markers = dict(zip(MAPS, MARKERS, strict=False))
    for name, rates in result.rate.items():
        layers, bounds = range(len(rates)), numbers_of(result.interval[name])
        colour = colours[name]
        axes.plot(layers, numbers_of(rates), f"{markers[name]}-", color=colour, label=name)
        axes.fill_between(layers, bounds[:, 0], bounds[:, 1], color=colour, alpha=0.2)
    for name, rates in result.control.items():
        axes.plot(numbers_of(rates), ":", color=colours[name], label=f"{name}, control")
    axes.axhline(result.chance, color=GREY, linewidth=0.8, label="chance")
    layers = range(max(len(rates) for rates in result.rate.values()))
    name_ticks(axes.xaxis, layers)
    axes.set(xlabel="layer", ylabel="identifiable tokens", ylim=(0, 1.02))
    axes.set_title(f"{result.metric}, candidates: {result.candidates}", fontsize="medium")
    legend(canvas, axes)
    return axes
