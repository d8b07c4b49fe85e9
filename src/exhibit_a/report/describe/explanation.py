"""Describes tests of attention as an explanation, scores of tokens, and heat maps of the text."""

import torch

from exhibit_a.methods.custom_methods import TokenAttribution
from exhibit_a.methods.explanation.adversarial import AdversarialAttention
from exhibit_a.methods.explanation.adversarial_keys import AdversarialKeys
from exhibit_a.methods.explanation.erasure import TAKEN
from exhibit_a.methods.explanation.faithfulness import RANDOM, Faithfulness
from exhibit_a.methods.explanation.heat_maps import HeatMaps
from exhibit_a.methods.explanation.permutation import PermutationTest
from exhibit_a.numerics.distances import FARTHEST
from exhibit_a.report.blocks import (
    AnswerSummary,
    Blocks,
    Chart,
    Column,
    Figure,
    Grid,
    HeatMapPanel,
    HeatMapRow,
    Line,
    Rows,
    Series,
    Table,
    Texts,
)
from exhibit_a.report.describe.any_result import any_result
from exhibit_a.report.describe.parts import (
    Columns,
    column,
    from_columns,
    from_rows,
    means,
    pairs,
    points,
    size_of,
)
from exhibit_a.report.describe.registry import describe
from exhibit_a.report.sentences import MARKS, ranked_heat_maps

FIRST_WORDS = 3  # of a heat map


@describe.register
def _(result: TokenAttribution) -> Blocks:
    tokens = result.tokens or tuple(map(str, range(len(result.scores))))
    rows: Rows = [
        {"position": place, "token": token, "score": float(score)}
        for place, (token, score) in enumerate(zip(tokens, result.scores, strict=True))
    ]
    table = Table(
        f"tokens by {result.method} for the {result.target}",
        tuple(map(column, ("position", "token", "score"))),
        rows,
        rank=size_of("score"),
    )
    bars = Series(result.method, points(result.scores), mark="bars", role="signed")
    chart = Chart(
        "", f"{result.method}, {result.target}", (bars,), names=tokens, tokens="", upright=False
    )
    return Texts({"tokens": tokens}), table, chart, *any_result(result)


@describe.register
def _(result: PermutationTest) -> Blocks:
    table = from_columns(
        f"{result.what} permuted by {result.scope}; own accuracy {result.own_accuracy:.3f}",
        {
            "shuffled": result.conditions,
            "accuracy": result.accuracy,
            "interval": result.accuracy_interval,
            "drop": result.drop,
            "p": result.p_value,
            "change": result.mean_change,
            "flips": result.flip_rate,
            "uniform": result.uniform_accuracy,
        },
    )
    chart = Chart(
        "",
        "accuracy",
        (
            Series(
                f"{result.what} shuffled",
                points(result.accuracy),
                pairs(result.accuracy_interval),
                mark="dots",
            ),
            Series(
                "uniform",
                points(result.uniform_accuracy),
                pairs(result.uniform_accuracy_interval),
                mark="dots",
            ),
        ),
        lines=(Line(result.own_accuracy, "as trained", level=True),),
        names=tuple(result.conditions),
    )
    return table, chart, *any_result(result)


@describe.register
def _(result: AdversarialAttention) -> Blocks:
    # a column of nothing would stand there if rows with the same outputs were not requested
    free: Columns = {} if bool(result.free.isnan().all()) else {"same_outputs": result.free}
    table = from_columns(
        f"farthest attention found (Jensen–Shannon) for the {result.target}",
        {
            "where": result.conditions,
            "divergence": result.divergence,
            "most_possible": result.bound,
            "at_the_answer": result.at_answer,
            **free,
            "answer_moved": result.change,
            "exact": result.exact.bool(),
        },
    )
    chart = Chart(
        "",
        "Jensen–Shannon divergence",
        (
            Series(f"answer within {result.epsilon:g}", points(result.divergence), mark="bars"),
            Series("any answer", points(result.bound), mark="levels"),
        ),
        lines=(Line(FARTHEST, "ln 2", level=True),),
        names=tuple(result.conditions),
    )
    return table, chart, *any_result(result)


@describe.register
def _(result: AdversarialKeys) -> Blocks:
    table = from_columns(
        "adversarial keys",
        {
            "keys": result.conditions,
            "accuracy": result.accuracy,
            "interval": result.accuracy_interval,
            "same_answer": result.agreement,
            "distance": means(result.key_distance),
            "without_shift": means(result.shift_free_distance),
            "divergence": means(result.divergence),
        },
    )
    curves = result.curves["adversary"]
    training = Chart(
        "step",
        "loss",
        tuple(
            Series(term, points(curves[:, place]), dashed=place > 0 or None, mark="marked line")
            for place, term in enumerate(result.terms)
        ),
        inside=True,
    )
    kept = [name for name in ("adversary", "opposite", "random") if name in result.conditions]
    distances = [result.divergence[result.conditions.index(name)] for name in kept]
    moved = Chart(
        "layer",
        "Jensen–Shannon divergence",
        tuple(
            Series(name, points(distance), mark="marked line")
            for name, distance in zip(kept, distances, strict=True)
        ),
        names=tuple(map(str, range(result.divergence.shape[1]))),
        inside=True,
    )
    return table, Figure((training, moved), (8.0, 3.0)), *any_result(result)


@describe.register
def _(result: Faithfulness) -> Blocks:
    best_first = result.mean[:, 0].argsort(descending=True, stable=True).tolist()
    names = [result.attributions[place] for place in best_first]
    sides = {"top tokens taken away": result.deletion, "only top tokens kept": result.insertion}
    panels = tuple(
        Chart(
            f"share of tokens, {side}",
            "probability of the model's answer",
            tuple(
                Series(
                    name,
                    points(curves[name].mean(0), result.fractions),
                    role="reference" if name == RANDOM else "",
                )
                for name in names
            ),
        )
        for side, curves in sides.items()
    )
    figure = Figure(panels, (9.0, 4.2), shared=True)
    return from_rows("faithfulness", result.table()), figure, *any_result(result)


@describe.register
def _(result: HeatMaps) -> Blocks:
    largest = result.scores.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float).tiny)
    grid = Grid(
        tuple(f"{heat_map.label}: {heat_map.advice}" for heat_map in result.values()),
        tuple(result.words),
        result.scores / largest,
        tokens="",
    )
    summary = AnswerSummary(
        advice=result.advice,
        answer=[],
        target=result.target,
        word="",
        verdict="",
        reliance=[],
        carriers="",
        sequence="tokens",
        shares=[],
        caption="",
        skipped=list(dict(result.checks.get("left out", {})).items()),
    )
    texts = Texts({"tokens": result.tokens or ()})
    return texts, summary, heat_map_panel(result), heat_map_table(result), grid


def heat_map_table(result: HeatMaps) -> Table:
    """Every heat map in numbers: may it be shown, how far from luck, what the answer loses."""
    rows: Rows = [
        {
            "advice": f"{MARKS[heat_map.advice]} {heat_map.advice}",
            "heat_map": heat_map.label,
            "p": heat_map.p_value,
            "probability_loss": heat_map.probability_loss,
            "first_words": ", ".join(
                heat_map.words[place] for place in heat_map.ranking[:FIRST_WORDS]
            ),
            "adjusted": heat_map.adjusted,
            "percentile": heat_map.percentile,
            "loss": heat_map.loss,
        }
        for heat_map in ranked_heat_maps(result)
    ]
    columns = (
        Column("advice", "advice", brief=True),
        Column("heat_map", "heat map", brief=True),
        Column("p", "p", "Chance that random words do as well.", "p", brief=True),
        Column(
            "probability_loss", "loses", "What the answer loses without them.", "z.2f", brief=True
        ),
        Column("first_words", "its first words", brief=True),
        *map(column, ("adjusted", "percentile", "loss")),
    )
    return Table(result.advice, columns, rows, on_page=False)


def heat_map_panel(result: HeatMaps) -> HeatMapPanel:
    """The heat maps of a text, in the order of their advice."""
    cuts = ", ".join(map(str, result.sizes))
    orders = f"all {result.orders} orders" if result.exact else f"{result.orders} random orders"
    return HeatMapPanel(
        list(result.words),
        [
            HeatMapRow(
                heat_map.label,
                heat_map.advice,
                MARKS[heat_map.advice],
                heat_map.reason,
                heat_map.p_value,
                heat_map.probability_loss,
                heat_map.loss,
                heat_map.scores.tolist(),
            )
            for heat_map in ranked_heat_maps(result)
        ],
        f"A heat map says which words matter. So its first words are {TAKEN[result.erase]} "
        f"({cuts} of them), and the answer is computed again: a good heat map costs it more than "
        f"{orders} of the words do. p is the chance of doing as well by luck. Rejected heat maps "
        "are grey; near-zero scores are blank.",
    )
