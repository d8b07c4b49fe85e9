"""How does it look that attention could have been different?"""

import torch
from matplotlib.axes import Axes
from torch import Tensor

from exhibit_a.methods.identifiability.alternatives import AlternativeAttention
from exhibit_a.methods.identifiability.counts import (
    DEMANDS,
    AttentionIdentifiability,
    IdentifiabilityByLength,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.report.figures.dispatch import draw
from exhibit_a.report.figures.drawing import (
    LINES,
    Canvas,
    evenly,
    heat_map,
    map_side,
    name_ticks,
    numbers_of,
    root_scale,
)
from exhibit_a.report.figures.legends import colour_bar, legend
from exhibit_a.report.figures.sites import choose_head
from exhibit_a.report.palette import GREY, PALE
from exhibit_a.subject.anatomy import key_stack
from exhibit_a.subject.site_names import head_name, layer_name

ROUNDING = 1e-5  # maps that differ by less than this share of their weight are the same


@draw.register(EffectiveAttention)
def effective_attention(
    result: EffectiveAttention,
    canvas: Canvas,
    *,
    site: int | None = None,
    head: int | None = None,
) -> Axes:
    """Raw, effective and their difference, on one signed scale.

    Without ``site`` and ``head``, the head whose effective map differs most from the raw one; in a
    text so short that none differs, the head with most weight on words.
    """
    site, head = choose_head(result.sites, _weights(result), site, head)
    raw, effective = result.raw[site][head], result.effective[site][head]
    limit = float(torch.stack([raw, effective]).abs().amax())
    queries, keys = result.tokens_of(site)
    size = 3 * map_side(len(keys), 3.6) + 2.2, map_side(len(queries), 3.6) + 1.5
    panels = canvas.panels(3, size, sharey=True)
    maps = {"raw": raw, "effective": effective, "effective − raw": effective - raw}
    place = result.sites[site]
    for panel, (name, numbers) in zip(panels, maps.items(), strict=True):
        image = heat_map(panel, canvas, numbers, limit=limit)
        panel.set(title=name, xlabel="key")
        name_ticks(panel.xaxis, canvas.labels(keys, key_stack(place, result.sequences)))
        name_ticks(panel.yaxis, canvas.labels(queries, place.stack))
    panels[0].set_ylabel("query")
    pearson = float(result.pearson[site][head])
    panels[0].figure.suptitle(
        f"{head_name(result.sites, site, head)}: Pearson {pearson:.3f}", fontsize="large"
    )
    colour_bar(image, panels, "weight")
    return panels[0]


@draw.register(AlternativeAttention)
def alternative_attention(result: AlternativeAttention, canvas: Canvas) -> Axes:
    """The row, the interval of each weight, and the farthest alternative."""
    places = range(len(result.key_tokens))
    axes = canvas.axes(min(max(5.0, 2.0 + 0.16 * len(places)), 10.0), 3.4)
    low, high = numbers_of(result.low), numbers_of(result.high)
    usual, other = canvas.series(2)
    size = 4 if len(places) < 100 else 2
    axes.bar(places, high - low, bottom=low, width=0.9, color=PALE, label="possible")
    axes.plot(places, numbers_of(result.row), "o", ms=size, color=usual, label="the model's")
    axes.plot(places, numbers_of(result.farthest), "x", ms=size, color=other, label="farthest")
    name_ticks(axes.xaxis, canvas.labels(result.key_tokens), weights=high.tolist())
    root_scale(axes)
    axes.set(
        xlim=(-1, len(places)),
        ylabel="weight (square-root scale)",
        title=f"site {result.site}, head {result.head}, query {result.query}: "
        f"total variation {result.distance:.2f}",
    )
    legend(canvas, axes)
    return axes


@draw.register(AttentionIdentifiability)
def attention_identifiability(result: AttentionIdentifiability, canvas: Canvas) -> Axes:
    """The share of rows that are the only ones possible, with one demand after the other."""
    shares = torch.full((len(result.sites), len(DEMANDS)), torch.nan)
    for site in range(len(result.sites)):
        unique = result.unique(site)
        shares[site, : len(unique)] = unique
    axes = canvas.axes(6.0, 1.4 + 0.3 * len(result.sites), rows=True)
    image = axes.imshow(numbers_of(shares), vmin=0, vmax=1, cmap=canvas.unsigned, aspect="auto")
    name_ticks(axes.xaxis, DEMANDS)
    name_ticks(axes.yaxis, [layer_name(site, result.sites) for site in result.sites])
    axes.set_title("rows that are the only ones possible", fontsize="medium")
    axes.set_xlabel("demands, each beside those before it")
    colour_bar(image, axes, "share of rows")
    return axes


@draw.register(IdentifiabilityByLength)
def identifiability_by_length(result: IdentifiabilityByLength, canvas: Canvas) -> Axes:
    """Pearson, null fraction and weight on special tokens by length, with the d_head line."""
    panels = canvas.panels(3, (11.0, 3.2))
    count = len(result.d_head)
    named = evenly(count, 6)
    for site, colour in enumerate(canvas.shades(count)):
        label = f"layer {site}" if site in named else None
        for panel, numbers in zip(panels, (result.pearson, result.null_fraction), strict=False):
            panel.plot(
                result.lengths,
                numbers_of(numbers[:, site]),
                color=colour,
                linestyle=LINES[site % len(LINES)],
                label=label,
            )
    kinds = {"raw": result.special_raw, "effective": result.special_effective}
    for colour, line, (name, weight) in zip(canvas.series(2), LINES, kinds.items(), strict=False):
        panels[2].plot(
            result.lengths, numbers_of(weight.mean(1)), color=colour, linestyle=line, label=name
        )
    names = ("Pearson(raw, effective)", "null fraction", "weight on special tokens")
    for panel, name in zip(panels, names, strict=True):
        for width in sorted(set(result.d_head)):
            panel.axvline(width, color=GREY, linestyle=":", linewidth=1, label=f"d_head {width}")
        panel.set(xlabel="tokens", ylabel=name)
    legend(canvas, panels[0], panels[2])
    return panels[0]


def _weights(result: EffectiveAttention) -> list[Tensor]:
    """What makes a head worth a look: how far its effective map is from its raw one."""
    moved = [rows.mean(-1) for rows in result.moved]
    if max(float(heads.amax()) for heads in moved) > ROUNDING:
        return moved
    return [1 - share for share in result.special_raw]
