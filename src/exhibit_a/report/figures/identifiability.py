"""Figures of the room identifiability."""

from typing import TYPE_CHECKING

import torch

from exhibit_a.extras import extra
from exhibit_a.report.figures.dispatch import figure

if TYPE_CHECKING:
    import matplotlib.figure
from exhibit_a.methods.identifiability.alternatives import AlternativeAttention
from exhibit_a.methods.identifiability.counts import (
    DEMANDS,
    AttentionIdentifiability,
    IdentifiabilityByLength,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.subject.anatomy import check_site


@figure.register(AlternativeAttention)
def alternative_attention(result: AlternativeAttention) -> "matplotlib.figure.Figure":
    """The row, the interval of each weight, and the farthest alternative."""
    places = range(len(result.key_tokens))
    drawn = extra("matplotlib.figure").Figure(
        figsize=(max(5, 0.22 * len(places)), 3.2), layout="constrained"
    )
    axes = drawn.subplots()
    low, high = result.low.numpy(force=True), result.high.numpy(force=True)
    axes.bar(places, high - low, bottom=low, color="0.85", label="possible")
    axes.plot(places, result.row.numpy(force=True), "o", ms=4, color="#0072B2", label="the model's")
    axes.plot(
        places, result.farthest.numpy(force=True), "x", ms=5, color="#D55E00", label="farthest"
    )
    axes.set_xticks(places, result.key_tokens, rotation=90, fontsize="x-small")
    axes.set(
        ylabel="weight",
        title=f"site {result.site}, head {result.head}, query {result.query}: "
        f"total variation {result.distance:.2f}",
    )
    axes.legend(fontsize="small")
    return drawn  # type: ignore[no-any-return]


@figure.register(AttentionIdentifiability)
def attention_identifiability(result: AttentionIdentifiability) -> "matplotlib.figure.Figure":
    """The share of rows that are the only ones possible, demand upon demand."""
    drawn: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
        figsize=(6, 1.4 + 0.3 * len(result.sites)), layout="constrained"
    )
    axis = drawn.subplots()
    shares = torch.full((len(result.sites), len(DEMANDS)), torch.nan)
    for place in range(len(result.sites)):
        found = result.unique(place)
        shares[place, : len(found)] = found
    drawn = axis.imshow(shares.numpy(), vmin=0, vmax=1, cmap="cividis", aspect="auto")
    axis.set_xticks(range(len(DEMANDS)), DEMANDS)
    names = [f"{one.stack} {one.layer} {one.kind}" for one in result.sites]
    axis.set_yticks(range(len(names)), names)
    axis.set_title("rows that stay the only ones, demand upon demand", fontsize="medium")
    drawn.colorbar(drawn, label="share of rows")
    return drawn


@figure.register(IdentifiabilityByLength)
def identifiability_by_length(result: IdentifiabilityByLength) -> "matplotlib.figure.Figure":
    """Pearson, null fraction and weight on special tokens by length, with the d_head line."""
    drawn = extra("matplotlib.figure").Figure(figsize=(12, 3.4), layout="constrained")
    axes = drawn.subplots(1, 3)
    shades = extra("matplotlib").colormaps["viridis"]
    count = len(result.d_head)
    for site in range(count):
        colour = shades(site / max(count - 1, 1))
        for panel, part in zip(axes, (result.pearson, result.null_fraction), strict=False):
            panel.plot(result.lengths, part[:, site], color=colour, label=f"site {site}")
    axes[2].plot(result.lengths, result.special_raw.mean(1), color="#0072B2", label="raw")
    axes[2].plot(
        result.lengths, result.special_effective.mean(1), color="#D55E00", label="effective"
    )
    names = ("Pearson(raw, effective)", "null fraction", "weight on special tokens")
    for panel, name in zip(axes, names, strict=True):
        for width in sorted(set(result.d_head)):
            panel.axvline(width, color="0.4", ls="--", lw=1, label=f"d_head {width}")
        panel.set(xlabel="tokens", ylabel=name)
    axes[0].legend(fontsize="x-small")
    axes[2].legend(fontsize="x-small")
    return drawn  # type: ignore[no-any-return]


@figure.register(EffectiveAttention)
def effective_attention(
    result: EffectiveAttention, site: int = 0, head: int = 0
) -> "matplotlib.figure.Figure":
    """Raw, effective and their difference, on one locked and signed scale."""
    check_site(result.sites, site, head)
    raw, effective = (part[site][head].numpy(force=True) for part in (result.raw, result.effective))
    queries, keys = result.tokens_of(site)
    limit = max(abs(raw).max(), abs(effective).max())
    size = min(0.16 * len(keys) + 1, 7)
    drawn = extra("matplotlib.figure").Figure(
        figsize=(3 * size + 1.5, size + 1.2), layout="constrained"
    )
    axes = drawn.subplots(1, 3, sharey=True)
    for panel, name, shown in zip(
        axes,
        ("raw", "effective", "effective − raw"),
        (raw, effective, effective - raw),
        strict=True,
    ):
        image = panel.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit)
        panel.set(title=name, xlabel="key")
        panel.set_xticks(range(len(keys)), keys, rotation=90, fontsize="xx-small")
    axes[0].set_yticks(range(len(queries)), queries, fontsize="xx-small")
    axes[0].set_ylabel("query")
    here = result.sites[site]
    drawn.suptitle(
        f"{here.stack} layer {here.layer}, {here.kind}-attention, head {head}: "
        f"Pearson {float(result.pearson[site][head]):.3f}"
    )
    drawn.colorbar(image, ax=axes, label="weight")
    return drawn  # type: ignore[no-any-return]
