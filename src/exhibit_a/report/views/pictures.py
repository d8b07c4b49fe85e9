"""Which heat maps of this text may be shown? The page of pictures, and their part of a trial's."""

from exhibit_a.methods.explanation.pictures import Pictures
from exhibit_a.report.header import Panels, Picture
from exhibit_a.report.header import Pictures as Judged
from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import sequence
from exhibit_a.report.sentences import MARKS, ranked_pictures
from exhibit_a.report.views.dispatch import panels_of


@panels_of.register
def pictures_panels(result: Pictures, blocks: Blocks) -> Panels:  # noqa: ARG001
    """The advice, and all pictures in a table."""
    return {
        "sequences": {"tokens": sequence(result.tokens or ())},
        "summary": {
            "advice": result.advice,
            "answer": [],
            "target": result.target,
            "word": "",
            "verdict": "",
            "reliance": [],
            "carriers": "",
            "sequence": "tokens",
            "shares": [],
            "caption": "",
            "skipped": list(dict(result.checks.get("left out", {})).items()),
        },
        "pictures": judged_pictures(result),
    }


def judged_pictures(result: Pictures) -> Judged:
    """The pictures of a text, in the order of their advice."""
    shown: list[Picture] = [
        {
            "label": picture.label,
            "advice": picture.advice,
            "mark": MARKS[picture.advice],
            "reason": picture.reason,
            "p": picture.p_value,
            "probability": picture.probability_loss,
            "loss": picture.loss,
            "scores": picture.scores.tolist(),
        }
        for picture in ranked_pictures(result)
    ]
    cuts = ", ".join(map(str, result.sizes))
    orders = f"all {result.orders} orders" if result.exact else f"{result.orders} random orders"
    return {
        "words": list(result.words),
        "pictures": shown,
        "caption": (
            f"A picture says which words matter. So its first words are deleted ({cuts} of them), "
            f"and the answer is asked again: a good picture costs it more than {orders} of the "
            "words do. p is the chance of doing as well by luck. Colours only where a picture may "
            "be shown; faint scores are not painted."
        ),
    }
