"""Describes heads: what they matter, do and leave, and the patterns that turn any text."""

from collections.abc import Sequence

from exhibit_a.methods.heads.curve import Pruning, PruningCurve
from exhibit_a.methods.heads.importance import HeadImportance, HeadSimilarity
from exhibit_a.methods.heads.patching import HeadPatching
from exhibit_a.methods.heads.sinks import SinkDiagnosis
from exhibit_a.methods.triggers.triggers import Attack, Triggers
from exhibit_a.report.blocks import Blocks, Chart, Grid, Line, Rows, Series, Table
from exhibit_a.report.describe.any_result import any_result
from exhibit_a.report.describe.parts import (
    TOP,
    by_layer,
    column,
    from_columns,
    from_rows,
    head_numbers,
    known,
    layers,
    of_heads,
    pairs,
    points,
    strongest_heads,
)
from exhibit_a.report.describe.registry import describe
from exhibit_a.shapes import SiteHeads
from exhibit_a.subject.anatomy import Site, layer_number

PATTERNS = 3  # of each class
DRAWN = 12  # patterns in a plot


def _grid(numbers: Sequence[SiteHeads], sites: tuple[Site, ...], title: str, label: str) -> Grid:
    """A number for every head, layers down and heads across."""
    table = by_layer(numbers, sites)
    return Grid(layers(sites), head_numbers(sites), table, title, label, "head")


@describe.register
def _(result: HeadImportance) -> Blocks:
    columns = {"importance": result.scores, "standard_error": result.standard_error}
    measured = f"by {result.measure}, {result.examples} examples"
    scores = [row[: site.heads] for row, site in zip(result.scores, result.sites, strict=True)]
    table = of_heads(f"most important heads {measured}", result.sites, columns, scores)
    grid = _grid(scores, result.sites, f"importance {measured}", "importance")
    return table, grid, *any_result(result)


@describe.register
def _(result: HeadSimilarity) -> Blocks:
    first, second = result.names
    heads = [(site, head) for site, head in result.first.isfinite().nonzero().tolist()]
    ranked = sorted(heads, key=lambda place: float(result.first[place]))[::-1]
    rows: Rows = [
        {"layer": place[0], "head": place[1], first: float(result.first[place])}
        | {second: float(result.second[place])}
        for place in ranked
    ]
    low, high = result.interval
    measures = result.provenance.parameters.get("by", ["unknown measures"])
    by = " and ".join(dict.fromkeys(map(str, measures)))
    title = (
        f"importance by {by}: Pearson {result.pearson:.2f} ({low:.2f} to {high:.2f}), "
        f"Spearman {result.spearman:.2f}"
    )
    table = Table(title, tuple(map(column, ("layer", "head", first, second))), rows, shown=TOP)
    places = range(len(result.first))
    series = tuple(
        Series(
            f"layer {site}",
            points(result.second[site].tolist(), result.first[site].tolist()),
            mark="dots",
        )
        for site in places
    )
    chart = Chart(first, second, series, f"Pearson {result.pearson:.2f}", ordered=True)
    return table, chart, *any_result(result)


@describe.register
def _(result: PruningCurve) -> Blocks:
    table = from_columns(
        f"{result.order} important heads first, by {result.measure}; mean accuracy "
        f"{result.area:.3f}",
        {
            "heads_gone": result.removed,
            "share": result.fraction,
            "accuracy": result.accuracy,
            "interval": result.interval,
            "loss": result.loss,
        },
    )
    return table, curves([result]), *any_result(result)


def curves(results: Sequence[PruningCurve]) -> Chart:
    """Accuracy as heads are silenced; solid where the least important heads go first."""
    series = tuple(
        Series(
            f"{curve.measure}, {curve.order} first",
            points(curve.accuracy, curve.fraction.tolist()),
            pairs(curve.interval),
            dashed=curve.order != "least" or None,
            mark="marked line",
        )
        for curve in results
    )
    return Chart(
        "share of heads silenced",
        "accuracy",
        series,
        "How much is left as heads go?",
        caption="The band is the 95 % interval of the accuracy.",
        limits=(0, 1.02),
        inside=True,
    )


@describe.register
def _(result: HeadPatching) -> Blocks:
    change = result.counterfactual_value - result.value
    title = (
        f"heads that carry the difference of two prompts ({change:+.3g} in the {result.target}); "
        f"correlation with true patching {result.correlation:.2f}"
    )
    columns = {"effect": result.effects, "patched": result.patched}
    table = of_heads(title, result.sites, columns, result.effects)
    drawn = f"to first order; r {result.correlation:.2f} with true patching"
    grid = _grid(result.effects, result.sites, drawn, "change of the answer")
    return table, grid, *any_result(result)


@describe.register
def _(result: SinkDiagnosis) -> Blocks:
    heads = strongest_heads(result.weight)
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
        for site, head in heads
    ]
    names = tuple(map(column, rows[0]))
    title = "the token that each head looks at most, and what that does"
    table = Table(title, names, rows, shown=TOP, heads=tuple(heads))
    grid = _grid(result.weight, result.sites, "mean over rows", "weight on one token")
    return table, grid, *any_result(result)


@describe.register
def _(result: Pruning) -> Blocks:
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
    shares = [after / before for before, after in (result.parameters, result.seconds)]
    chart = Chart(
        "",
        "share of the whole model",
        (Series("smaller model", points(shares), mark="bars"),),
        f"without {len(result.heads)} heads",
        (Line(1, "", level=True),),
        names=("parameters", "time"),
        upright=False,
    )
    return from_rows(f"without {len(result.heads)} heads", rows), chart, *any_result(result)


@describe.register
def _(result: Triggers) -> Blocks:
    strengths = [sum(pattern.scores) for pattern in result.patterns]
    rows: Rows = [
        {
            "pattern": pattern.text,
            "speaks_for": result.labels[pattern.predicted],
            "score": strength,
            "layer": pattern.site,
            "head": pattern.head,
        }
        for pattern, strength in zip(result.patterns, strengths, strict=True)
    ]
    names = tuple(map(column, ("pattern", "speaks_for", "score", "layer", "head")))
    shown = PATTERNS * len(result.labels)
    table = Table("patterns that answers rest on", names, rows, shown=shown)
    chart = Chart(
        "",
        "contribution of the pattern's edges",
        (Series("patterns", points(strengths), mark="bars"),),
        names=tuple(f"{row['pattern']} → {row['speaks_for']}" for row in rows),
        upright=False,
        most=DRAWN,
    )
    return table, chart, *any_result(result)


@describe.register
def _(result: Attack) -> Blocks:
    rows: Rows = [
        {
            "pattern": pattern.text,
            "speaks_for": result.labels[pattern.predicted],
            "class": label,
            "before": float(result.before[place]),
            "after": float(result.after[number, place]),
            "interval": tuple(result.interval[number, place].tolist()),
            "random": float(result.random[number, place]),
            "attention": float(result.attention[number, place]),
        }
        for number, pattern in enumerate(result.patterns)
        for place, label in enumerate(result.labels)
        if result.counts[place]
    ]
    count = len(result.patterns)
    kinds = {"attribution": result.after, "attention": result.attention, "random": result.random}
    series = tuple(
        Series(name, points(result.drop(n, accuracy) for n in range(count)), mark="bars")
        for name, accuracy in kinds.items()
    )
    chart = Chart(
        "",
        "accuracy lost on the other classes",
        series,
        names=tuple(f"{p.text} → {result.labels[p.predicted]}" for p in result.patterns),
        upright=False,
    )
    return from_rows("accuracy of each class", rows), chart, *any_result(result)
