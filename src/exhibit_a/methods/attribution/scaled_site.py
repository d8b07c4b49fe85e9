"""The answer with the attention of one site scaled, and its gradients.

To scale the attention A of a site is to scale its context AV, what every query averages. A batch
holds copies of its texts, each with a factor α of its own (``Scaled``); 0 silences the site. A
silent site is where every path begins (``path_integral.py``), and it tells what a copy costs.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.shapes import Context, HasLogits, Scores
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.batches import Batch, RowIndex
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.replay import replay

Answer = Callable[[HasLogits, RowIndex], Scores]  # output of a replay, row of each copy → F
ReadRows = tuple[int, ...] | None  # of the last layer, that answers are read from; None for all


class Scaled(Edit):
    """Scales the context of one site, by a factor for each batch item, and records gradients."""

    context_only = True

    def __init__(self, site: int, factors: Tensor) -> None:
        super().__init__([site])
        self.factors = factors
        self.context = self.scaled = factors

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The context, scaled by each copy's factor."""
        if call.site not in self.sites:
            return None
        self.context = context.detach()
        factors = self.factors.to(context.dtype).reshape(-1, 1, 1, 1)
        self.scaled = (factors * self.context).requires_grad_()
        return self.scaled

    def gradients_of(self, answers: Scores) -> Context:
        """What answers that were computed with the scaled context gain for each of its entries."""
        # An answer may not depend on a layer at all: some read a tower below its last one.
        (gradients,) = torch.autograd.grad(answers.sum() + 0 * self.scaled.sum(), self.scaled)
        return at_least_float32(gradients)


class Silenced(NamedTuple):
    """What is known of the rows of a batch without a site."""

    answers: Scores
    gradients: Context  # of the answers, by what the site would average
    context: Context  # what it would average
    kept: float  # bytes that one copy keeps to go backwards


def silence(batch: Batch, site: int, answer: Answer, read: ReadRows) -> Silenced:
    """Run a batch without a site."""
    rows = torch.arange(len(batch), device=batch.real.device)
    edit = Scaled(site, torch.zeros(len(batch), device=batch.real.device))
    weights = {_memory(weight)[0] for weight in batch.model.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        place, size = _memory(tensor)
        if place not in weights:
            kept[place] = size
        return tensor.detach()  # with its graph, a saved result would keep itself alive for ever

    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        answers = answer(replay(batch.rows(rows), edit, read=read), rows)
        gradients = edit.gradients_of(answers)
    return Silenced(
        at_least_float32(answers.detach()), gradients, edit.context, sum(kept.values()) / len(batch)
    )


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor lies and how many bytes that is; quantised weights have no place."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        return 0, 0
