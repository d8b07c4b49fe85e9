"""Is this head's attention evidence of what the model did?

Four questions, each answered with a number, and one word drawn from the answers:

1. *unique?* The share of its rows whose weights are the only valid ones for the head's output; and
   for the others the distance of the farthest valid alternative found (total variation).
2. *reaches the output?* The null fraction: the part of a row, by length, that the values multiply
   away.
3. *matters?* The change of the answer when the rows are permuted, with its interval.
4. *points where the answer comes from?* The head's share of the attribution, and the rank
   correlation between its attention and its attribution.

    no effect   3 says that the answer does not depend on where the head looks
    contested   1 found another valid attention, far enough away, with the same output
    evidence    1 to 4 all speak for it, beyond the doubt about their numbers
    partial     anything else; the reason names what is missing

A question that could not be asked (a model without a head has no answer to change) is never
answered in favour: without 3 and 4 no head is evidence, and none is without effect.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from exhibit_a.errors import BadRequestError
from exhibit_a.trials.head_numbers import HeadNumbers

EVIDENCE, PARTIAL, CONTESTED, NO_EFFECT = WORDS = ("evidence", "partial", "contested", "no effect")


@dataclass(frozen=True)
class Thresholds:
    """Where the words begin: choices, each with the reason for its default."""

    # Answers are printed with three digits: a change below 0.001 would print the same answer.
    effect: float = 0.001
    # One percentage point of the answer: what evidence must move, beyond the doubt about it.
    matters: float = 0.01
    # A row with a tenth of its weight elsewhere reads as another story; less is the same picture.
    distance: float = 0.1
    # A null fraction of a quarter means that 1/16 of the row's squared length is for show.
    null_fraction: float = 0.25
    # Half of what a head carries when all carry the same; below it is one of the many.
    share: float = 0.5
    # Spearman 0.5: ranking by attention explains at least a quarter of the ranking by attribution.
    agreement: float = 0.5
    # The word of most of the attribution is the word for the text.
    majority: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for name, value in vars(self).items():
            if not 0 <= value <= (1 if name != "share" else float("inf")):
                raise BadRequestError(f"The threshold {name} is {value}; it lies between 0 and 1.")


@dataclass(frozen=True)
class HeadVerdict:
    """Four answers about one head and the word they make; None where it could not be asked."""

    site: int
    head: int
    word: str
    reason: str
    unique: float | None  # share of rows
    distance: float | None  # of the farthest valid alternative found, total variation
    null_fraction: float | None  # mean over rows
    change: float | None  # of the answer, total variation, mean over permutations
    change_low: float | None
    change_high: float | None
    share: float | None  # of all absolute attribution
    agreement: float | None  # rank correlation of attention and absolute attribution


def judge(numbers: HeadNumbers, heads: int, limits: Thresholds) -> HeadVerdict:
    """The word for one of ``heads`` heads, and why."""
    word, reason = _word(numbers, heads, limits)
    return HeadVerdict(word=word, reason=reason, **vars(numbers))


def _word(it: HeadNumbers, heads: int, limits: Thresholds) -> tuple[str, str]:
    if it.change_high is not None and it.change_high < limits.effect:
        return NO_EFFECT, (
            f"permuting it changes the answer by {it.change:.4f}, at most {it.change_high:.4f} "
            f"(< {limits.effect:g})"
        )
    if it.distance is not None and it.distance >= limits.distance:
        return CONTESTED, (
            f"another valid attention, {it.distance:.2f} away (≥ {limits.distance:g}), gives the "
            "same output"
        )
    missing = _missing(it, heads, limits)
    if missing:
        return PARTIAL, "; ".join(missing)
    return EVIDENCE, (
        f"unique in {it.unique:.0%} of rows, null fraction {it.null_fraction:.2f}, change "
        f"{it.change:.3f}, {it.share:.1%} of the attribution, agreement {it.agreement:.2f}"
    )


def _missing(it: HeadNumbers, heads: int, limits: Thresholds) -> list[str]:
    """What keeps a head from being evidence."""
    said = []
    if it.distance is None:
        said.append("not known whether it is unique")
    if it.null_fraction is None:
        said.append("not known how much reaches the output")
    elif it.null_fraction > limits.null_fraction:
        said.append(f"null fraction {it.null_fraction:.3f} (> {limits.null_fraction:g})")
    if it.change_low is None or it.change_high is None:
        said.append("not known whether it matters")
    elif it.change_low < limits.matters:
        said.append(
            f"change {it.change:.4f}, perhaps only {it.change_low:.4f} (< {limits.matters:g})"
        )
    fair = limits.share / heads
    if it.share is None or it.agreement is None:
        said.append("not known where the answer comes from")
        return said
    if it.share < fair:
        said.append(f"{it.share:.1%} of the attribution (< {fair:.1%})")
    if it.agreement < limits.agreement:
        said.append(f"agreement with attribution {it.agreement:.3f} (< {limits.agreement:g})")
    return said


def carried(verdicts: Sequence[HeadVerdict]) -> dict[str, float]:
    """The share of attribution that heads of each word carry; of heads, without attribution."""
    total = dict.fromkeys(WORDS, 0.0)
    for one in verdicts:
        total[one.word] += 1 / len(verdicts) if one.share is None else one.share
    return total


def judge_text(
    verdicts: Sequence[HeadVerdict], limits: Thresholds, together: float | None
) -> tuple[str, str]:
    """The word for a text, and the sentence with its numbers.

    ``together`` is the change of the answer when all heads are permuted at once.
    """
    counts, weights = Counter(one.word for one in verdicts), carried(verdicts)
    heaviest = max(WORDS, key=lambda word: weights[word])
    word = heaviest if weights[heaviest] >= limits.majority else PARTIAL
    of = "heads" if any(one.share is None for one in verdicts) else "the attribution"
    parts = [
        f"{counts[each]} {each} ({weights[each]:.0%} of {of})" for each in WORDS if counts[each]
    ]
    said = f"{_MEANS[word]} Of {len(verdicts)} heads: {', '.join(parts)}."
    if together is not None:
        said += f" Permuting all of them at once changes the answer by {together:.3f}."
    return word, said


_MEANS = {
    EVIDENCE: "Attention here is mostly evidence.",
    PARTIAL: "Attention here is evidence in part.",
    CONTESTED: "Attention here is contested: other valid maps give the same output.",
    NO_EFFECT: "No single head matters here: the answer hardly depends on where any of them looks.",
}
