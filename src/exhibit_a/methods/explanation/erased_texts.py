"""Measures what is left of an answer when some words of its text are taken away.

Every text with words taken away is run once, however many heat maps need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.explanation.erasure import (
    Erase,
    erased,
    ids_of,
    read_from,
    readout_position,
    require_way,
)
from exhibit_a.numerics.precision import to_float64
from exhibit_a.shapes import HasLogits
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.trace.answers import NUMBERS, logits_along
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, margin_of

Numbers = Float[Tensor, "text 2"]  # the margin, and 1 where it is what the model answers


@dataclass(frozen=True)
class TextAnswer:
    """What the model makes of one text: the margin and probability of the target."""

    margin: float
    probability: float
    given: bool  # whether it is what the model answers, token by token


class ErasedTexts:
    """The answers to one text without any of its words."""

    def __init__(
        self,
        trace: Trace,
        target: Target,
        places: Sequence[Sequence[int]],
        erase: Erase = "hide",
    ) -> None:
        answers = trace.subject.anatomy.answers
        require_way(trace.subject, erase)
        self.place, self.erase = readout_position(trace, target, erase), erase
        if answers in NUMBERS or margin_of(target).scale != "log_odds":
            raise NotComputableError(
                f"Heat maps are judged by the log-odds of an answer; this one is "
                f"{ANSWERS[answers]}, as {target.scale.replace('_', ' ')}."
            )
        self.trace, self.target, self.places = trace, target, places
        self.known: dict[frozenset[int], TextAnswer] = {}  # by the words that are gone
        self.answers: dict[
            tuple[int, ...], TextAnswer
        ] = {}  # by what is left: a word may stand twice
        length = trace.real.nonzero()[-1] + 1
        self.whole = _listed(self._numbers(trace.output, length, trace.first_logit))[0]
        self.margin, self.probability = self.whole.margin, self.whole.probability

    @property
    def passes(self) -> int:
        """How many texts with words taken away were run."""
        return len(self.answers)

    @property
    def least_kept(self) -> float:
        """The smallest share of its probability that the answer kept in any text so far."""
        kept = [answer.probability / self.probability for answer in self.known.values()]
        return min(kept, default=1.0)

    def without(self, subsets: Sequence[frozenset[int]]) -> list[TextAnswer]:
        """The answers without each set of words."""
        new = list(dict.fromkeys(subset for subset in subsets if subset not in self.known))
        if new:
            texts = {subset: self._erased(subset) for subset in new}
            left = {subset: ids_of(text) for subset, text in texts.items()}
            unread = {ids: texts[subset] for subset, ids in left.items() if ids not in self.answers}
            if unread:
                rows = read_from(self.trace.subject, list(unread.values()), self._numbers)
                self.answers |= dict(zip(unread, _listed(rows), strict=True))
            self.known |= {subset: self.answers[ids] for subset, ids in left.items()}
        return [self.known[subset] for subset in subsets]

    def losses(self, subsets: Sequence[frozenset[int]]) -> Float[Tensor, " subset"]:
        """How far the margin falls without each set of words."""
        margins = [answer.margin for answer in self.without(subsets)]
        return self.margin - torch.tensor(margins, dtype=torch.double)

    def probabilities(
        self, rankings: Sequence[Sequence[int]], sizes: Sequence[int]
    ) -> Float[Tensor, "ranking cut"]:
        """The probability of the target without the first words of each ranking."""
        subsets = [frozenset(ranking[:size]) for ranking in rankings for size in sizes]
        kept = [answer.probability for answer in self.without(subsets)]
        return torch.tensor(kept, dtype=torch.double).reshape(len(rankings), len(sizes))

    def turns(self, ranking: Sequence[int], size: int) -> bool:
        """Whether the model answers otherwise without the first words of a ranking."""
        answer = self.without([frozenset(ranking[:size])])[0]
        return self.whole.given and not answer.given

    def _erased(self, subset: frozenset[int]) -> dict[str, Tensor]:
        removed = torch.zeros(len(self.trace.tokens), dtype=torch.bool)
        removed[[place for word in subset for place in self.places[word]]] = True
        return erased(self.trace.subject, self.trace.inputs, removed, self.erase)

    def _numbers(self, output: HasLogits, lengths: Int[Tensor, " row"], first: int = 0) -> Numbers:
        """The margin, and whether the target is what the model answers.

        ``first`` is the position of the first answer in the output.
        """
        place = self.place(lengths)
        place = None if place is None else place - first
        logits = logits_along(output, place, len(self.target.indices))
        margins = margin_of(self.target).of(to_float64(logits))
        indices = torch.tensor(self.target.indices, device=logits.device)
        given = (logits.argmax(-1) == indices).all(-1)
        return torch.stack([margins, to_float64(given)], -1)


def _listed(rows: Numbers) -> list[TextAnswer]:
    margins, given = rows.unbind(-1)
    numbers = zip(margins.tolist(), margins.sigmoid().tolist(), given.tolist(), strict=True)
    return [TextAnswer(margin, probability, bool(top)) for margin, probability, top in numbers]
