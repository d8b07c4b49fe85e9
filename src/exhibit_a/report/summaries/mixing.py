"""What does the command line print for what is left of tokens in their vectors?"""

from collections.abc import Mapping

from torch import Tensor

from exhibit_a.methods.mixing.head_mixing import HeadMixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.mixing.token_identifiability import TokenIdentifiability
from exhibit_a.report.summaries.dispatch import (
    Columns,
    Summary,
    from_columns,
    known_means,
    summary_rows,
)
from exhibit_a.report.table import Rows
from exhibit_a.results.result import Result
from exhibit_a.subject.site_names import place_name


@summary_rows.register
def _(result: HiddenAttribution, top: int | None = None) -> Summary:
    if result.stack != result.source:
        return summary_rows.dispatch(Result)(result, top)
    shares, tokens = result.self_contribution, result.tokens or ()
    least = [(int(layer.argmin()), float(layer.amin())) for layer in shares]
    columns: Columns = {
        "layer": range(len(shares)),
        "own_share": [float(layer.median()) for layer in shares],
        "not_own_top": result.not_own_top,
        "least_of_itself": [f"{tokens[place]} ({share:.2f})" for place, share in least],
    }
    return Summary("what is left of a token", from_columns(columns))


@summary_rows.register
def _(result: HeadMixing, top: int | None = None) -> Summary:  # noqa: ARG001
    places = zip(result.stack, result.layer, result.kind, strict=True)
    names = [place_name(*place, set(result.stack)) for place in places]
    columns: Columns = {
        "layer": [name.replace("layer ", "") for name in names],
        "pearson": known_means(result.pearson),
        "spearman": known_means(result.spearman),
        "jensen_shannon": known_means(result.jensen_shannon),
        "total_variation": known_means(result.total_variation),
    }
    return Summary("attention and input contribution, means over heads", from_columns(columns))


@summary_rows.register
def _(result: TokenIdentifiability, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "map": name,
            "layer": layer,
            "found": float(rate[layer]),
            "interval": tuple(result.interval[name][layer].tolist()),
            "control": _at(result.control, name, layer),
            "selectivity": _at(result.selectivity, name, layer),
            "memorised by the control": _at(result.memorised, name, layer),
            "chance": result.chance,
        }
        for name, rate in result.rate.items()
        for layer in range(len(rate))
    ]
    return Summary(f"tokens found again ({result.metric})", rows)


def _at(by_map: Mapping[str, Tensor], name: str, layer: int) -> float | None:
    """The number of a map at a layer, for maps that have one."""
    return float(by_map[name][layer]) if name in by_map else None
