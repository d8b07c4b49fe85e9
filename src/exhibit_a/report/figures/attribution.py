"""Figures of the room attribution."""

from typing import TYPE_CHECKING, Any

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure
from exhibit_a.report.palette import BLUE, ORANGE

if TYPE_CHECKING:
    pass
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree


@figure.register(SelfAttribution)
def self_attribution(result: SelfAttribution, site: int = -1, head: int | None = None) -> Any:
    """One site's map, all heads together or one of them; red adds to the answer."""
    site %= len(result.sites)
    shown = result.scores[site].sum(0) if head is None else result.scores[site][head]
    limit = max(float(one.sum(0).abs().amax()) for one in result.scores)
    limit = limit if head is None else float(result.scores[site].abs().amax())
    queries, keys = result.tokens_of(site)
    drawn = extra("matplotlib.figure").Figure(
        figsize=(2 + 0.28 * len(keys), 1.5 + 0.28 * len(queries)), layout="constrained"
    )
    axes = drawn.subplots()
    limit = limit or 1.0
    image = axes.imshow(shown.numpy(force=True), cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_xticks(range(len(keys)), keys, rotation=90)
    axes.set_yticks(range(len(queries)), queries)
    which = "all heads" if head is None else f"head {head}"
    here = result.sites[site]
    axes.set(xlabel="key", ylabel="query", title=f"{here.stack} layer {here.layer}, {which}")
    drawn.colorbar(image, label=f"contribution to {result.target}")
    return drawn


@figure.register(AttributionTree)
def attribution_tree(result: AttributionTree) -> Any:
    """The same drawing with matplotlib."""
    tokens, levels = result.tokens or (), result._levels()
    drawn = extra("matplotlib.figure").Figure(
        figsize=(1 + 0.6 * len(tokens), 1.5 + 0.4 * result.layers), layout="constrained"
    )
    axes = drawn.subplots()
    for edge in result.edges:
        ends = (edge.parent, edge.child)
        heights = [levels[node] for node in ends]
        axes.plot(ends, heights, color=BLUE, linewidth=result._thickness(edge))
    axes.scatter(list(levels), list(levels.values()), color=BLUE, zorder=3)
    axes.scatter([result.root], [levels[result.root]], color=ORANGE, s=70, zorder=4)
    axes.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right")
    names = [*(f"layer {layer}" for layer in range(result.layers)), "answer"]
    axes.set_yticks(range(result.layers + 1), names)
    axes.set_title(result.target)
    return drawn
