"""What does the command line print for what attention could also have been?"""

from exhibit_a.methods.identifiability.alternatives import AlternativeAttention
from exhibit_a.methods.identifiability.counts import (
    AttentionIdentifiability,
    IdentifiabilityByLength,
)
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.summaries.dispatch import (
    Columns,
    Summary,
    from_columns,
    known_means,
    means,
    summary_rows,
)
from exhibit_a.report.table import Rows
from exhibit_a.subject.site_names import layer_number

DEMANDS = ("same_output", "same_sum", "not_negative", "as_keys_allow")


@summary_rows.register
def _(result: EffectiveAttention, top: int | None = None) -> Summary:  # noqa: ARG001
    columns: Columns = {
        "layer": [layer_number(site, result.sites) for site in result.sites],
        "not_unique": [float(to_float64(verdict == 2).mean()) for verdict in result.verdict],
        "nullity": [int(nullity.amax()) for nullity in result.nullity],
        "pearson": means(result.pearson),
        "null_fraction": known_means(result.null_fraction),
        "moved": known_means(result.moved),
        "special_raw": means(result.special_raw),
        "special_effective": means(result.special_effective),
        "first_raw": means(result.first_raw),
        "first_effective": means(result.first_effective),
    }
    count = len(result.tokens or ())
    title = f"raw and effective attention, {count} tokens, means over heads and rows"
    return Summary(title, from_columns(columns))


@summary_rows.register
def _(result: IdentifiabilityByLength, top: int | None = None) -> Summary:  # noqa: ARG001
    columns: Columns = {
        "tokens": result.lengths,
        "pearson": means(result.pearson),
        "null_fraction": means(result.null_fraction),
        "nullity": means(result.nullity),
        "special_raw": means(result.special_raw),
        "special_effective": means(result.special_effective),
    }
    widths = ", ".join(map(str, sorted(set(result.d_head))))
    return Summary(f"by length; heads are {widths} wide", from_columns(columns))


@summary_rows.register
def _(result: AttentionIdentifiability, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = []
    for site in result.sites:
        shares: list[float | None] = result.unique(site.index).tolist()
        shares += [None] * (len(DEMANDS) - len(shares))
        rows.append(
            {"layer": layer_number(site, result.sites), **dict(zip(DEMANDS, shares, strict=True))}
        )
    return Summary("share of rows that are unique, under more and more demands", rows)


@summary_rows.register
def _(result: AlternativeAttention, top: int | None = None) -> Summary:
    columns = {"weight": result.row, "low": result.low, "high": result.high}
    columns["farthest"] = result.farthest
    widest = (result.high - result.low).argsort(descending=True, stable=True).tolist()
    keys = range(len(widest)) if top is None else widest[:top]
    rows: Rows = [
        {"key": key, "token": result.key_tokens[key]}
        | {name: float(weights[key]) for name, weights in columns.items()}
        for key in keys
    ]
    place = f"site {result.site}, head {result.head}, query {result.query}"
    unique = "unique" if result.identifiable else f"{result.freedom} directions are free"
    return Summary(f"{place}: {unique}; farthest alternative {result.distance:.3f} away", rows)
