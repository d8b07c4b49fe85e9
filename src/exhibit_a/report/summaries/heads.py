"""What does the command line print for heads: what they matter, do and leave?"""

from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.methods.heads.importance import HeadImportance, HeadSimilarity
from exhibit_a.methods.heads.patching import HeadPatching
from exhibit_a.methods.heads.pruning import Pruning
from exhibit_a.methods.heads.sinks import SinkDiagnosis
from exhibit_a.report.summaries.dispatch import (
    TOP,
    Summary,
    columns_of,
    from_columns,
    known,
    of_heads,
    strongest_heads,
    summary_rows,
)
from exhibit_a.report.table import Rows
from exhibit_a.subject.site_names import layer_number


@summary_rows.register
def _(result: HeadImportance, top: int | None = None) -> Summary:
    heads = result.ranking[::-1][: TOP if top is None else top]
    columns = {"importance": result.scores, "standard_error": result.standard_error}
    title = f"most important heads by {result.measure}, {result.examples} examples"
    return Summary(title, of_heads(result.sites, heads, columns))


@summary_rows.register
def _(result: HeadSimilarity, top: int | None = None) -> Summary:
    first, second = result.names
    heads = [tuple(place) for place in result.first.isfinite().nonzero().tolist()]
    ranked = sorted(heads, key=lambda place: float(result.first[place]))[::-1]
    rows: Rows = [
        {"layer": place[0], "head": place[1], first: float(result.first[place])}
        | {second: float(result.second[place])}
        for place in ranked[: TOP if top is None else top]
    ]
    low, high = result.interval
    measures = result.provenance.parameters.get("by", ["unknown measures"])
    by = " and ".join(dict.fromkeys(map(str, measures)))
    title = (
        f"importance by {by}: Pearson {result.pearson:.2f} ({low:.2f} to {high:.2f}), "
        f"Spearman {result.spearman:.2f}"
    )
    return Summary(title, rows)


@summary_rows.register
def _(result: PruningCurve, top: int | None = None) -> Summary:  # noqa: ARG001
    columns = columns_of(result, "heads_gone=removed share=fraction accuracy interval loss")
    title = f"{result.order} important heads first, by {result.measure}"
    return Summary(f"{title}; mean accuracy {result.area:.3f}", from_columns(columns))


@summary_rows.register
def _(result: HeadPatching, top: int | None = None) -> Summary:
    columns = {"effect": result.effects, "patched": result.patched}
    change = result.counterfactual_value - result.value
    title = (
        f"heads that carry the difference of two prompts ({change:+.3g} in the {result.target}); "
        f"correlation with true patching {result.correlation:.2f}"
    )
    return Summary(title, of_heads(result.sites, strongest_heads(result.effects, top), columns))


@summary_rows.register
def _(result: SinkDiagnosis, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[site], result.sites),
            "head": head,
            "token": result.tokens_of(site)[1][int(result.key[site][head])],
            "weight": float(result.weight[site][head]),
            "kind": result.kind_of(site, head),
            "length": float(result.length[site][head]),
            "of_output": float(result.output_share[site][head]),
            "unseen": known(result.null_share[site][head]),
        }
        for site, head in strongest_heads(result.weight, top)
    ]
    return Summary("the token that each head looks at most, and what that does", rows)


@summary_rows.register
def _(result: Pruning, top: int | None = None) -> Summary:  # noqa: ARG001
    rows: Rows = [
        {
            "heads_gone": len(result.heads),
            "parameters": result.parameters[1],
            "of": result.parameters[0],
            "times_faster": result.speed_up,
            "answers_differ_by": result.difference,
            "can_be_saved": result.saves,
        }
    ]
    return Summary(f"without {len(result.heads)} heads", rows)
