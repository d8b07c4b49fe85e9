"""What does removing heads save, and are the answers kept?

A model and the one that is left without some of its heads (``removal.py``) run over the same
examples, in turn, so that a busy machine slows both: weights and time before and after, and the
largest difference from the answers of the model in which the same heads are silenced.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from exhibit_a.examples import read_examples
from exhibit_a.methods.heads.removal import Heads, off_by, silenced_answer
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.results.tables import record_table
from exhibit_a.shapes import Inputs
from exhibit_a.subject.guard import frozen_eval, method_modes, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.batches import Source, encoded, padded_groups

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Pruning(Result):
    """What removing heads saved: weights, time, and how exactly the answers are kept."""

    heads: tuple[tuple[int, int], ...]
    parameters: tuple[int, int]  # before and after
    seconds: tuple[float, float]  # for one pass over the examples, the best of several
    difference: float  # largest, between the answers of the silenced and the pruned model
    saves: bool
    columns: ClassVar[dict[str, str]] = {
        "model": "as it was, or without the heads",
        "parameters": "numbers in its weights",
        "seconds": "for one pass over the examples, the best of several",
    }

    @property
    def speed_up(self) -> float:
        """How many times faster the pruned model is."""
        return self.seconds[0] / self.seconds[1]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for the model as it was, and one for the model without the heads."""
        names = ("as it was", "without the heads")
        measured = zip(names, self.parameters, self.seconds, strict=True)
        return record_table([dict(zip(self.columns, row, strict=True)) for row in measured])


@method_modes()
def measure_pruning(
    subject: Subject, pruned: Subject, heads: Heads, examples: Source, *, repeats: int = 5
) -> Pruning:
    """Compare a pruned model with the one it came from, on some examples.

    >>> heads = [(site, head) for site in range(6) for head in range(6)]
    >>> smaller = xa.prune(subject, heads)
    >>> pruning = xa.measure_pruning(subject, smaller, heads, examples[:4], repeats=1)
    >>> pruning.parameters[1] < pruning.parameters[0], pruning.difference < 1e-4
    (True, True)
    >>> pruning.heads[:2]
    ((0, 0), (0, 1))

    Args:
        pruned: the smaller model.
        heads: the heads that were removed, as pairs of site and head.
        repeats: how often each model is timed; the best time counts.
    """
    removed = tuple(sorted(set(heads)))
    inputs = encoded(subject, read_examples(examples))
    batches = [batch for _, batch in padded_groups(subject, inputs)]
    worst = max(
        off_by(pruned, batch, silenced_answer(subject, batch, removed)) for batch in batches
    )
    models = (subject, pruned)
    seconds = [torch.inf, torch.inf]
    for _ in range(repeats):  # in turn, so that a busy machine slows both
        for place, each in enumerate(models):
            seconds[place] = min(seconds[place], _seconds(each, batches))
    counts = [sum(weight.numel() for weight in each.model.parameters()) for each in models]
    return build_result(
        Pruning,
        subject,
        "prune",
        settings={"heads": list(map(list, removed))},
        checks={
            "difference from the silenced model": worst,
            "examples": len(inputs),
            "repeats": repeats,
            "threads": torch.get_num_threads(),
        },
        heads=removed,
        parameters=(counts[0], counts[1]),
        seconds=(seconds[0], seconds[1]),
        difference=worst,
        saves="save_pretrained" not in vars(pruned.model),
    )


@torch.no_grad()
def _seconds(subject: Subject, batches: Sequence[Inputs]) -> float:
    """How long one pass takes, by the model's own fastest attention."""
    model, start = subject.model, time.perf_counter()
    with frozen_eval(model):
        for inputs in batches:
            model(**without_cache(model, inputs))
    return time.perf_counter() - start
