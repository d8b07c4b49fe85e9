"""How does a map from queries to keys look?"""

from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from torch import Tensor

from exhibit_a.methods.attribution.contribution import ContributionWeights
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.custom_methods import HeadMaps
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, heat_map, map_side, name_ticks
from exhibit_a.report.figures.legends import colour_bar
from exhibit_a.report.figures.sites import choose_head
from exhibit_a.subject.anatomy import key_stack
from exhibit_a.subject.site_names import head_name


@draw.register(HeadMaps)
def head_maps(
    result: HeadMaps, canvas: Canvas, *, site: int | None = None, head: int | None = None
) -> Axes:
    """The map of one head; without ``site`` and ``head``, the one with the largest entries."""
    weights = [heads.abs().sum((1, 2)) for heads in result.maps]
    site, head = choose_head(result.sites, weights, site, head)
    axes, image = token_map(result, canvas, site, result.maps[site][head])
    axes.set_title(head_name(result.sites, site, head))
    colour_bar(image, axes, result.method)
    return axes


@draw.register(ContributionWeights)
def contribution_weights(
    result: ContributionWeights, canvas: Canvas, *, site: int | None = None, head: int | None = None
) -> Axes:
    """What every weight of one head stands for; by default of the head with the longest output."""
    weights = [lengths.sum(1) for lengths in result.lengths]
    site, head = choose_head(result.sites, weights, site, head)
    axes, image = token_map(result, canvas, site, result.scores[site][head])
    axes.set_title(head_name(result.sites, site, head))
    colour_bar(image, axes, "contribution to the head's output")
    return axes


def token_map(
    result: SelfAttribution | HeadMaps | ContributionWeights,
    canvas: Canvas,
    site: int,
    numbers: Tensor,
    *,
    limit: float | None = None,
) -> tuple[Axes, AxesImage]:
    """Numbers between the queries and the keys of a site, with their tokens along the sides."""
    queries, keys = result.tokens_of(site)
    axes = canvas.axes(map_side(len(keys)) + 2.3, map_side(len(queries)) + 1.5)
    image = heat_map(axes, canvas, numbers, limit=limit)
    place = result.sites[site]
    name_ticks(axes.xaxis, canvas.labels(keys, key_stack(place, result.sequences)))
    name_ticks(axes.yaxis, canvas.labels(queries, place.stack))
    axes.set(xlabel="key", ylabel="query")
    return axes, image
