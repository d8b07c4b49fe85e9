"""Which passage did the answer rest on? The page of a question with its passages."""

import math

from exhibit_a.methods.attribution.context import ContextAttribution
from exhibit_a.methods.explanation.heat_maps import label_of
from exhibit_a.report.header import Panels, Passage, Passages, Table
from exhibit_a.report.pack import Blocks
from exhibit_a.report.views.dispatch import panels_of


@panels_of.register
def context_panels(result: ContextAttribution, blocks: Blocks) -> Panels:  # noqa: ARG001
    """The verdict, the passages shaded sentence by sentence, and how far the methods agree."""
    return {
        "summary": {
            "advice": result.verdict,
            "answer": [(result.answer, math.exp(result.log_probability))],
            "target": "",
            "word": "",
            "verdict": "",
            "reliance": [_levels(result)],
            "carriers": "",
            "sequence": "tokens",
            "shares": [],
            "caption": "",
            "skipped": list(dict(result.checks.get("left out", {})).items()),
        },
        "passages": _passages(result),
        "tables": [_scores(result), _agreement(result)],
    }


def _levels(result: ContextAttribution) -> str:
    """How likely the answer is with the passages, and without them."""
    return (
        f"Its log-probability is {result.log_probability:.2f} with all passages and "
        f"{result.without_passages:.2f} without any."
    )


def _passages(result: ContextAttribution) -> Passages:
    """Every passage with its sentences."""
    needed = set(result.rests_on)
    passages: list[Passage] = [
        {"loss": loss, "needed": place in needed, "sentences": []}
        for place, loss in enumerate(result.leave_one_out.tolist())
    ]
    for number, (text, place) in enumerate(zip(result.sentences, result.passage_of, strict=True)):
        scores = [float(by_method[number]) for by_method in result.sentence_scores.values()]
        passages[place]["sentences"].append({"text": text, "scores": scores})
    return {
        "question": result.question,
        "answer": result.answer,
        "methods": [label_of(name) for name in result.sentence_scores],
        "passages": passages,
        "caption": (
            "The number in front of a passage is what the answer loses without it, in "
            "log-probability: 0.7 is half as likely. A line marks what the answer needs. Sentences "
            "are shaded by what a method credits them with, for the answer (orange) or against it "
            "(blue)."
        ),
    }


def _scores(result: ContextAttribution) -> Table:
    """Every passage by every method and referee."""
    columns = {label_of(name): scores for name, scores in result.scores.items()}
    columns["leave one out"] = result.leave_one_out
    if result.regression is not None:
        columns["regression"] = result.regression
    return {
        "title": "Every passage by every method",
        "columns": ["passage", *columns],
        "rows": [
            [str(place + 1), *(float(scores[place]) for scores in columns.values())]
            for place in range(len(result.passages))
        ],
        "caption": "Methods are scores; leave one out and regression are log-probability.",
    }


def _agreement(result: ContextAttribution) -> Table:
    """How far every method agrees with the referees, and what it cost."""
    rows: list[list[str | float | None]] = []
    for name, referees in result.agreement.items():
        forwards, backwards = result.passes.get(name, (0, 0))
        alone = referees["leave_one_out"]
        other = referees.get("regression")
        rows.append(
            [
                label_of(name),
                alone.spearman,
                "yes" if alone.same_first else "no",
                None if other is None else other.spearman,
                result.predicts.get(name),
                float(forwards),
                float(backwards),
            ]
        )
    return {
        "title": "Do the methods agree with what leaving passages out says?",
        "columns": [
            "method", "leave one out, ρ", "same passage first", "regression, ρ",
            "predicts random halves, ρ", "forward passes", "backward passes",
        ],
        "rows": rows,
        "caption": "ρ is the rank correlation over the passages, or over the random halves.",
    }  # fmt: skip
