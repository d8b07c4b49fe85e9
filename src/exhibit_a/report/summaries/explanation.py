"""What does the command line print for tests of attention as an explanation?"""

from exhibit_a.methods.custom_methods import TokenAttribution
from exhibit_a.methods.explanation.adversarial import AdversarialAttention
from exhibit_a.methods.explanation.adversarial_keys import AdversarialKeys
from exhibit_a.methods.explanation.faithfulness import Faithfulness
from exhibit_a.methods.explanation.permutation import PermutationTest
from exhibit_a.methods.explanation.pictures import Pictures
from exhibit_a.report.sentences import MARKS, ranked_pictures
from exhibit_a.report.summaries.dispatch import (
    Summary,
    columns_of,
    from_columns,
    means,
    summary_rows,
)
from exhibit_a.report.table import Rows

FIRST_WORDS = 3  # of a picture


@summary_rows.register
def _(result: PermutationTest, top: int | None = None) -> Summary:  # noqa: ARG001
    columns = columns_of(
        result,
        "shuffled=conditions accuracy interval=accuracy_interval drop p=p_value change=mean_change "
        "flips=flip_rate uniform=uniform_accuracy",
    )
    title = f"{result.what} permuted by {result.scope}; own accuracy {result.own_accuracy:.3f}"
    return Summary(title, from_columns(columns))


@summary_rows.register
def _(result: AdversarialAttention, top: int | None = None) -> Summary:  # noqa: ARG001
    asked = "" if bool(result.free.isnan().all()) else "same_outputs=free "
    columns = columns_of(
        result,
        "where=conditions divergence most_possible=bound at_the_answer=at_answer "
        f"{asked}answer_moved=change",
    )
    columns["exact"] = result.exact.bool()
    title = f"farthest attention found (Jensen–Shannon) for the {result.target}"
    return Summary(title, from_columns(columns))


@summary_rows.register
def _(result: AdversarialKeys, top: int | None = None) -> Summary:  # noqa: ARG001
    columns = columns_of(
        result, "keys=conditions accuracy interval=accuracy_interval same_answer=agreement"
    )
    columns |= {
        "distance": means(result.key_distance),
        "without_shift": means(result.shift_free_distance),
        "divergence": means(result.divergence),
    }
    return Summary("adversarial keys", from_columns(columns))


@summary_rows.register
def _(result: TokenAttribution, top: int | None = None) -> Summary:
    ranked = result.scores.abs().argsort(descending=True, stable=True).tolist()
    tokens = result.tokens or ()
    rows: Rows = [
        {"position": place, "token": tokens[place], "score": float(result.scores[place])}
        for place in (range(len(ranked)) if top is None else ranked[:top])
    ]
    return Summary(f"tokens by {result.method} for the {result.target}", rows)


@summary_rows.register
def _(result: Pictures, top: int | None = None) -> Summary:
    shown = FIRST_WORDS if top is None else top
    rows: Rows = [
        {
            "picture": picture.label,
            "advice": f"{MARKS[picture.advice]} {picture.advice}",
            "p": picture.p_value,
            "adjusted": picture.adjusted,
            "percentile": picture.percentile,
            "loss": picture.loss,
            "probability_loss": picture.probability_loss,
            "first_words": ", ".join(picture.words[place] for place in picture.ranking[:shown]),
        }
        for picture in ranked_pictures(result)
    ]
    return Summary(result.advice, rows)


@summary_rows.register
def _(result: Faithfulness, top: int | None = None) -> Summary:  # noqa: ARG001
    return Summary("faithfulness", result.table())
