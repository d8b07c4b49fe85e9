"""What differs between two results? The page with both side by side."""

from exhibit_a.report.header import Comparison as Panel
from exhibit_a.report.header import Header, Panels, Table
from exhibit_a.report.pack import Blocks
from exhibit_a.report.views.dispatch import panels_of
from exhibit_a.trials.comparison import Comparison


@panels_of.register
def comparison_panels(result: Comparison, blocks: Blocks) -> Panels:  # noqa: ARG001
    """What differs; the two results themselves are put in by ``view``, which knows whole pages."""
    return {"tables": [] if not result.tensors else [_tensors(result)]}


def comparison_panel(result: Comparison, first: Header, second: Header) -> Panel:
    """What differs, and the headers of both."""
    return {
        "names": result.names,
        "sentence": result.sentence,
        "answers": [(change.label, change.first, change.second) for change in result.answers],
        "words": [
            (change.first, change.second, change.first_score, change.second_score)
            for change in result.words
        ],
        "heads": [
            (change.name, change.first, change.second, change.first_share, change.second_share)
            for change in result.heads
        ],
        "moved": [change.moved for change in result.heads],
        "first": first,
        "second": second,
    }


def _tensors(result: Comparison) -> Table:
    return {
        "title": "How far the numbers differ",
        "columns": ["what", "where", "entries", "largest difference", "mean difference"],
        "rows": [
            [change.field, change.place, change.entries, change.largest, change.mean]
            for change in result.tensors
        ],
        "caption": "Tensors that both results have, with the same shape.",
    }
