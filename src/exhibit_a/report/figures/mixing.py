"""Figures of the room mixing."""

from typing import TYPE_CHECKING

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure
from exhibit_a.report.palette import BLUE, GREEN, PURPLE, VERMILION

if TYPE_CHECKING:
    import matplotlib.figure
from exhibit_a.errors import BadRequestError
from exhibit_a.methods.mixing.head_mixing import HeadMixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.mixing.token_identifiability import MAPS, TokenIdentifiability


@figure.register(HeadMixing)
def head_mixing(result: HeadMixing) -> "matplotlib.figure.Figure":
    """How far attention and contribution disagree, head by head."""
    drawn = extra("matplotlib.figure").Figure(figsize=(6, 3.4), layout="constrained")
    axis = drawn.subplots()
    for site, scores in enumerate(result.total_variation):
        marks = scores.numpy(force=True)
        axis.plot([site] * len(marks), marks, "o", color=BLUE, alpha=0.6)
        axis.plot(site, marks.mean(), "_", color=VERMILION, markersize=22)
    axis.set_xticks(
        range(len(result.layer)),
        [f"{result.stack[i][:3]} {n} {result.kind[i]}" for i, n in enumerate(result.layer)],
        rotation=45,
    )
    axis.set(ylabel="weight that lies elsewhere", xlabel="attention site", ylim=(0, 1))
    return drawn  # type: ignore[no-any-return]


@figure.register(HiddenAttribution)
def hidden_attribution(
    result: HiddenAttribution, token: int | None = None
) -> "matplotlib.figure.Figure":
    """Own share by layer, the neighbour profile, and the story of one token.

    Without ``token`` the story is that of the token with the least of itself left at the end.
    """
    own = result.self_contribution
    chosen = int(own[-1].argmin()) if token is None else token
    if not 0 <= chosen < own.shape[1]:
        raise BadRequestError(f"There is no token {chosen}; valid are 0 to {own.shape[1] - 1}.")
    drawn = extra("matplotlib.figure").Figure(figsize=(13, 3.6), layout="constrained")
    boxes, profile, story = drawn.subplots(1, 3, width_ratios=(1, 1, 1.4))
    boxes.boxplot(own.T.numpy(force=True), positions=range(len(own)), widths=0.6)
    boxes.set(xlabel="layer", ylabel="contribution of the token itself", ylim=(0, 1.02))
    shades = extra("matplotlib").colormaps["viridis"]
    for layer, row in enumerate(result.neighbours.numpy(force=True)):
        profile.plot(row, color=shades(layer / len(own)), label=f"layer {layer}")
    profile.set(xlabel="distance", ylabel="share of contribution")
    profile.set_yscale("symlog", linthresh=1e-2)
    profile.legend(fontsize="x-small", loc="upper right")
    shown = story.imshow(
        result.contribution[:, chosen].numpy(force=True), cmap="cividis", aspect="auto"
    )
    names = result.source_tokens
    story.set_xticks(range(len(names)), names, rotation=90, fontsize="x-small")
    story.set(ylabel="layer", title=f"who is in “{names[chosen]}” ({chosen})")
    drawn.colorbar(shown, ax=story, label="contribution")
    return drawn  # type: ignore[no-any-return]


@figure.register(TokenIdentifiability)
def token_identifiability(result: TokenIdentifiability) -> "matplotlib.figure.Figure":
    """Rate by layer, a line for each map, with intervals, control and chance."""
    drawn = extra("matplotlib.figure").Figure(figsize=(6, 3.6), layout="constrained")
    axis = drawn.subplots()
    colours = dict(zip(MAPS, (BLUE, PURPLE, VERMILION, GREEN), strict=True))
    for name, rates in result.rate.items():
        layers, bounds = range(len(rates)), result.interval[name].numpy(force=True)
        axis.plot(layers, rates.numpy(force=True), "o-", color=colours[name], label=name)
        axis.fill_between(layers, bounds[:, 0], bounds[:, 1], color=colours[name], alpha=0.2)
    for name, rates in result.control.items():
        label = f"{name}, control"
        axis.plot(rates.numpy(force=True), ":", color=colours[name], label=label)
    axis.axhline(result.chance, color="0.4", linewidth=0.8, label="chance")
    title = f"{result.metric}, candidates: {result.candidates}"
    axis.set(xlabel="layer", ylabel="identifiable tokens", ylim=(0, 1.02), title=title)
    axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return drawn  # type: ignore[no-any-return]
