"""One sentence of advice for a person who must decide.

Where heat maps were judged, their sentence is the advice: which heat map to show and which not.
Where they were not, the verdict still says whether a map of attention can speak for the answer.
"""

from typing import TYPE_CHECKING

from exhibit_a.subject.anatomy import heads_by_layer
from exhibit_a.trials.verdict import CONTESTED, EVIDENCE, MISLEADING, NO_EFFECT

if TYPE_CHECKING:
    from exhibit_a.trials.examination import Examination

FEW = 3  # heads that are named
_WITHOUT_HEAT_MAPS = {
    EVIDENCE: "Maps of {heads} can be shown for this answer: it rests on where they look.",
    CONTESTED: (
        "Do not show raw attention for this answer: other weights would have given the same. Show "
        "the effective attention of {heads}."
    ),
    MISLEADING: (
        "Do not show raw attention for this answer: its weights lie elsewhere than what counts. "
        "Show self-attribution."
    ),
    NO_EFFECT: (
        "Do not show an attention map for this answer: it stays as it is with every head levelled."
    ),
}


def advice_for(word: str, examined: "Examination", least: float) -> str:
    """The advice for a text whose verdict is ``word``, in a sentence or two.

    Args:
        word: the verdict.
        examined: all that is known of the text.
        least: the part of its margin that the answer must owe to all heads for a few to carry it.
    """
    if examined.heat_maps is not None:
        return examined.heat_maps.advice
    carriers, reliance = examined.carriers, examined.reliance
    carried = reliance is not None and abs(reliance.whole) >= least * reliance.size
    named = f"the heads whose verdict is {word}"
    if carried and carriers is not None and 0 < len(carriers.heads) <= FEW:
        named = heads_by_layer(examined.trace.sites, carriers.heads)
    unknown = (
        "Do not show an attention map for this answer: whether it rests on where attention looks "
        "is not determined."
    )
    return _WITHOUT_HEAT_MAPS.get(word, unknown).format(heads=named)
