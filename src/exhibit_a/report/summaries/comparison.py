"""What does the command line print for two results side by side?"""

from dataclasses import asdict

from exhibit_a.report.summaries.dispatch import TOP, Summary, summary_rows
from exhibit_a.report.table import Rows
from exhibit_a.trials.comparison import Comparison, HeadChange


@summary_rows.register
def _(result: Comparison, top: int | None = None) -> Summary:
    """The heads that changed most, or the tensors that differ most."""
    if result.heads:
        heads = sorted(result.heads, key=_change, reverse=True)[: TOP if top is None else top]
        rows: Rows = [
            {
                "head": head.name,
                "first_verdict": head.first,
                "second_verdict": head.second,
                "first_share": head.first_share,
                "second_share": head.second_share,
                "moved": head.moved,
            }
            for head in heads
        ]
        return Summary(result.sentence, rows)
    if result.tensors:
        ranked = sorted(result.tensors, key=lambda tensor: -tensor.largest)[:top]
        return Summary(result.sentence, [asdict(tensor) for tensor in ranked])
    return Summary(result.sentence, [asdict(answer) for answer in result.answers])


def _change(head: HeadChange) -> float:
    return abs((head.second_share or 0.0) - (head.first_share or 0.0))
