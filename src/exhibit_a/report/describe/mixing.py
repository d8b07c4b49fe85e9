"""Describes what is left of tokens in their vectors."""

from collections.abc import Mapping

from torch import Tensor

from exhibit_a.methods.mixing.head_mixing import HeadMixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.mixing.token_identifiability import TokenIdentifiability
from exhibit_a.report.blocks import Blocks, Chart, Column, Figure, Line, Rows, Series, Story, Texts
from exhibit_a.report.describe.any_result import any_result
from exhibit_a.report.describe.parts import from_columns, from_rows, known_means, pairs, points
from exhibit_a.report.describe.registry import describe
from exhibit_a.subject.anatomy import place_name


@describe.register
def _(result: HiddenAttribution) -> Blocks:
    texts = Texts(
        {result.source: result.source_tokens, result.stack: result.tokens or ()},
        tuple(result.special.tolist()),
    )
    shares = result.self_contribution
    story = story_of(result)
    boxes = Series(
        "tokens",
        tuple((layer, float(share)) for layer, row in enumerate(shares) for share in row),
        mark="boxes",
    )
    own = Chart(
        "layer",
        "contribution of the token itself",
        (boxes,),
        names=tuple(map(str, range(len(shares)))),
        limits=(0, 1.02),
    )
    profile = Chart(
        "distance",
        "share of contribution",
        tuple(Series(f"layer {n}", points(row)) for n, row in enumerate(result.neighbours)),
        scale="near zero",
        ordered=True,
        inside=True,
    )
    figure = Figure((own, profile, story), (12.0, 3.6), (1, 1, 1.4), on_page=False)
    if result.stack != result.source:
        return texts, any_result(result)[0], story, figure
    least = [(int(layer.argmin()), float(layer.amin())) for layer in shares]
    tokens = result.tokens or ()
    table = from_columns(
        "what is left of a token",
        {
            "layer": range(len(shares)),
            "own_share": [float(layer.median()) for layer in shares],
            "not_own_top": result.not_own_top,
            "least_of_itself": [f"{tokens[place]} ({share:.2f})" for place, share in least],
        },
    )
    return texts, table, story, figure


def story_of(result: HiddenAttribution) -> Story:
    """Which tokens are in every hidden vector, layer by layer."""
    one_stack = result.stack == result.source
    estimated = one_stack and bool((result.standard_error > 0).any())
    return Story(
        result.contribution,
        result.stack,
        result.source,
        result.tokens or (),
        result.source_tokens,
        result.standard_error.diagonal(dim1=1, dim2=2) if estimated else None,
        "Estimated from random directions; ± says how well." if estimated else "Exact Jacobians.",
        int(result.self_contribution[-1].argmin()),
    )


@describe.register
def _(result: HeadMixing) -> Blocks:
    places = zip(result.stack, result.layer, result.kind, strict=True)
    names = [place_name(*place, set(result.stack)) for place in places]
    table = from_columns(
        "attention and input contribution, means over heads",
        {
            "layer": [name.replace("layer ", "") for name in names],
            "pearson": known_means(result.pearson),
            "spearman": known_means(result.spearman),
            "jensen_shannon": known_means(result.jensen_shannon),
            "total_variation": known_means(result.total_variation),
        },
    )
    heads = tuple(
        (site, float(distance))
        for site, distances in enumerate(result.total_variation)
        for distance in distances
    )
    chart = Chart(
        "attention layer",
        "weight that lies elsewhere",
        (
            Series("heads", heads, mark="dots"),
            Series("mean", points(known_means(result.total_variation)), mark="levels"),
        ),
        "How far attention and contribution disagree, head by head",
        names=tuple(names),
        limits=(0, 1),
    )
    return table, chart, *any_result(result)


@describe.register
def _(result: TokenIdentifiability) -> Blocks:
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
    found = Column("found", "found", "Share of tokens that are found again from their vectors.")
    table = from_rows(f"tokens found again ({result.metric})", rows, found=found)
    rates = [
        Series(name, points(rate), pairs(result.interval[name]), mark="marked line")
        for name, rate in result.rate.items()
    ]
    controls = [
        Series(f"{name}, control", points(rate), dashed=True, like=name)
        for name, rate in result.control.items()
    ]
    chart = Chart(
        "layer",
        "identifiable tokens",
        (*rates, *controls),
        f"{result.metric}, candidates: {result.candidates}",
        (Line(result.chance, "chance", level=True),),
        names=tuple(map(str, range(max(map(len, result.rate.values()))))),
        limits=(0, 1.02),
    )
    return table, chart, *any_result(result)


def _at(by_map: Mapping[str, Tensor], name: str, layer: int) -> float | None:
    """The number of a map at a layer, for maps that have one."""
    return float(by_map[name][layer]) if name in by_map else None
