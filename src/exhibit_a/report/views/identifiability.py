"""How much of attention can reach the output? The pages of effective attention and of lengths."""

from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.identifiability.counts import IdentifiabilityByLength
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.report.header import Chart, Column, Line, Panels, Point, Series
from exhibit_a.report.pack import Blocks, SiteMaps
from exhibit_a.report.panels import attention_maps, sequence, site_entries
from exhibit_a.report.views.dispatch import panels_of
from exhibit_a.subject.site_names import layer_name

NULL_FRACTION = (
    "Length of the part of a row that cannot reach the output, over the length of the row; mean "
    "over rows."
)


@panels_of.register
def effective_panels(result: EffectiveAttention, blocks: Blocks) -> Panels:
    """Raw and effective maps, and the freedom of their rows."""
    columns: list[Column] = [
        {"key": "pearson", "name": "Pearson", "help": "Correlation of raw and effective weights."},
        {"key": "null_fraction", "name": "null fraction", "help": NULL_FRACTION},
        {"key": "moved", "name": "moved", "help": "Half the sum of absolute differences."},
    ]
    modes: dict[str, SiteMaps] = {"raw": result.raw, "effective": result.effective}
    maps = attention_maps(blocks, modes, site_entries(result, result.raw), columns)
    for entry in maps["heads"]:
        site, head = entry["site"], entry["head"]
        entry["numbers"] = {
            "pearson": float(result.pearson[site][head]),
            "null_fraction": float(result.null_fraction[site][head].nanmean()),
            "moved": float(result.moved[site][head].nanmean()),
        }
    return {
        "sequences": {stack: sequence(tokens) for stack, tokens in result.sequences.items()},
        "maps": maps,
        "charts": [freedom_chart(result)],
    }


@panels_of.register
def length_panels(result: IdentifiabilityByLength, blocks: Blocks) -> Panels:  # noqa: ARG001
    """What growing beginnings of one text do to attention, in three charts."""
    statistics = (
        ("Raw and effective attention drift apart", "Pearson correlation", result.pearson),
        ("What cannot reach the output", "null fraction", result.null_fraction),
        ("Directions in which a row can move unseen", "nullity", result.nullity),
    )
    return {"charts": [_length_chart(result, *statistic) for statistic in statistics]}


def _length_chart(
    result: IdentifiabilityByLength, title: str, name: str, means: Float[Tensor, "length site"]
) -> Chart:
    series: list[Series] = [
        {
            "name": f"layer {site}",
            "points": [(length, float(means[i, site])) for i, length in enumerate(result.lengths)],
        }
        for site in range(len(result.d_head))
    ]
    return {
        "title": title,
        "x": "tokens",
        "y": name,
        "series": series,
        "lines": _widths(set(result.d_head)),
        "caption": "Means over the heads of a layer, for growing beginnings of the text.",
    }


def freedom_chart(result: EffectiveAttention) -> Chart:
    """In how many directions rows could have moved, by how many keys they see."""
    widths = {site.d_head for site in result.sites}
    series, most = list[Series](), 0
    for site, rank, nullity in zip(result.sites, result.rank, result.nullity, strict=True):
        counts: dict[int, list[float]] = {}
        real = rank >= 0
        for keys, free in zip((rank + nullity)[real].tolist(), nullity[real].tolist(), strict=True):
            counts.setdefault(int(keys), []).append(free)
        most = max(most, *counts)
        dots: list[Point] = [(keys, sum(free) / len(free)) for keys, free in sorted(counts.items())]
        series.append({"name": layer_name(site, result.sites), "points": dots, "dots": True})
    for width in sorted(widths):
        end = max(most, width) * 1.15
        bend: list[Point] = [(0, 0), (width, 0), (end, end - width)]
        name = f"expected of {width} wide heads"
        series.append({"name": name, "points": bend, "dashed": True})
    return {
        "title": "From which length on is attention not unique?",
        "x": "keys a row can see",
        "y": "directions in which it can move unseen",
        "series": series,
        "lines": _widths(widths),
        "caption": "A head passes on d_head numbers. A row over more keys than that can move "
        "without changing them: those moves are counted here, mean over heads, beside what "
        "counting alone expects.",
    }


def _widths(widths: set[int]) -> list[Line]:
    return [{"at": width, "name": f"d_head {width}"} for width in sorted(widths)]
