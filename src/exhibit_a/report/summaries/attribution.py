"""What does the command line print for edges, heads and tokens that an answer rests on?"""

from exhibit_a.methods.attribution.contribution import ContributionWeights
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.sentences import reliance_sentences
from exhibit_a.report.summaries.dispatch import (
    TOP,
    Columns,
    Summary,
    from_columns,
    of_heads,
    strongest_heads,
    summary_rows,
)
from exhibit_a.report.table import Rows
from exhibit_a.subject.site_names import layer_number


@summary_rows.register
def _(result: Reliance, top: int | None = None) -> Summary:
    columns = {
        "share": result.heads,
        "of_margin": tuple(to_float64(heads) / (result.size or 1.0) for heads in result.heads),
        "alone": result.one_head,
        "error": result.standard_error,
        "by_chance": result.null,
        "points": result.pointing,
        "coherence": result.coherence,
    }
    doubt = "" if result.determined else f" Not determined: {result.reason}."
    title = " ".join(reliance_sentences(result, {})) + doubt
    return Summary(title, of_heads(result.sites, strongest_heads(result.heads, top), columns))


@summary_rows.register
def _(result: SelfAttribution, top: int | None = None) -> Summary:
    edges = result.strongest(TOP if top is None else top)
    columns: Columns = {
        "layer": [layer_number(result.sites[edge.site], result.sites) for edge in edges],
        "head": [edge.head for edge in edges],
        "query": [edge.query_token for edge in edges],
        "key": [edge.key_token for edge in edges],
        "contribution": [edge.score for edge in edges],
    }
    return Summary(f"strongest attention edges for the {result.target}", from_columns(columns))


@summary_rows.register
def _(result: AttributionTree, top: int | None = None) -> Summary:  # noqa: ARG001
    tokens = result.tokens or ()
    columns: Columns = {
        "layer": [edge.layer for edge in result.edges],
        "parent": [tokens[edge.parent] for edge in result.edges],
        "child": [tokens[edge.child] for edge in result.edges],
        "score": [edge.score for edge in result.edges],
    }
    return Summary(f"tree for the {result.target}", from_columns(columns))


@summary_rows.register
def _(result: ContributionWeights, top: int | None = None) -> Summary:
    lengths = tuple(site.sum(1) for site in result.lengths)
    rows: Rows = []
    for site, head in strongest_heads(lengths, top):
        scores, (queries, keys) = result.scores[site][head], result.tokens_of(site)
        query, key = divmod(int(scores.abs().argmax()), scores.shape[1])
        rows.append(
            {
                "layer": layer_number(result.sites[site], result.sites),
                "head": head,
                "query": queries[query],
                "key": keys[key],
                "contribution": float(scores[query, key]),
                "of_output": float(result.shares[site][head, query, key]),
            }
        )
    return Summary("the strongest contribution in the heads with the longest outputs", rows)
