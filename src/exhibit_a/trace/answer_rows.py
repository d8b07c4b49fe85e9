"""The rows of the last layer that an answer is read from.

Many answers look at one token: a classifier at its first, a language model at its last. How much
each row counts (``readout``) is where paths through the layers begin, from the answer back to the
input. And what the other rows of the last layer would hold need not be computed
(``subject/replay_skips.py``), if it is certain that they are not read (``rows_read``):

1. the gradients of the answer name the rows that it seems to be read from;
2. all other rows are made NaN, which nothing that is computed with them survives. The answer must
   stay the same to the last bit;
3. the last layer is computed for these rows alone, and must give the answer that the model gave.

What does not pass is read from all rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.shapes import HasLogits
from exhibit_a.subject.anatomy import VISION, Site, main_stack
from exhibit_a.subject.replay_skips import KeptPositions
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.passes import Pass, hidden_of_output, with_states
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

ALMOST_ALL = 0.999  # of what the answer is read from
WORTH = 12  # unread rows, of all texts: for fewer, no layer is run in two steps

Row = Float[Tensor, " token"]
OfOutput = Callable[[HasLogits], Tensor]  # a number of every row of a batch


def readout(trace: Trace, target: Target) -> Row:
    """Which positions of the last layer the answer is read from, as weights that sum to one.

    A classifier that reads its first token gives one 1; one that averages gives every token some.
    """
    trace.subject.require_gradients()
    kept = target.narrowed(trace.keeping("hidden"))
    last = hidden_of_output(kept.layer_outputs[-1]).detach().clone().requires_grad_()
    answer = replace(target, scale="logit").value(kept, ending_in(kept, last))
    (gradient,) = torch.autograd.grad(answer.sum(), last)
    weight: Tensor = gradient[0].norm(dim=-1)
    return weight / weight.sum()


def readout_rows(trace: Trace, target: Target) -> Row:
    """`readout` in the rows of attention that were kept; the answer must be read from these."""
    weight = readout(trace, target)
    if trace.rows is None:
        return weight
    kept = weight[list(trace.rows)]
    if float(kept.sum()) < ALMOST_ALL:
        places = weight.argsort(descending=True)[: len(trace.rows) + 1].tolist()
        raise BadRequestError(
            f"The answer is also read from rows that were not kept; among the first are "
            f"{sorted(places)}. Capture those rows too, or fetch all with trace.whole()."
        )
    return kept


def answering_rows(trace: Trace, target: Target) -> tuple[int, ...]:
    """The positions of the stack that answers whose last states the target is read from.

    >>> answering_rows(trace, xa.choose_target(trace))  # a classifier that reads its first token
    (0,)
    """
    if target.position is not None:
        return tuple(range(target.position, target.position + len(target.indices)))
    return tuple((readout(trace, target) > 1 - ALMOST_ALL).nonzero().flatten().tolist())


def kept_positions(trace: Trace) -> KeptPositions | None:
    """What a replay of the kept rows alone needs of all other positions; None where none can be."""
    if trace.rows is None or trace.subject.anatomy.tap != "registry":
        return None
    kept, answering = trace.keeping("keys", "values"), trace.sites[-1].stack
    keys, values = list(kept.at("keys")), list(kept.at("values"))
    if any(tensor is None for tensor in (*keys, *values)):
        return None

    def shared(by_site: Sequence[Tensor | None]) -> list[Tensor]:
        pairs = zip(by_site, trace.sites, strict=True)
        # in memory of their own: slices would keep what was repeated for every head
        return [t[:, :: site.heads // site.kv_heads].clone() for t, site in pairs if t is not None]

    own = [site.stack == answering and site.kind == "self" for site in trace.sites]
    return KeptPositions(
        torch.tensor(trace.rows, dtype=torch.long),
        shared(keys),
        shared(values),
        [seen if alone else None for seen, alone in zip(kept.visible, own, strict=True)],
    )


def one_stack(trace: Trace) -> tuple[Site, ...]:
    """The sites whose maps form one tower of square steps over the tokens of the input.

    A tower that looks at a picture stands before them, and its patches are no tokens.
    """
    main = main_stack(trace.sites)
    sites = tuple(site for site in trace.sites if site.stack == main)
    others = [stack for stack in trace.sequences if stack != main and not stack.startswith(VISION)]
    if others or any(site.kind == "cross" for site in trace.sites):
        raise NotComputableError(
            "Maps are only multiplied through one stack of self-attention; this model has two "
            "stacks or attends across. Use a method on the input instead (occlusion, gradients)."
        )
    return sites


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
