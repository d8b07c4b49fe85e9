"""Shares out the forward passes that a trial of a model with many heads may take.

Where every head levelled alone takes more than a hundred passes, a trial counts its passes and has
400 of them:

1. Reliance takes what it takes, and the set that carries the answer is looked for in larger steps.
2. Self-attribution walks a path for every site. It is left out where that would take what the
   heat maps need.
3. Heat maps get what is left.

Smaller models are examined without any of these limits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from exhibit_a.errors import NotComputableError
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.counting import Spent, counting_passes

PASSES = 400  # of a trial, where they are counted
MANY = 100  # passes for every head alone; from here on they are counted
FOR_HEAT_MAPS = 110  # passes that are kept back: some 45 random orders at two cuts
DRAWING = 6  # passes to draw the heat maps
STEPS = 4  # between two sizes of the set that carries the answer
POINTS = 20  # of the path of one site, where the answer jumps


@dataclass
class Allowance:
    """The passes of one trial; ``spent`` is None where they are not counted."""

    trace: Trace
    spent: Spent | None

    @property
    def left(self) -> float:
        """The passes that are left."""
        return PASSES - 1 - (0 if self.spent is None else self.spent.forwards)  # 1: the capture

    @property
    def steps(self) -> int | None:
        """How many sizes are tried between two others."""
        return None if self.spent is None else STEPS

    @property
    def heat_maps(self) -> int | None:
        """The passes of the heat maps."""
        return None if self.spent is None else max(0, int(self.left) - DRAWING)

    def require_paths(self) -> None:
        """Refuse a path for every site where that takes what the heat maps need."""
        if self.spent is None:
            return
        layers = len(self.trace.layers)
        needed = POINTS * sum((layers - site.call) / layers for site in self.trace.sites)
        if needed > self.left - FOR_HEAT_MAPS - DRAWING:
            raise NotComputableError(
                f"A path for each of {len(self.trace.sites)} sites takes some {needed:.0f} forward "
                f"passes; of the {PASSES} that a trial of this model has, {self.left:.0f} are "
                f"left, {FOR_HEAT_MAPS} of them for the heat maps. Call the method itself on a "
                "capture of the text."
            )


@contextmanager
def allowance(trace: Trace) -> Iterator[Allowance]:
    """The passes of a trial; counted inside the block where the model has many heads."""
    layers = len(trace.layers)
    alone = sum(site.heads * (layers - site.call) / layers for site in trace.sites)
    if alone <= MANY:
        yield Allowance(trace, None)
        return
    with counting_passes(trace.subject) as spent:
        yield Allowance(trace, spent)
