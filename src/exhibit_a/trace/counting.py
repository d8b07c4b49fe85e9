"""How many passes of the model something takes, and how much work one is.

An attention call that is really computed is seen by a hook; what a replay recalls is not. A pass
is a call of every attention site, for one row of a batch; where only some positions are computed,
it is as much of a pass. One that keeps a graph is also run backwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

import torch
from torch import nn

from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.guard import here_only, hooked
from exhibit_a.subject.replay_skips import replay_skips
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import Trace


@dataclass
class Spent:
    """Rows of attention calls since the last time they were requested."""

    sites: int
    forward_rows: float = 0.0
    backward_rows: float = 0.0

    @property
    def forwards(self) -> float:
        """Forward passes since the last time, with parts of passes."""
        return self.forward_rows / self.sites

    def taken(self) -> tuple[int, int]:
        """Forward and backward passes since the last time, rounded up."""
        counts = (ceil(self.forward_rows / self.sites), ceil(self.backward_rows / self.sites))
        self.forward_rows = self.backward_rows = 0.0
        return counts


def multiplications(trace: Trace) -> int:
    """About as many as a pass takes in its layers, where every token meets every weight."""
    modules = [trace.subject.model.get_submodule(layer.module) for layer in trace.layers]
    weights = sum(int(weight.numel()) for module in modules for weight in module.parameters())
    return weights * sum(len(sequence.tokens) for sequence in trace.sequences.values())


@contextmanager
def counting_passes(subject: Subject) -> Iterator[Spent]:
    """Count the passes that are run inside the block.

    >>> with counting_passes(subject) as spent:
    ...     _ = xa.capture(subject, "a film")
    >>> spent.taken()
    (1, 0)
    """
    _ = subject.gradient_obstacle  # looked at once for a model, by a pass that is no text's
    sites = subject.anatomy.sites
    spent = Spent(len(sites))

    def count(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if replay_skips().known:
            return  # a layer that goes on with attention which was counted
        hidden = first_hidden(args, kwargs)
        kept = replay_skips().kept
        rows = (1 if hidden is None else len(hidden)) * (1.0 if kept is None else kept.part)
        spent.forward_rows += rows
        if torch.is_grad_enabled() and hidden is not None and hidden.requires_grad:
            spent.backward_rows += rows

    names = dict.fromkeys(site.module for site in sites)
    modules = [subject.model.get_submodule(name) for name in names]
    with hooked([m.register_forward_pre_hook(here_only(count), with_kwargs=True) for m in modules]):
        yield spent
