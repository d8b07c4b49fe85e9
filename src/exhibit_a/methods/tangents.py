"""How does everything a model computes change when one of its input tokens does?

That is a Jacobian times a vector: forward mode. Layers of other people's models rarely offer it
(custom kernels lack the rule, tracing them takes seconds), but all of them can be differentiated
backwards, and transposing twice gives the forward derivative:

1. the model runs once more from x, the input of a stack's first layer, and whatever is watched on
   the way (hidden states, head outputs) is caught; what comes after the last of them is not run;
2. backwards once: g(u) = Σₖ Jₖᵀuₖ, with one stand-in uₖ for every watched output k; g is linear;
3. backwards through g: along a change v of x it gives Jₖv, for every k in one pass, and for many
   v at a time (vmap). The activations of step 1 are shared by all of them.

The pass of step 1 must give the states that were recorded, and ⟨g(u), v⟩ = Σₖ⟨uₖ, Jₖv⟩ must hold;
both are measured before any number is used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError
from exhibit_a.shapes import Context
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.care import Forward, around, undisturbed
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.capture import Trace, leading

ROWS = 1024  # tangents × tokens in one pass: the widest activations still fit into a CPU's cache

Tangents = Float[Tensor, "tangent token d_model"]
Pushed = Float[Tensor, "tangent ..."]


@dataclass(frozen=True, eq=False)
class Pushforward:
    """Derivatives of watched outputs along changes of one stack's input."""

    entry: Float[Tensor, "1 token d_model"]
    stand_ins: tuple[Tensor, ...]
    transposed: Float[Tensor, "1 token d_model"]  # g(u), with its graph
    mode: str  # "batched", or "one by one" where the model's kernels cannot be batched
    checks: dict[str, Any]

    def __call__(self, tangents: Tangents) -> list[Pushed]:
        """Jₖv for every watched output k and every tangent v."""
        if self.mode == "batched":
            return _batched(self.transposed, self.stand_ins, tangents)
        return _one_by_one(self.transposed, self.stand_ins, tangents)

    def chunks(self, count: int) -> Iterator[slice]:
        """Runs of at most as many tangents as are best pushed together."""
        size = max(1, ROWS // self.entry.shape[1])
        yield from (slice(start, min(start + size, count)) for start in range(0, count, size))


def push_to_layers(trace: Trace, source: str, stack: str) -> Pushforward:
    """From the input of ``source`` to the output of every layer of ``stack``."""
    calls = [call for call, layer in enumerate(trace.layers) if layer.stack == stack]
    return _prepare(trace, source, calls=calls)


def push_to_heads(trace: Trace, source: str, sites: Sequence[int]) -> Pushforward:
    """From the input of ``source`` to what every head of the ``sites`` averaged."""
    return _prepare(trace, source, sites=sites)


def known_stack(trace: Trace, stack: str | None) -> str:
    """The stack asked for, or the one that reads the input."""
    stack = stack or trace.sites[0].stack
    if stack not in trace.sequences:
        raise BadRequestError(f"There is no stack {stack!r}; found {', '.join(trace.sequences)}.")
    return stack


class _Enough(Exception):
    """Everything watched has been seen; the rest of the model need not run."""


class _Heads(Tap):
    """Keeps the averaged values of the sites that are watched."""

    def __init__(self, sites: Sequence[int]) -> None:
        self.sites = sites
        self.seen: dict[int, Tensor] = {}

    def result(self, call: AttentionCall, context: Context) -> None:
        """Remember what the heads averaged."""
        if call.site in self.sites:
            self.seen[call.site] = context


def _prepare(
    trace: Trace, source: str, *, calls: Sequence[int] = (), sites: Sequence[int] = ()
) -> Pushforward:
    """Steps 1 and 2, and the checks on them."""
    trace = trace.keeping("hidden")
    entry = trace.entries[source].detach().clone().requires_grad_()
    with torch.enable_grad():
        outputs, parity = _run_from(trace, source, entry, calls, sites)
        chance = torch.Generator().manual_seed(0)
        stand_ins = tuple(
            torch.randn(output.shape, generator=chance).to(output).requires_grad_()
            for output in outputs
        )
        reached = [(o, u) for o, u in zip(outputs, stand_ins, strict=True) if o.requires_grad]
        if not reached:
            raise NotComputableError(
                f"Nothing in the {trace.layers[-1].stack} depends on the input of the {source}."
            )
        (transposed,) = torch.autograd.grad(
            [output for output, _ in reached],
            entry,
            [stand_in for _, stand_in in reached],
            create_graph=True,
        )
    probe = torch.randn((2, *entry.shape[1:]), generator=chance).to(entry)
    mode, pushed = _first_push(transposed, stand_ins, probe)
    gap = _adjoint_gap(transposed, stand_ins, probe, pushed)
    tolerance = 64 * torch.finfo(entry.dtype).eps * max(1.0, float(entry.shape[1]) ** 0.5)
    if not (parity <= trace.subject.anatomy.tolerance and gap <= 100 * tolerance):
        raise BrokenInvariantError(
            f"{type(trace.subject.model).__name__} does not repeat itself: run again from its layer "
            f"0 its states move by {parity:.2g}, and its derivative forwards differs from the one "
            f"backwards by {gap:.2g} (relative). No numbers are given for such a model."
        )
    checks = {"mode": mode, "parity": parity, "adjoint_gap": gap, "dtype": str(entry.dtype)[6:]}
    return Pushforward(entry, stand_ins, transposed, mode, checks)


def _run_from(
    trace: Trace, source: str, entry: Tensor, calls: Sequence[int], sites: Sequence[int]
) -> tuple[list[Tensor], float]:
    """The watched outputs of a pass whose stack ``source`` starts from ``entry``; and its parity."""
    model, heads = trace.subject.model, _Heads(sites)
    first = next(call for call, layer in enumerate(trace.layers) if layer.stack == source)
    last = max([*calls, *(trace.sites[site].call for site in sites)])
    states: list[Tensor] = []

    def watch(forward: Forward) -> Forward:
        def layer(*args: Any, **kwargs: Any) -> Any:
            if len(states) == first:
                args, kwargs = _starting_from(entry, args, kwargs)
            output = forward(*args, **kwargs)
            states.append(leading(output))
            if len(states) > last:
                raise _Enough
            return output

        return layer

    modules = {layer.module: model.get_submodule(layer.module) for layer in trace.layers}
    with undisturbed(model), trace.subject.tapping(heads), around(list(modules.values()), watch):
        try:
            model(**trace.inputs)
        except _Enough:
            pass
    recorded = map(leading, trace.layer_outputs)
    parity = max(
        float((now.detach() - then).abs().amax())
        for now, then in zip(states, recorded, strict=False)
    )
    return [*(states[call] for call in calls), *(heads.seen[site] for site in sites)], parity


def _starting_from(
    entry: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A layer's arguments with ``entry`` in the place of its hidden states."""
    given = first_hidden(args, kwargs)
    return (
        tuple(entry if arg is given else arg for arg in args),
        {name: entry if arg is given else arg for name, arg in kwargs.items()},
    )


def _first_push(
    transposed: Tensor, stand_ins: tuple[Tensor, ...], probe: Tangents
) -> tuple[str, list[Tensor]]:
    """The fastest way that works for this model, and what it gives for a probe."""
    try:
        return "batched", _batched(transposed, stand_ins, probe)
    except RuntimeError:  # a kernel without a batching rule
        pass
    try:
        return "one by one", _one_by_one(transposed, stand_ins, probe)
    except RuntimeError as problem:
        reason = str(problem).strip().splitlines()[0]
        raise NotComputableError(
            f"This model cannot be differentiated twice, and token mixing needs that: {reason}"
        ) from problem


def _batched(
    transposed: Tensor, stand_ins: tuple[Tensor, ...], tangents: Tangents
) -> list[Tensor]:
    pushed = torch.autograd.grad(
        transposed,
        stand_ins,
        tangents.unsqueeze(1),
        is_grads_batched=True,
        retain_graph=True,
        materialize_grads=True,
    )
    return [part.squeeze(1) for part in pushed]


def _one_by_one(
    transposed: Tensor, stand_ins: tuple[Tensor, ...], tangents: Tangents
) -> list[Tensor]:
    pushed = [
        torch.autograd.grad(
            transposed, stand_ins, one.unsqueeze(0), retain_graph=True, materialize_grads=True
        )
        for one in tangents
    ]
    return [torch.cat(parts) for parts in zip(*pushed, strict=True)]


def _adjoint_gap(
    transposed: Tensor, stand_ins: tuple[Tensor, ...], probe: Tangents, pushed: list[Tensor]
) -> float:
    """How far ⟨g(u), v⟩ is from Σₖ⟨uₖ, Jₖv⟩, relative to the size of the terms."""
    backwards = (transposed.detach().double() * probe.double()).sum((1, 2))
    terms = [
        (stand_in.detach().double() * part.double()).flatten(1)
        for stand_in, part in zip(stand_ins, pushed, strict=True)
    ]
    forwards = torch.stack([term.sum(1) for term in terms]).sum(0)
    size = torch.stack([term.square().sum(1) for term in terms]).sum(0).sqrt()
    return float(((backwards - forwards).abs() / size.clamp_min(1e-30)).amax())
