"""Describes what attention could also have been: effective attention, alternatives, counts."""

import torch
from torch import Tensor

from exhibit_a.methods.identifiability.alternatives import AlternativeAttention
from exhibit_a.methods.identifiability.counts import (
    DEMANDS,
    AttentionIdentifiability,
    IdentifiabilityByLength,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.blocks import (
    Blocks,
    Chart,
    Column,
    Figure,
    Grid,
    Line,
    Maps,
    Mode,
    Row,
    Rows,
    Series,
    SiteMaps,
    Table,
    Texts,
)
from exhibit_a.report.describe.any_result import any_result
from exhibit_a.report.describe.parts import (
    column,
    from_columns,
    known_means,
    layers,
    means,
    of_heads,
    pairs,
    points,
    sites_of,
)
from exhibit_a.report.describe.registry import describe
from exhibit_a.subject.anatomy import layer_name, layer_number

ROUNDING = 1e-5  # maps that differ by less than this share of their weight are the same

PEARSON = Column("pearson", "Pearson", "Correlation of raw and effective weights.")
NULL_FRACTION = Column(
    "null_fraction",
    "null fraction",
    "Length of the part of a row that cannot reach the output, over the length of the row; mean "
    "over rows.",
)
MOVABLE = Column(
    "movable",
    "movable weight",
    "Weight on the fewest keys that hold half of a row, as far as it could lie on other keys with "
    "the same output; mean over the rows that were computed.",
)
MOVED = Column("moved", "moved", "Half the sum of absolute differences.")


def raw_mode(maps: SiteMaps) -> Mode:
    """The weights as the model used them."""
    caption = "Raw attention: the weights the model used. Rows sum to one."
    return Mode("raw", "Raw", maps, caption, signed=False)


def effective_modes(maps: SiteMaps) -> tuple[Mode, Mode]:
    """Effective attention, and what it lacks of the raw weights."""
    return (
        Mode(
            "effective",
            "Effective",
            maps,
            "Effective attention: what is left of the weights after removing the part that the "
            "head’s values multiply away. It gives the same output; it may be negative.",
        ),
        Mode(
            "difference",
            "Difference",
            caption="Effective minus raw: the part of attention that cannot be seen in the output.",
            minus=("effective", "raw"),
        ),
    )


@describe.register
def _(result: EffectiveAttention) -> Blocks:
    by_layer = from_columns(
        f"raw and effective attention, {len(result.tokens or ())} tokens, means over heads and "
        "rows",
        {
            "layer": [layer_number(site, result.sites) for site in result.sites],
            "not_unique": [float(to_float64(verdict == 2).mean()) for verdict in result.verdict],
            "nullity": [int(nullity.amax()) for nullity in result.nullity],
            PEARSON: means(result.pearson),
            NULL_FRACTION: known_means(result.null_fraction),
            MOVED: known_means(result.moved),
            "special_raw": means(result.special_raw),
            "special_effective": means(result.special_effective),
            "first_raw": means(result.first_raw),
            "first_effective": means(result.first_effective),
        },
    )
    moved = [rows.nanmean(-1) for rows in result.moved]
    by_head = {
        PEARSON: result.pearson,
        NULL_FRACTION: [rows.nanmean(-1) for rows in result.null_fraction],
        MOVED: moved,
    }
    # A plot shows the head whose effective map differs most from the raw one; in a text so short
    # that none differs, the head with most weight on words.
    differ = max(float(heads.amax()) for heads in moved) > ROUNDING
    weights = tuple(moved) if differ else tuple(1 - share for share in result.special_raw)
    maps = Maps(
        (raw_mode(result.raw), *effective_modes(result.effective)),
        sites_of(result, result.raw),
        of_heads("heads", result.sites, by_head, moved),
        weights=weights,
        label="weight",
        titled=PEARSON.key,
    )
    return Texts(result.sequences), by_layer, maps, freedom_chart(result)


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
        dots = tuple((keys, sum(free) / len(free)) for keys, free in sorted(counts.items()))
        series.append(Series(layer_name(site, result.sites), dots, mark="dots"))
    for width in sorted(widths):
        end = max(most, width) * 1.15
        bend = ((0, 0), (width, 0), (end, end - width))
        series.append(Series(f"expected of {width} wide heads", bend, dashed=True))
    return Chart(
        "keys a row can see",
        "directions in which it can move unseen",
        tuple(series),
        "From which length on is attention not unique?",
        _widths(widths),
        "A head passes on d_head numbers. A row over more keys than that can move without changing "
        "them: those moves are counted here, mean over heads, next to what counting alone expects.",
    )


def _widths(widths: set[int]) -> tuple[Line, ...]:
    return tuple(Line(width, f"d_head {width}") for width in sorted(widths))


@describe.register
def _(result: IdentifiabilityByLength) -> Blocks:
    special = {"special_raw": result.special_raw, "special_effective": result.special_effective}
    by_layer = {
        "pearson": (result.pearson, "Raw and effective attention drift apart", "Pearson"),
        "null_fraction": (result.null_fraction, "What cannot reach the output", "null fraction"),
        "nullity": (result.nullity, "Directions in which a row can move unseen", "nullity"),
    }
    widths = ", ".join(map(str, sorted(set(result.d_head))))
    table = from_columns(
        f"by length; heads are {widths} wide",
        {
            "tokens": result.lengths,
            **{name: means(numbers) for name, (numbers, _, _) in by_layer.items()},
            **{name: means(numbers) for name, numbers in special.items()},
        },
    )

    def chart(title: str, y: str, series: dict[str, Tensor], *, ordered: bool) -> Chart:
        curves = (
            Series(name, points(numbers, result.lengths), dashed=number % 2 == 1 or None)
            for number, (name, numbers) in enumerate(series.items())
        )
        caption = "Means over the heads of a layer, for growing beginnings of the text."
        lines = _widths(set(result.d_head))
        return Chart("tokens", y, tuple(curves), title, lines, caption, ordered=ordered)

    charts = [
        chart(
            title,
            name,
            {f"layer {site}": numbers[:, site] for site in range(len(result.d_head))},
            ordered=True,
        )
        for numbers, title, name in by_layer.values()
    ]
    kinds = {name.removeprefix("special_"): weight.mean(1) for name, weight in special.items()}
    charts.append(
        chart("Weight on special tokens", "weight on special tokens", kinds, ordered=False)
    )
    return table, Figure((charts[0], charts[1], charts[3]), (11.0, 3.2)), charts[2]


@describe.register
def _(result: AttentionIdentifiability) -> Blocks:
    grid = torch.full((len(result.sites), len(DEMANDS)), torch.nan)
    for site in range(len(result.sites)):
        unique = result.unique(site)
        grid[site, : len(unique)] = unique
    drawn = Grid(
        layers(result.sites),
        tuple(DEMANDS),
        grid,
        "rows that are the only ones possible",
        "share of rows",
        "demands, each together with those before it",
        most=1.0,
    )
    return demands(result), drawn, *any_result(result)


def demands(result: AttentionIdentifiability) -> Table:
    """How many rows are unique when more and more is demanded of an alternative."""
    names = {
        "same_output": "same output",
        "same_sum": "and the same sum",
        "not_negative": "and none negative",
        "as_keys_allow": "and as the keys allow",
    }
    rows: Rows = []
    for site in result.sites:
        shares: list[float | None] = result.unique(site.index).tolist()
        shares += [None] * (len(names) - len(shares))
        rows.append(
            {"layer": layer_number(site, result.sites), **dict(zip(names, shares, strict=True))}
        )
        if (movable := result.movable[site.index]) is not None:
            rows[-1][MOVABLE.key] = float(movable.nanmean())
    columns = (column("layer"), *(Column(key, name) for key, name in names.items()))
    return Table(
        "share of rows that are unique, under more and more demands",
        columns if None in result.movable else (*columns, MOVABLE),
        rows,
        "Share of rows that are unique when more and more is demanded of an alternative. The last "
        "demand is local: small moves that the model’s own keys could make.",
    )


@describe.register
def _(result: AlternativeAttention) -> Blocks:
    numbers = {"weight": result.row, "low": result.low, "high": result.high}
    numbers["farthest"] = result.farthest
    rows = [
        Row(key=key, token=result.key_tokens[key])
        | {name: float(weights[key]) for name, weights in numbers.items()}
        for key in range(len(result.key_tokens))
    ]
    width = result.high - result.low
    place = f"site {result.site}, head {result.head}, query {result.query}"
    unique = "unique" if result.identifiable else f"{result.freedom} directions are free"
    table = Table(
        f"{place}: {unique}; farthest alternative {result.distance:.3f} away",
        tuple(map(column, ("key", "token", *numbers))),
        rows,
        rank=lambda row: float(width[int(row["key"])]),  # type: ignore[arg-type]
    )
    ends = torch.stack([result.low, result.high], -1)
    chart = Chart(
        "key",
        "weight (square-root scale)",
        (
            Series("possible", points(result.high), pairs(ends), mark="bars", role="pale"),
            Series("the model's", points(result.row), mark="dots"),
            Series("farthest", points(result.farthest), mark="dots"),
        ),
        f"{place}: total variation {result.distance:.2f}",
        names=result.key_tokens,
        tokens="",
        scale="root",
    )
    return table, chart, *any_result(result)
