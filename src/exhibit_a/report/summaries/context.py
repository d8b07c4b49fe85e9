"""What does the command line print for the passages of a prompt?"""

from exhibit_a.methods.attribution.context import ContextAttribution
from exhibit_a.report.summaries.dispatch import Summary, summary_rows
from exhibit_a.report.table import Rows

BEGINNING = 36  # characters of a passage


@summary_rows.register
def _(result: ContextAttribution, top: int | None = None) -> Summary:
    shown = result.ranking()[: len(result.passages) if top is None else top]
    rows: Rows = [
        {
            "passage": place + 1,
            "begins": shortened(result.passages[place]),
            "needed": place in result.rests_on,
            "without_it": float(result.leave_one_out[place]),
            **({} if result.regression is None else {"adds": float(result.regression[place])}),
            **{name: float(scores[place]) for name, scores in result.scores.items()},
        }
        for place in shown
    ]
    answer = " ".join(result.answer.split())
    unit = "without_it is what its log-probability loses without the passage."
    return Summary(f"{result.verdict} The answer: “{answer}”; {unit}", rows)


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= BEGINNING else f"{line[:BEGINNING]}…"
