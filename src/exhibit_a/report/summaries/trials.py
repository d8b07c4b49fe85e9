"""What does the command line print for a trial?"""

from exhibit_a.report.sentences import most_important, of_margin
from exhibit_a.report.summaries.dispatch import TOP, Summary, summary_rows
from exhibit_a.report.table import Rows
from exhibit_a.subject.site_names import layer_number
from exhibit_a.trials.trial import Trial


@summary_rows.register
def _(result: Trial, top: int | None = None) -> Summary:
    rows: Rows = [
        {
            "layer": layer_number(result.sites[head.site], result.sites),
            "head": head.head,
            "verdict": head.word,
            "of_margin": of_margin(result, head.reliance),
            "alone": of_margin(result, head.one_head),
            "shared": head.shared,
            "determined": head.determined,
            "points": head.points,
            "distance": head.distance,
        }
        for head in most_important(result)[: TOP if top is None else top]
    ]
    return Summary(result.advice or result.verdict, rows)
