"""Finds the words of a text that can be taken away.

Heat maps of a text are judged by hiding words. These are the words of the text as it was written
(``trace/units.py`` has the one rule for them), but for those that cannot be taken away whole.
"""

from dataclasses import dataclass

from exhibit_a.methods.explanation.erasure import removable
from exhibit_a.subject.anatomy import main_stack
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target
from exhibit_a.trace.units import units_of


@dataclass(frozen=True)
class Words:
    """The words of a text that can be taken away, in their order."""

    names: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]  # the tokens of each
    joined: bool  # false where the tokenizer cannot say, and tokens stand for words

    def __len__(self) -> int:
        return len(self.names)


def words_of(trace: Trace, target: Target | None = None) -> Words:
    """The words of a text that can be taken away whole.

    >>> words_of(xa.capture(subject, "unflinchingly honest")).names
    ('unflinchingly', 'honest')
    >>> words_of(xa.capture(subject, "unflinchingly honest")).places
    ((1, 2, 3, 4, 5), (6,))
    """
    free = removable(trace, target)
    layout = trace.layouts.get(main_stack(trace.sites))
    if layout is None:
        single = tuple((place,) for place in free.nonzero()[:, 0].tolist())
        return Words(tuple(trace.tokens[place] for (place,) in single), single, joined=False)
    units = units_of(layout)
    words = [
        (units.layout.names[number], places)
        for number, places in enumerate(units.members)
        if bool(free[list(places)].all()) and units.layout.written(number).strip()
    ]
    names, places = zip(*words, strict=True) if words else ((), ())
    return Words(tuple(names), tuple(places), joined=True)
