"""How do the contributions of edges, and the tree read from them, look?"""

from matplotlib.axes import Axes

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, literal, name_ticks
from exhibit_a.report.figures.legends import colour_bar
from exhibit_a.report.figures.maps import token_map
from exhibit_a.report.figures.sites import choose_head
from exhibit_a.report.palette import BLUE, VERMILION
from exhibit_a.subject.site_names import head_name, layer_name

WIDEST_TREE = 40  # tokens; of a longer text only those in the tree are shown


@draw.register(SelfAttribution)
def self_attribution(
    result: SelfAttribution,
    canvas: Canvas,
    *,
    site: int | None = None,
    head: int | str | None = None,
) -> Axes:
    """The map of one head, or of all heads of a site together; orange adds to the answer.

    Without ``site`` and ``head``, the head with most of the attribution.
    """
    if isinstance(head, str) and head != "all":
        raise BadRequestError(f'head is a number or "all", not {head!r}.')
    weights = [scores.abs().sum((1, 2)) for scores in result.scores]
    if head == "all":
        weights = [weight.sum(0, keepdim=True) for weight in weights]
    number = None if isinstance(head, str) else head
    site, number = choose_head(result.sites, weights, site, number)
    scores = result.scores[site]
    shown = scores.sum(0) if head == "all" else scores[number]
    name = (
        f"{layer_name(result.sites[site], result.sites)}, all heads"
        if head == "all"
        else head_name(result.sites, site, number)
    )
    axes, image = token_map(result, canvas, site, shown, limit=float(shown.abs().amax()))
    axes.set_title(name)
    colour_bar(image, axes, f"contribution to {result.target}")
    return axes


@draw.register(AttributionTree)
def attribution_tree(result: AttributionTree, canvas: Canvas) -> Axes:
    """Words along the bottom in reading order, layers upwards, and a line for every edge.

    Of a long text, only the words in the tree are shown.
    """
    tokens, levels = result.tokens or (), result.levels()
    shown = list(range(len(tokens)))
    if len(tokens) > WIDEST_TREE:
        shown = sorted(levels)
    column = {node: place for place, node in enumerate(shown)}
    axes = canvas.axes(
        min(max(1.2 + 0.3 * len(shown), 4.0), 10.0), 2.0 + 0.35 * result.layers, rows=True
    )
    for edge in result.edges:
        ends = [edge.parent, edge.child]
        axes.plot(
            [column[node] for node in ends],
            [levels[node] for node in ends],
            color=BLUE,
            linewidth=result.thickness(edge),
        )
    axes.scatter([column[node] for node in levels], list(levels.values()), color=BLUE, zorder=3)
    axes.scatter(
        [column[result.root]], [levels[result.root]], color=VERMILION, marker="D", s=70, zorder=4
    )
    labels = canvas.labels(tokens)
    weights = [float(node in levels) for node in shown]
    name_ticks(axes.xaxis, [labels[node] for node in shown], weights=weights)
    names = [*(f"layer {layer}" for layer in range(result.layers)), "answer"]
    name_ticks(axes.yaxis, names)
    axes.set(
        xlim=(-0.6, len(shown) - 0.4),
        ylim=(-0.4, result.layers + 0.4),
        title=literal(result.target),
    )
    if len(shown) < len(tokens):
        axes.set_xlabel(f"{len(shown)} of {len(tokens)} tokens: those in the tree")
    return axes
