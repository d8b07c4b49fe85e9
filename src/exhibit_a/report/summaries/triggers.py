"""What does the command line print for words that turn any text?"""

from exhibit_a.methods.triggers.triggers import Attack, Triggers
from exhibit_a.report.summaries.dispatch import Summary, summary_rows
from exhibit_a.report.table import Rows

PATTERNS = 3  # of each class


@summary_rows.register
def _(result: Triggers, top: int | None = None) -> Summary:
    count = PATTERNS * len(result.labels) if top is None else top
    rows: Rows = [
        {
            "pattern": pattern.text,
            "speaks_for": result.labels[pattern.predicted],
            "score": sum(pattern.scores),
            "layer": pattern.site,
            "head": pattern.head,
        }
        for pattern in result.patterns[:count]
    ]
    return Summary("patterns that answers rest on", rows)


@summary_rows.register
def _(result: Attack, top: int | None = None) -> Summary:  # noqa: ARG001
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
    return Summary("accuracy of each class", rows)
