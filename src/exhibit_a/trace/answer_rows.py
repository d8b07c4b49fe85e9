"""Which rows of the last layer is an answer read from?

Many answers look at one token: a classifier at its first, a language model at its last. What the
other rows of the last layer would hold need not be computed (``subject/replay_skips.py``), if it is
certain that nobody looks:

1. the gradients of the answer name the rows that it seems to be read from;
2. all other rows are made NaN, which nothing that is computed with them survives. The answer must
   stay the same to the last bit;
3. the last layer is computed for these rows alone, and must give the answer that the model gave.

What does not pass is read from all rows.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from exhibit_a.shapes import HasLogits
from exhibit_a.trace.layers import hidden_of_output, with_states
from exhibit_a.trace.passes import Pass
from exhibit_a.trace.replay import replay

WORTH = 12  # rows that nobody reads, of all texts: for fewer, no layer is run in two steps

OfOutput = Callable[[HasLogits], Tensor]  # what is asked of an answer, for every row of a batch


def rows_read(passed: Pass, answer: OfOutput) -> tuple[int, ...] | None:
    """The rows of the last layer that ``answer`` is read from; None where it may be all."""
    kept = passed.keeping("hidden")
    states = hidden_of_output(kept.layer_outputs[-1]).detach()
    if states.ndim != 3 or states[..., 0].numel() <= WORTH or kept.subject.gradient_obstacle:
        return None
    leaf = states.clone().requires_grad_()
    with torch.enable_grad():
        reached = answer(ending_in(kept, leaf))
        if not reached.requires_grad:
            return None
        (gradients,) = torch.autograd.grad(reached.sum(), leaf, materialize_grads=True)
    rows = (gradients != 0).any(-1).any(0).nonzero().flatten()
    if not len(rows) or len(states) * (states.shape[1] - len(rows)) < WORTH:
        return None
    found, reached = tuple(rows.tolist()), reached.detach()
    with torch.no_grad():
        poisoned = torch.full_like(states, torch.nan).index_copy(1, rows, states[:, rows])
        unread = torch.equal(answer(ending_in(kept, poisoned)), reached)
        return found if unread and _computes(kept, found, answer, reached) else None


def ending_in(passed: Pass, states: Tensor) -> HasLogits:
    """What the model answers where its last layer gave these states."""
    last = with_states(passed.layer_outputs[-1], states)
    outputs = (*passed.layer_outputs[:-1], last)
    ended: HasLogits = replay(replace(passed, layer_outputs=outputs), start=len(passed.layers))
    return ended


def _computes(passed: Pass, rows: tuple[int, ...], answer: OfOutput, reached: Tensor) -> bool:
    """Whether the last layer, computed for these rows alone, gives the same answer (step 3)."""
    try:
        again = answer(replay(passed, start=len(passed.layers) - 1, read=rows))
    except Exception:  # a layer that cannot take some rows alone can fail in any way
        return False
    allowed = passed.subject.anatomy.tolerance * reached.abs().clamp_min(1)
    return bool(((again - reached).abs() <= allowed).all())
