"""What does an answer lose without some of its words?"""

from collections.abc import Iterable, Sequence

import torch

from exhibit_a.methods.explanation.erasure import by_presence
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import chosen_target


def lost_without(trace: Trace, members: Sequence[Sequence[int]], sets: Sequence[Iterable[int]]) -> list[float]:
    """The loss without each set of words; ``members`` are the tokens of every word."""
    answer, written = by_presence(trace, chosen_target(trace, None), "delete")
    column = {place: number for number, place in enumerate(written.nonzero()[:, 0].tolist())}
    present = torch.ones(1 + len(sets), len(column))
    for row, gone in zip(present[1:], sets, strict=True):
        row[[column[place] for word in gone for place in members[word]]] = 0
    own, *others = answer(present).flatten().tolist()
    return [own - other for other in others]
