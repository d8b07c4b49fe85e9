"""Says which heat maps may be shown, in one sentence.

Each heat map gets a word and the reason for it, and the text one sentence: which heat map not to
show, which to show, and what happens to the answer without its first words. Everything that the
sentence says was run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.explanation.erased_texts import ErasedTexts
from exhibit_a.methods.explanation.erasure import TAKING

LEVEL = 0.05
AVERAGE = 0.5  # a p-value from which a ranking does no better than the average random order
NEAR_BEST = 0.8  # of the loss of the best heat map
PREFIXES = 10  # first words that are tried one by one
NAMED = 5  # words that are written out
SURVIVES = "{} a few words never changes this answer, so no heat map can be tested"
COUNTS = ("no", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, eq=False)
class Judged:
    """Heat maps of a text and what came of taking their first words away."""

    texts: ErasedTexts
    words: tuple[str, ...]
    labels: tuple[str, ...]
    rankings: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    loss: Float[Tensor, " heat_map"]
    p_value: Float[Tensor, " heat_map"]
    adjusted: Float[Tensor, " heat_map"]
    surpassed: Float[Tensor, " heat_map"]  # share of random orders that lose clearly more
    finest: float  # the smallest p-value that could have come out
    moved: bool  # whether any text with words taken away moved the answer

    @property
    def warning(self) -> str:
        """Why no heat map can be judged; empty where they can."""
        if self.finest > LEVEL:
            return (
                f"the text is too short: no ranking of {len(self.words)} "
                f"{'word' if len(self.words) == 1 else 'words'} can be told from chance"
            )
        return "" if self.moved else SURVIVES.format(TAKING[self.texts.erase])


def word_for(judged: Judged, place: int) -> tuple[str, str]:
    """The advice about one heat map, and its reason."""
    p_value, adjusted = float(judged.p_value[place]), float(judged.adjusted[place])
    best = int(judged.loss.argmax())
    if judged.warning:
        return "caution", judged.warning
    if p_value > LEVEL and judged.surpassed[place] == 0:
        return "caution", (
            f"no order of the words does better, but chance does as well too often ({_p(p_value)})"
        )
    if p_value > LEVEL:
        chance = "does no better than" if p_value >= AVERAGE else "cannot be told from"
        return "do not show", f"its order of the words {chance} chance ({_p(p_value)})"
    if adjusted > LEVEL:
        return "caution", (
            f"it ranks the words better than chance ({_p(p_value)}), but one of "
            f"{len(judged.labels)} heat maps may do so by luck ({_p(adjusted)} when corrected)"
        )
    if judged.loss[place] < NEAR_BEST * judged.loss[best]:
        return "caution", (
            f"it ranks the words better than chance ({_p(p_value)}), but the answer loses more "
            f"without the first words of {judged.labels[best]}"
        )
    return "show", f"it ranks the words better than chance ({_p(p_value)})"


def sentence(judged: Judged, advices: Sequence[str]) -> str:
    """The advice about the text; of heat maps with one word, the first or the best is named."""
    if judged.warning:
        return f"{judged.warning[0].upper()}{judged.warning[1:]}. Show any heat map with caution."
    parts = []
    if "do not show" in advices:
        worst = advices.index("do not show")
        parts.append(
            f"Do not show {judged.labels[worst]} for this answer: {word_for(judged, worst)[1]}."
        )
    for word, verb in (("show", "Show {}"), ("caution", "Show {} with caution")):
        places = [place for place, advice in enumerate(advices) if advice == word]
        if places:
            best = max(places, key=lambda place: float(judged.loss[place]))
            parts.append(f"{verb.format(judged.labels[best])}: {_effect(judged, best)}.")
            return " ".join(parts)
    if len(advices) > 1:
        parts.append("None of the other heat maps is better than chance either.")
    return " ".join(parts)


def _effect(judged: Judged, place: int) -> str:
    """What happens without the first words of a heat map, few of them if they turn the answer."""
    texts, ranking = judged.texts, judged.rankings[place]
    longest = judged.sizes[-1]
    sizes = sorted({*range(1, min(PREFIXES, longest) + 1), *judged.sizes})
    for size in sizes:
        if texts.turns(ranking, size):
            return f"without {_first(judged, ranking, size)} the model answers otherwise"
    kept = texts.without([frozenset(ranking[:longest])])[0].probability
    return (
        f"without {_first(judged, ranking, longest)} the probability of "
        f"{texts.target.name or texts.target.index} falls from {_share(texts.probability)} to "
        f"{_share(kept)}"
    )


def _first(judged: Judged, ranking: Sequence[int], size: int) -> str:
    """The first words of a ranking, as they are read."""
    names = [judged.words[word] for word in ranking[:size]]
    count = COUNTS[size] if size < len(COUNTS) else str(size)
    listed = ", ".join(names[:NAMED]) + (", …" if size > NAMED else "")
    return f"its first {count} words ({listed})" if size > 1 else f"its first word ({listed})"


def _p(value: float) -> str:
    return f"p = {_share(value)}"


def _share(value: float) -> str:
    """A number from 0 to 1, with two digits that count and without its nought."""
    text = f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"
    return "1" if text == "1.00" else text.removeprefix("0")
