"""The verdict on a head: is its attention evidence of what the model did?

Three questions, each answered with a number, and one word drawn from the answers:

1. *Does the answer rest on where it looks?* Its share in what the answer loses with levelled
   attention (``reliance``), its effect alone, and whether it steers other heads. A large share
   without an effect alone is *shared*: other heads stand in for it.
2. *Are its weights determined?* Other valid weights with the same output, by their distance.
3. *Does it point where its contribution comes from?* The cosine of weights and contributions, row
   by row. Rows that point can still speak for and against each other, as permuted rows
   would: its share counts as coherent where most rows speak for one side, or chance is ruled out.

    evidence      1, 2 and 3 all say yes
    contested     the answer rests on it, but other weights would have given the same
    misleading    the answer rests on it, but the weights lie elsewhere than its contribution
    no effect     no share, no effect alone, steers no other head
    undetermined  a check failed, a budget ended, its rows contradict each other as random ones
                  would, or the layer's weights are random numbers

For a head that the answer rests on, a failed check makes the word *undetermined*, never *evidence*
or *no effect*; the others are judged by their effects alone. Where the lines are drawn is measured
on models whose truth is known (``studies/verdict.py``, docs/verdict.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.reliance import SETTINGS as RELIANCE
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.numerics.intervals import discovery_rates
from exhibit_a.trials.head_numbers import HeadNumbers
from exhibit_a.trials.sentences import CANCELS, cancels, describe_change

EVIDENCE, CONTESTED, MISLEADING, NO_EFFECT, UNDETERMINED = WORDS = (
    "evidence",
    "contested",
    "misleading",
    "no effect",
    "undetermined",
)


IN_THE_BLOCK = (
    "its layer reads the words, and only what all heads of such layers do together is known"
)


@dataclass(frozen=True)
class Thresholds:
    """Where the words begin; docs/verdict.md has the curves that the defaults come from."""

    carries: float = 0.05  # share of a head, as a part of the answer's margin
    whole: float = RELIANCE.moved  # what all heads take together, as a part of the margin
    shared: float = 0.5  # a head whose effect alone is below this part of its share is shared
    distance: float = 0.1  # of valid alternatives, in total variation
    points: float = 0.5  # cosine of weights and contributions
    coherence: float = 0.5  # of rows; below, the share must be told from that of permuted rows
    rate: float = 0.05  # of false discoveries: heads that carry, shares that are not by chance

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for name, value in vars(self).items():
            if not 0 <= value <= 1:
                raise BadRequestError(f"The threshold {name} is {value}; it lies between 0 and 1.")


@dataclass(frozen=True, kw_only=True)
class HeadVerdict(HeadNumbers):
    """The answers about one head and the word they make; None where it could not be measured."""

    word: str
    reason: str
    shared: bool = False  # other heads stand in for it
    determined: bool | None = None  # its weights are the only valid ones, or nearly
    points: bool | None = None  # its weights lie where its contribution comes from
    coherent: bool | None = None  # its rows speak for one side, or it is told from chance


def judge(
    numbers: Sequence[HeadNumbers], reliance: Reliance | None, limits: Thresholds
) -> tuple[HeadVerdict, ...]:
    """The word for every head, and why."""
    if reliance is None:
        reason = "not known whether the answer rests on it"
        return tuple(_undetermined(head, reason) for head in numbers)
    if not reliance.determined:
        return tuple(_undetermined(head, reliance.reason) for head in numbers)
    line = limits.carries * reliance.size
    chances = [_chance_of_less(head, line) for head in numbers]
    carrying = _discoveries(chances, limits.rate)
    by_chance = [1.0 if head.chance is None else head.chance for head in numbers]
    discovered = _discoveries(by_chance, limits.rate)
    block = {site.index for site in reliance.sites if site.call in reliance.block_layers}
    return tuple(
        _undetermined(head, IN_THE_BLOCK)
        if head.site in block
        else _judged(head, reliance.size, carries, by_chance=not clear, limits=limits)
        for head, carries, clear in zip(numbers, carrying, discovered, strict=True)
    )


def _undetermined(head: HeadNumbers, reason: str) -> HeadVerdict:
    return HeadVerdict(word=UNDETERMINED, reason=reason, **vars(head))


def _chance_of_less(head: HeadNumbers, line: float) -> float:
    """The chance that the true share is below the line: 0 or 1 where nothing was sampled."""
    beyond = abs(head.reliance or 0.0) - line
    if not head.error:
        return 0.0 if beyond >= 0 else 1.0
    return 0.5 * math.erfc(beyond / head.error / 2**0.5)


def _discoveries(chances: Sequence[float], rate: float) -> list[bool]:
    """Which hypotheses are rejected when at most ``rate`` of those are to be wrong."""
    rates = discovery_rates(torch.tensor(chances, dtype=torch.float64))
    rejected: list[bool] = (rates <= rate).tolist()
    return rejected


def _judged(
    head: HeadNumbers, size: float, carries: bool, *, by_chance: bool, limits: Thresholds
) -> HeadVerdict:
    share, alone = head.reliance or 0.0, head.one_head or 0.0
    line = limits.carries * size
    requested = HeadVerdict(
        word=UNDETERMINED,
        reason="",
        shared=(carries and abs(alone) < limits.shared * abs(share))
        or (
            head.steering_alone is not None
            and abs(head.steering_alone) < limits.shared * abs(head.steering or 0.0)
        ),
        determined=None if head.distance is None else head.distance < limits.distance,
        points=None if head.pointing is None else head.pointing >= limits.points,
        coherent=None if head.coherence is None else _coherent(head, by_chance, limits),
        **vars(head),
    )
    word, reason = _word(requested, size, carries or abs(alone) >= line, limits)
    return replace(requested, word=word, reason=reason)


def _coherent(head: HeadNumbers, by_chance: bool, limits: Thresholds) -> bool:
    return not by_chance or (head.coherence or 0.0) >= limits.coherence


def _word(head: HeadVerdict, size: float, rests: bool, limits: Thresholds) -> tuple[str, str]:
    """The word for one head and why; ``rests``: whether the answer does, by share or alone."""
    scale = size or 1.0
    share, alone = (head.reliance or 0.0) / scale, (head.one_head or 0.0) / scale
    if not rests:
        steers = (head.steering or 0.0) / scale
        if abs(steers) >= limits.carries:
            return UNDETERMINED, (
                f"it steers other heads: levelled, it makes them look elsewhere, and that is "
                f"{steers:+.0%} of the margin; its own map cannot show that"
            )
        error = 2 * (head.error or 0.0) / scale
        if abs(share) + error >= limits.carries and error > 0:
            return UNDETERMINED, (
                f"whether the answer rests on it is not clear: {share:.1%} ± {error:.1%} of its "
                "margin"
            )
        if head.steering is None:
            return UNDETERMINED, (
                f"its share is {share:.1%} of the margin, but whether it steers other heads is not "
                "known"
            )
        # no minus nought
        by_share, by_alone, moving = (round(part, 3) + 0.0 for part in (share, alone, steers))
        by_itself = "" if head.one_head is None else f"{by_alone:.1%} by this head alone, "
        return NO_EFFECT, (
            f"the answer does not rest on where it looks: {by_share:.1%} of its margin, "
            f"{by_itself}{moving:.1%} by steering others (below {limits.carries:.0%})"
        )
    return quality(head, share, limits)


def quality(head: HeadVerdict, share: float, limits: Thresholds) -> tuple[str, str]:
    """The word for a head that the answer rests on, by share of the margin, and why."""
    rests = f"the answer rests on it ({share:+.0%} of its margin)"
    if head.learned is False:
        return UNDETERMINED, (
            f"{rests}, but the weights of its layer cannot be told from random numbers"
        )
    if head.distance is None:
        return UNDETERMINED, f"{rests}; not known whether its weights are determined"
    if head.pointing is None or head.coherence is None:
        return UNDETERMINED, f"{rests}; not known whether its weights lie on the words that count"
    if head.distance >= limits.distance:
        return CONTESTED, (
            f"{rests}, but other weights would have given the same: up to {head.distance:.0%} of "
            f"them can stand elsewhere (limit {limits.distance:.0%})"
        )
    if head.pointing < limits.points:
        return MISLEADING, (
            f"{rests}, but its weights lie on other words than those that count (agreement "
            f"{head.pointing:.2f}, below {limits.points:g})"
        )
    if not head.coherent:
        return UNDETERMINED, (
            f"{rests}, but its rows speak for and against each other (coherence "
            f"{head.coherence:.2f}, below {limits.coherence:g}) as permuted rows would"
        )
    against = "; it speaks against the answer" if share < 0 else ""
    return EVIDENCE, (
        f"{rests}, no other weights would have given the same (at most {head.distance:.0%} can "
        f"stand elsewhere), and they lie on the words that count (agreement "
        f"{head.pointing:.2f}){against}"
    )


def judge_text(
    verdicts: Sequence[HeadVerdict], reliance: Reliance | None, limits: Thresholds
) -> tuple[str, str]:
    """The word for a text, and the sentence with its numbers."""
    if reliance is None or not reliance.determined:
        reason = "it could not be measured" if reliance is None else reliance.reason
        return UNDETERMINED, f"Not known whether the answer rests on where heads look: {reason}."
    size = reliance.size or 1.0
    whole, permuted = reliance.whole / size, (reliance.margin - reliance.permuted_margin) / size
    moved = f"With levelled attention, {describe_change(reliance, reliance.baseline_margin)}"
    heads = [verdict for verdict in verdicts if verdict.word != NO_EFFECT]
    if abs(whole) < limits.whole and not heads:
        return NO_EFFECT, f"The answer does not rest on where attention looks. {moved}."
    parts = _parts(verdicts, size, limits)
    word = max(parts, key=lambda each: parts[each])
    error = RELIANCE.certain * reliance.permuted_error / size
    if word == EVIDENCE and permuted - error < limits.whole:
        shuffled = describe_change(reliance, reliance.permuted_margin)
        return UNDETERMINED, (
            f"{_MEANS[UNDETERMINED]} {moved}; but with shuffled attention {shuffled}, give or take "
            f"{error:.0%} of its margin: too little for evidence."
        )
    if cancels(reliance, limits.whole):
        permuted_words = describe_change(reliance, reliance.permuted_margin)
        moved += f", because {CANCELS}; with shuffled attention, {permuted_words}"
    shares = ", ".join(f"{each} {part:.0%}" for each, part in parts.items() if part >= 0.005)
    return word, f"{_MEANS[word]} {moved}. Head effects by verdict: {shares}."


def _parts(verdicts: Sequence[HeadVerdict], size: float, limits: Thresholds) -> dict[str, float]:
    """The part of all shares that heads of each word have.

    A text can rest on many heads that carry little each, so heads of no effect are judged here as
    if the answer rested on them.
    """
    shares = torch.tensor([verdict.reliance or 0.0 for verdict in verdicts]).abs()
    parts = dict.fromkeys((EVIDENCE, CONTESTED, MISLEADING, UNDETERMINED), 0.0)
    total = float(shares.sum()) or 1.0
    for verdict, share in zip(verdicts, shares.tolist(), strict=True):
        word = verdict.word
        if word == NO_EFFECT:
            word, _ = quality(verdict, share / size, limits)
        parts[word] += share / total
    return parts


_MEANS = {
    EVIDENCE: "Where attention looks is evidence for this answer.",
    CONTESTED: (
        "The answer rests on where attention looks, but other weights would have given the same."
    ),
    MISLEADING: (
        "The answer rests on attention, but the weights lie on other words than those that count."
    ),
    UNDETERMINED: "Whether attention is evidence for this answer is not known.",
}
