"""What is known about a planted model, and what happens when its heads look evenly?

The interventions here use captured maps and replays alone, no method that judges them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

import exhibit_a as xa
from planted.weights import Head


@dataclass(frozen=True)
class Planted:
    """A model, one input for it, and the truth about both."""

    kind: str
    seed: int
    subject: xa.Subject
    inputs: dict[str, Tensor]
    word: str  # the expected word for the text
    heads: dict[Head, str] = field(default_factory=dict)  # the expected word, where it is known
    shared: frozenset[Head] = frozenset()  # heads that stand in for each other
    decisive: tuple[Head, ...] = ()
    through_maps: frozenset[Head] = frozenset()  # these act only by steering where others look
    answer: int | None = None  # the right class or token
    peaks: dict[Head, tuple[int, int]] = field(default_factory=dict)  # (query, key) of note
    source: int | None = None  # the key whose value is the answer


def even_maps(trace: xa.Trace) -> list[Tensor]:
    """Maps that look at all visible keys alike, for every site."""
    maps = []
    for attention, visible in zip(trace.attention, trace.visible, strict=True):
        seen = visible.expand(attention.shape).to(attention.dtype)
        maps.append(seen / seen.sum(-1, keepdim=True))
    return maps


def margin(output: xa.Trace | object, answer: int) -> float:
    """The log-odds of an answer; of a language model, at the last position."""
    logits = output.logits[0].double()
    log_probabilities = (logits if logits.ndim == 1 else logits[-1]).log_softmax(-1)
    others = torch.cat([log_probabilities[:answer], log_probabilities[answer + 1 :]])
    return float(log_probabilities[answer] - others.logsumexp(-1))


def margin_when_even(
    trace: xa.Trace, heads: Iterable[Head], answer: int, *, frozen: bool = True
) -> float:
    """The margin when these heads look evenly.

    ``frozen`` keeps the captured maps of all other heads; otherwise sites without a head among
    ``heads`` compute theirs anew.
    """
    even, maps = even_maps(trace), [attention.clone() for attention in trace.attention]
    heads = list(heads)
    for site, head in heads:
        maps[site][head] = even[site][head]
    sites = range(len(maps)) if frozen else sorted({site for site, _ in heads})
    edit = xa.edits.together(*(xa.edits.replace(site, maps[site]) for site in sites))
    with torch.no_grad():
        return margin(xa.replay(trace, edit), answer)
