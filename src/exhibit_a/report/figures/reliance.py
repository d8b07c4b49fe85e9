"""How do the shares of heads in an answer look?"""

import torch
from matplotlib.axes import Axes
from torch import Tensor

from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import Canvas, heat_map, literal, name_ticks
from exhibit_a.report.figures.legends import colour_bar
from exhibit_a.shapes import SiteHeads
from exhibit_a.subject.site_names import layer_name

NOISE = 2.0  # standard deviations; a share that is not beyond chance is left white


@draw.register(Reliance)
def reliance(result: Reliance, canvas: Canvas) -> Axes:
    """The share of every head, and its effect alone, as parts of the answer's margin.

    Orange adds to the answer, blue takes from it. Shares that permuted rows, or the sampling,
    could have given as well are not painted.
    """
    heads = max(site.heads for site in result.sites)
    size = (3.4 + min(0.5 * heads, 8.0), 1.7 + min(0.35 * len(result.sites), 7.0))
    left, right = canvas.panels(2, size, sharey=True)
    scale = result.size or 1.0
    share, alone = (
        head_table(numbers, heads) / scale for numbers in (result.heads, result.one_head)
    )
    spreads = (
        head_table(numbers, heads) / scale for numbers in (result.standard_error, result.null)
    )
    noise = NOISE * torch.hypot(*spreads)
    share = torch.where((share.abs() <= noise) & (noise > 0), 0.0, share)
    limit = float(torch.cat([share, alone]).nan_to_num().abs().amax())
    for axes, numbers, name in ((left, share, "share"), (right, alone, "alone")):
        image = heat_map(axes, canvas, numbers, limit=limit, even=True, square=False)
        name_ticks(axes.xaxis, range(heads))
        axes.set(xlabel="head", title=name)
    name_ticks(left.yaxis, [layer_name(site, result.sites) for site in result.sites])
    doubt = "" if result.determined else ", not determined"
    colour_bar(image, [left, right], literal(f"part of the margin, white if like chance{doubt}"))
    return left


def head_table(numbers: tuple[SiteHeads, ...], heads: int) -> Tensor:
    """Sites by heads; nothing where a site has fewer heads than others."""
    table = torch.full((len(numbers), heads), torch.nan, dtype=torch.double)
    for row, site in zip(table, numbers, strict=True):
        row[: len(site)] = to_float64(site)
    return table
