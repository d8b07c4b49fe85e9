"""The stages of a trial: their order, their time, and what happens if one cannot be done.

A trial is a list of stages. The work a stage may cost is counted in multiplications and not in
seconds, so that the same text gives the same numbers on every machine.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from exhibit_a.errors import ExhibitError, NotComputableError
from exhibit_a.numerics.memory import give_back
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.counting import multiplications

STAGES = (
    "capture",
    "reliance",
    "heads",
    "identifiability",
    "alternatives",
    "attribution",
    "effective",
    "tree",
    "weights",
    "mixing",
    "heat_maps",
)
EFFORT = 2**39  # multiplications that one stage may cost: some 10 to 20 s on two cores
TANGENTS = 40  # directions that a trial follows, of all tokens: some 25 passes of a short text
FEWEST, PROBES = 2, 8  # directions of every token

StageProgress = Callable[
    [str, int, int], None
]  # the stage that begins, its number, how many there are
Made = TypeVar("Made")


class Stages:
    """Runs one stage after the other, keeping time and the reasons of those that do not apply."""

    def __init__(self, progress: StageProgress | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.skipped: dict[str, str] = {}

    def run(self, stage: str, work: Callable[[], Made]) -> Made:
        """Do a stage that the others cannot do without."""
        self._announce(stage)
        return self._timed(stage, work)

    def attempt(self, stage: str, work: Callable[[], Made]) -> Made | None:
        """Do a stage, or write down why it cannot be done."""
        self._announce(stage)
        try:
            return self._timed(stage, work)
        except ExhibitError as reason:
            self.skipped[stage] = str(reason)
            return None

    def _announce(self, stage: str) -> None:
        if self.progress is not None:
            self.progress(stage, STAGES.index(stage), len(STAGES))

    def _timed(self, stage: str, work: Callable[[], Made]) -> Made:
        started = time.perf_counter()
        try:
            return work()
        finally:
            give_back()  # else the peaks of stages add up
            self.seconds[stage] = time.perf_counter() - started


def affordable_probes(trace: Trace, wanted: int | None) -> int:
    """As many random directions as are wanted, or as there is time for.

    Every token is moved in every direction, and each time all tokens are followed, which takes
    about as long as a forward pass. Without a wish, a trial has room for ``TANGENTS`` of that.
    """
    tokens = sum(len(sequence.tokens) for sequence in trace.sequences.values())
    if wanted is None and FEWEST * tokens > TANGENTS:
        raise NotComputableError(
            f"Following each of {tokens} tokens in {FEWEST} directions takes about as long as "
            f"{FEWEST * tokens} forward passes; a trial has {TANGENTS} for it. Ask with probes=8 "
            "(--probes 8), or call the method itself on a capture of the text."
        )
    wanted = min(wanted or min(PROBES, TANGENTS // tokens), trace.subject.anatomy.d_model)
    cost = multiplications(trace) * tokens
    if EFFORT // cost < min(wanted, FEWEST):
        raise NotComputableError(
            f"Following every one of {tokens} tokens takes {FEWEST * cost:.1e} multiplications or "
            f"more, beyond the {EFFORT:.1e} that a trial allows. Call the method itself on a "
            "capture of the text."
        )
    return min(wanted, EFFORT // cost)
