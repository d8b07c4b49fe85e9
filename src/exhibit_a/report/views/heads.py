"""How many heads can go? The page of a pruning curve."""

from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.report.any_result import any_panels
from exhibit_a.report.header import Chart, Panels, Point
from exhibit_a.report.pack import Blocks
from exhibit_a.report.views.dispatch import panels_of


@panels_of.register
def pruning_panels(result: PruningCurve, blocks: Blocks) -> Panels:
    """The curve, and its numbers."""
    return {"charts": [_pruning_chart(result)], "tables": any_panels(result, blocks)["tables"]}


def _pruning_chart(result: PruningCurve) -> Chart:
    """Accuracy as heads are silenced, with its interval."""
    points = [(float(x), float(y)) for x, y in zip(result.fraction, result.accuracy, strict=True)]
    band: list[Point] = [(low, high) for low, high in result.interval.tolist()]
    return {
        "title": "How much is left as heads go?",
        "x": f"share of heads silenced, {result.order} important first, by {result.measure}",
        "y": "accuracy",
        "series": [{"name": "accuracy", "points": points, "band": band}],
        "lines": [],
        "caption": "The band is the 95 % interval of the accuracy.",
    }
