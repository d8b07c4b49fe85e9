"""The model once more, with something in the middle changed.

The whole model runs again, but layer calls before the change return what they returned the first
time. Masks, positions, the final norm and the head are computed by the model itself, so nothing
has to be known about them, and nothing below the change is computed twice.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from exhibit_a.errors import BadRequestError
from exhibit_a.shapes import Inputs
from exhibit_a.subject.anatomy import check_site, first_hidden
from exhibit_a.subject.guard import Forward, frozen_eval, without_padding
from exhibit_a.subject.packing import wrap_layers
from exhibit_a.subject.replay_skips import KeptPositions, ReplaySkips
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.passes import LATER, Pass

LONG = 256  # tokens, from which on maps cost more than what else an attention call does


def replay(
    trace: Pass,
    edit: Tap | None = None,
    *,
    start: int | None = None,
    copies: int = 1,
    read: Sequence[int] | None = None,
    kept: KeptPositions | None = None,
) -> Any:
    """The model's answer with ``edit`` in place, computed from layer call ``start`` on.

    Gradients flow to whatever the edit put in; call it under ``torch.no_grad()`` to save memory.

    >>> silenced = xa.replay(trace, xa.edits.drop_heads([(5, 0), (5, 1)]))
    >>> tuple(silenced.logits.shape), bool((silenced.logits == trace.output.logits).all())
    ((1, 2), False)
    >>> halves = xa.edits.scale(0, torch.tensor([0.0, 0.5, 1.0]))  # one factor for each copy
    >>> answers = xa.replay(trace, halves, copies=3).logits
    >>> torch.allclose(answers[2], trace.output.logits[0], atol=1e-4)
    True

    Args:
        trace: the pass to repeat.
        edit: what is changed; without, nothing is.
        start: the first layer call that is computed anew; without, the first that is edited.
        copies: how often the rows are repeated, so that an edit can change every copy in its own
            way.
        read: the rows of the last layer that the answer is read from, as ``answer_rows.rows_read``
            finds them; the others are left out.
        kept: where only some rows are computed, what the others were
            (``answer_rows.kept_positions``); answers are given for these rows alone.
    """
    if edit is None:
        first_edited = len(trace.layers)
    elif not isinstance(edit, Edit) or not edit.sites:
        first_edited = 0
    else:
        for site in sorted(edit.sites):
            check_site(trace.sites, site)
        first_edited = trace.sites[min(edit.sites)].call
    start = first_edited if start is None else start
    if not 0 <= start <= len(trace.layers):
        raise BadRequestError(
            f"There is no layer call {start}; valid are 0 to {len(trace.layers)}."
        )
    if isinstance(edit, Edit) and edit.sites and start > first_edited:
        raise BadRequestError(
            f"The edit begins in layer call {first_edited}, and a replay from {start} on does not "
            "run that; start there or before."
        )
    if copies < 1:
        raise BadRequestError(f"{copies} copies were requested; give 1 or more.")
    if start > 0:
        trace = trace.keeping("hidden")
    model = trace.model
    modules = {layer.module: model.get_submodule(layer.module) for layer in trace.layers}
    first = sum(site.call < start for site in trace.sites)
    inputs, tap = repeated(_inputs_at(trace, kept), copies), edit or _Untouched()
    last = len(trace.layers) - 1
    spared = ReplaySkips(
        _texts(trace, copies) if kept is None else None,
        read,
        sum(site.call == last for site in trace.sites),
        _idle(trace, tap, first),
        kept,
    )
    first_run = None if start > last else modules[trace.layers[start].module]
    with (
        frozen_eval(model),
        without_padding(model),
        trace.subject.tapping(tap, first=first, fused=kept is None and runs_fused(trace, tap)),
        spared.active(first_run),
        wrap_layers(list(modules.values()), _recalling(trace, start, copies, spared)),
    ):
        return model(**inputs)


def runs_fused(trace: Pass, tap: Tap) -> bool:
    """Whether fused kernels serve: as in the pass itself, or where large maps are not requested.

    Half precision rounds too coarsely for another kernel to give the same answer.
    """
    if tap.reads_weights or not trace.subject.kernels:
        return False
    tokens = max(states.shape[1] for states in trace.stack_inputs.values())
    precise = torch.finfo(trace.subject.dtype).eps <= torch.finfo(torch.float32).eps
    return trace.fused or (tap.context_only and precise and tokens >= LONG)


class _Untouched(Tap):
    """Looks at nothing and changes nothing."""

    def acts_at(self, site: int) -> bool:  # noqa: ARG002
        """Nowhere."""
        return False


def _contiguous(states: Tensor) -> Tensor:
    """Hidden states as the layer above expects them: some layers need contiguous memory."""
    return states.contiguous() if states.ndim == 3 else states


def _idle(trace: Pass, tap: Tap, first: int) -> tuple[nn.Module, ...]:
    """Modules that need not run: those that make weights, where the tap acts from ``first`` on."""
    acts = all(tap.acts_at(site.index) for site in trace.sites[first:])
    return trace.subject.weight_makers if tap.gives_contexts and acts else ()


def _texts(trace: Pass, copies: int) -> Tensor | None:
    """Which rows of a replay are copies of one text, by number; None where that is not known."""
    if trace.subject.anatomy.tap != "registry":
        return None  # where attention begins would not be seen
    if copies == 1:
        return trace.texts
    ids = trace.inputs.get("input_ids")
    return torch.zeros(copies, dtype=torch.long) if ids is not None and len(ids) == 1 else None


def _recalling(
    trace: Pass, start: int, copies: int, spared: ReplaySkips
) -> Callable[[Forward], Forward]:
    """A wrapper for layers, whose calls before ``start`` return what they returned before."""
    # Outputs that the model computes with: the last one recalled, and the last of the encoder.
    stacks = [layer.stack for layer in trace.layers]
    used = {call for call in range(start) if stacks[call] not in stacks[call + 1 : start]}
    entered, last = 0, len(trace.layers) - 1

    def recall(forward: Forward) -> Forward:
        def layer(*args: object, **kwargs: object) -> object:
            nonlocal entered
            call, entered = entered, entered + 1
            if call == start == 0 and spared.kept is not None:
                # What is added to tokens before the first layer depends on where they stand.
                given = first_hidden(args, kwargs)
                some = expand(_at_rows(trace.layer_inputs[0], spared.kept, trace, call), copies)
                args = tuple(some if value is given else value for value in args)
                kwargs = {k: some if value is given else value for k, value in kwargs.items()}
            if call >= start:
                run = forward if call < last else partial(spared.finish, forward)
                run = run if call > start else partial(spared.enter, run)
                return run(*args, **kwargs)
            output = trace.layer_outputs[call]
            if spared.kept is not None:
                output = _at_rows(output, spared.kept, trace, call)
            output = expand(output, copies)
            return tree_map_only(Tensor, _contiguous, output) if call in used else output

        return layer

    return recall


def _inputs_at(trace: Pass, kept: KeptPositions | None) -> Inputs:
    """What the model is given: the tokens of some rows alone, where no others are computed."""
    if kept is None:
        return trace.inputs
    written = "decoder_" if trace.model.config.is_encoder_decoder else ""
    rows = kept.rows.to(trace.subject.device)
    given = {
        name: value
        for name, value in trace.inputs.items()
        if name not in (LATER, f"{written}attention_mask", f"{written}position_ids")
    }
    ids = f"{written}input_ids"
    count = given[ids].shape[1]
    for name, value in given.items():
        of_tokens = name == ids or (not written and isinstance(value, Tensor))
        if of_tokens and value.ndim == 2 and value.shape[1] == count:
            given[name] = value[:, rows]
    if "position_ids" in inspect.signature(trace.model.forward).parameters and not written:
        given["position_ids"] = rows.unsqueeze(0)
    return given


def _at_rows(tree: object, kept: KeptPositions, trace: Pass, call: int) -> object:
    """The states of some rows, of what a layer of the stack that answers was given or gave."""
    if trace.layers[call].stack != trace.sites[-1].stack:
        return tree

    def some(states: Tensor) -> Tensor:
        return states[:, kept.rows.to(states.device)] if states.ndim == 3 else states

    return tree_map_only(Tensor, some, tree)


def expand(tree: object, copies: int) -> object:
    """Repeat every one-row tensor of ``tree`` without copying it."""
    return tree_map_only(
        Tensor,
        lambda rows: rows.expand(copies, *rows.shape[1:]) if rows.ndim and len(rows) == 1 else rows,
        tree,
    )


def repeated(inputs: Inputs, copies: int) -> Inputs:
    """Inputs with every row copied: inputs are small, and some models need contiguous ids.

    One text may have several rows of patches, which stay together; see ``subject/packing.py``.
    """
    if copies == 1:
        return inputs
    ids = inputs.get("input_ids")
    one_text = ids is not None and len(ids) == 1

    def rows(value: Tensor) -> Tensor:
        if one_text:
            return value.repeat(copies, *[1] * (value.ndim - 1))
        return torch.repeat_interleave(value, copies, dim=0)

    return {name: rows(v) if isinstance(v, Tensor) else v for name, v in inputs.items()}
