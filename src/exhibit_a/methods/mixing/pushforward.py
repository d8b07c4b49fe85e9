"""How does everything a model computes change when one of its input tokens does?

That is a Jacobian times a vector: forward mode. Few models offer it (kernels lack the rule, tracing
takes seconds), but all can be differentiated backwards, and transposing twice is forward mode:

1. the model runs again from x, the input of a stack's first layer. Whatever is watched (hidden
   states, head outputs) is caught on the way; what comes after the last of them is not run.
   Curved kernels are put in by their tangents (``first_order.py``) and, where many changes are to
   be pushed, what follows attention in a layer by matrices (``folding.py``);
2. backwards once: g(u) = Σₖ Jₖᵀuₖ, with one stand-in uₖ for every watched output k; g is linear;
3. backwards through g: along a change v of x it gives Jₖv, for every k in one pass and for many v
   at a time (vmap). Thanks to step 1 only products and sums are met there.

Before any number is used the pass must give the states that were recorded, and ⟨Σₖ Jₖᵀuₖ, v⟩, from
an ordinary gradient, must be Σₖ⟨uₖ, Jₖv⟩.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.overrides import TorchFunctionMode

from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError, first_line
from exhibit_a.methods.mixing.folding import Fold, side_by_side
from exhibit_a.methods.mixing.tangent_kernels import FirstOrder
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.guard import Forward, StopEarly, frozen_eval, wrap_forward
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.layers import hidden_of_output

ROWS = 1024  # tangents × tokens in one pass: the widest activations still fit into a CPU's cache
FOLDED_BYTES = 2**30  # what matrices in the place of layers may take

Tangents = Float[Tensor, "tangent token d_model"]
Pushed = Float[Tensor, "tangent ..."]
EachPushed = Float[Tensor, "tangent batch ..."]


@dataclass(frozen=True, eq=False)
class Pushforward:
    """Derivatives of watched outputs along changes of one stack's input."""

    entry: Float[Tensor, "batch token d_model"]
    stand_ins: tuple[Tensor, ...]
    transposed: Float[Tensor, "batch token d_model"]  # g(u), with its graph
    checks: dict[str, Any]

    def __call__(self, tangents: Tangents) -> list[Pushed]:
        """Jₖv of one text, for every watched output k and every tangent v."""
        return [part.squeeze(1) for part in self.each(tangents)]

    def each(self, tangents: Tangents) -> list[EachPushed]:
        """Jₖv for every watched output k and every tangent v, made in all texts of the batch."""
        return _push(self.transposed, self.stand_ins, tangents)

    def chunks(self, count: int) -> Iterator[slice]:
        """Runs of as many tangents as are best pushed together."""
        size = max(1, ROWS // self.entry[..., 0].numel())
        yield from (slice(start, min(start + size, count)) for start in range(0, count, size))


def push_to_layers(trace: Trace, source: str, stack: str, *, many: bool = False) -> Pushforward:
    """From the input of ``source`` to the output of every layer of ``stack``.

    With ``many`` changes to push, layers are folded into matrices where that can be.
    """
    calls = [call for call, layer in enumerate(trace.layers) if layer.stack == stack]
    watched = _Watched(calls)
    if many and _folded_bytes(trace) <= FOLDED_BYTES:
        with suppress(BrokenInvariantError):  # tokens are not kept apart: as they are, then
            return _prepare(trace, source, watched, Fold(trace))
    return _prepare(trace, source, watched)


def push_to_heads(trace: Trace, source: str, sites: Sequence[int]) -> Pushforward:
    """From the input of ``source`` to what every head of the ``sites`` averaged."""
    return _prepare(trace, source, _Watched(sites=sites))


def known_stack(trace: Trace, stack: str | None) -> str:
    """The stack asked for, or the one that reads the input."""
    stack = stack or trace.sites[0].stack
    if stack not in trace.sequences:
        raise BadRequestError(f"There is no stack {stack!r}; found {', '.join(trace.sequences)}.")
    return stack


def check_probes(probes: int | None, width: int) -> None:
    """Refuse numbers of probes that say nothing, or more than there are directions."""
    if probes is not None and not 2 <= probes <= width:
        raise BadRequestError(
            f"{probes} probes were asked for; 2 to {width} (the model's width) make sense, and "
            "probes=None is exact."
        )


def positions(trace: Trace, stack: str, special: bool) -> list[int]:
    """The positions of a stack that are not padding nor, unless they are wanted, special."""
    sequence = trace.sequences[stack]
    kept = sequence.real if special else sequence.real & ~sequence.special
    if not bool(kept.any()):
        raise BadRequestError("The text has no tokens of its own; keep the special ones.")
    return [int(place) for place in kept.nonzero()]


@dataclass(frozen=True, eq=False)
class Changes:
    """Every direction at every source token, one after the other."""

    directions: Float[Tensor, "source direction d_model"]
    sources: Sequence[int]
    scale: Float[Tensor, "source d_model"] | None = None

    @classmethod
    def unit(
        cls, entry: Tensor, sources: Sequence[int], probes: int | None, seed: int
    ) -> "Changes":
        """Unit changes: all d of them at every source, or as many random ones as ``probes``."""
        width = entry.shape[-1]
        if probes is not None:
            return cls(orthonormal(len(sources), probes, width, seed), sources)
        return cls(torch.eye(width).expand(len(sources), -1, -1), sources)

    def scaled(self, scale: Float[Tensor, "source d_model"]) -> "Changes":
        """The same changes with every component weighed by what stands at the source."""
        return replace(self, scale=scale)

    def __len__(self) -> int:
        return len(self.sources) * self.directions.shape[1]

    def within(self, run: slice, like: Tensor) -> tuple[Tangents, Int[Tensor, " tangent"]]:
        """The changes of a run as tangents of ``like``, and the source each belongs to."""
        number = torch.arange(run.start, run.stop)
        source, direction = number // self.directions.shape[1], number % self.directions.shape[1]
        places = torch.tensor(self.sources)[source]
        tangents = like.new_zeros(len(number), *like.shape[1:])
        chosen = self.directions[source, direction].to(like)
        weighed = chosen if self.scale is None else chosen * self.scale[source.to(like.device)]
        tangents[torch.arange(len(number)), places] = weighed
        return tangents, source


def orthonormal(
    sources: int, count: int, width: int, seed: int
) -> Float[Tensor, "source direction d_model"]:
    """Random orthonormal directions for every source; the same for the same seed."""
    chance = generator(seed)
    drawn = torch.randn(sources, width, count, generator=chance, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    signs = triangle.diagonal(dim1=1, dim2=2).sign()  # without them the basis is not uniform
    uniform: Tensor = basis * signs.unsqueeze(1)
    return uniform.mT


def lengths_of(vectors: Float[Tensor, "*any width"]) -> Float[Tensor, "*any"]:
    """Euclidean lengths, in float32 at least."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=wide)
    return lengths


@dataclass(frozen=True)
class _Watched:
    """Layer calls whose output is watched, and sites whose averaged values are."""

    calls: Sequence[int] = ()
    sites: Sequence[int] = ()


def _folded_bytes(trace: Trace) -> int:
    """What the matrices of all layers would take: two for each token."""
    states = [hidden_of_output(output) for output in trace.keeping("hidden").layer_outputs]
    return sum(2 * one.numel() * one.shape[-1] * one.element_size() for one in states)


def _prepare(trace: Trace, source: str, watched: _Watched, fold: Fold | None = None) -> Pushforward:
    """Steps 1 and 2, and the checks on them."""
    trace = trace.keeping("hidden")
    entry = trace.stack_inputs[source].detach().clone().requires_grad_()
    with torch.enable_grad():
        plain, _ = _run_from(trace, source, entry, watched)
        outputs, parity = _run_from(trace, source, entry, watched, FirstOrder(), fold)
        chance = generator(0)
        stand_ins = tuple(
            torch.randn(part.shape, generator=chance).to(part).requires_grad_() for part in outputs
        )
        gradient = _transposed(plain, entry, stand_ins)
        del plain
        transposed = _transposed(outputs, entry, stand_ins, create_graph=True)
    probe = torch.randn((2, *entry.shape[1:]), generator=chance).to(entry)
    try:
        pushed = _push(transposed, stand_ins, probe)
    except RuntimeError as problem:
        reason = first_line(problem)
        raise NotComputableError(
            f"{type(trace.subject.model).__name__} has a kernel that cannot be differentiated "
            f"twice, and token mixing needs that: {reason}"
        ) from problem
    gap = _adjoint_gap(gradient, stand_ins, probe, pushed)
    # Norms and softmax often work in float32 whatever the model's dtype is.
    rounding = 1e4 * max(torch.finfo(dtype).eps for dtype in (entry.dtype, torch.float32))
    if not (parity <= trace.subject.anatomy.tolerance and gap <= rounding):
        raise BrokenInvariantError(
            f"{type(trace.subject.model).__name__} does not repeat itself: run again from layer 0 "
            f"its states move by {parity:.2g}, and its derivative forwards differs from that "
            f"backwards by {gap:.2g} (rounding explains {rounding:.1g}). No numbers are given."
        )
    checks = {
        "mode": "forward, by transposing twice" + (", layers folded" if fold else ""),
        "parity": parity,
        "adjoint_gap": gap,
        "dtype": str(entry.dtype)[6:],
    }
    return Pushforward(entry, stand_ins, transposed, checks)


def _run_from(
    trace: Trace,
    source: str,
    entry: Tensor,
    watched: _Watched,
    mode: TorchFunctionMode | None = None,
    fold: Fold | None = None,
) -> tuple[list[Tensor], float]:
    """What is watched in a pass whose stack ``source`` starts from ``entry``; and its parity."""
    model, heads = trace.subject.model, _Heads(watched.sites)
    first = next(call for call, layer in enumerate(trace.layers) if layer.stack == source)
    last = max([*watched.calls, *(trace.sites[site].call for site in watched.sites)])
    states: list[Tensor] = []

    def watch(forward: Forward) -> Forward:
        def layer(*args: Any, **kwargs: Any) -> Any:
            if len(states) == first:
                args, kwargs = _starting_from(entry, args, kwargs)
            if fold is None:
                output = forward(*args, **kwargs)
            else:
                output = fold.through(len(states), forward, args, kwargs)
            states.append(hidden_of_output(output))
            if len(states) > last:
                raise StopEarly
            return output

        return layer

    modules = {layer.module: model.get_submodule(layer.module) for layer in trace.layers}
    with (
        suppress(StopEarly),
        frozen_eval(model),
        mode or nullcontext(),
        trace.subject.tapping(fold or heads),
        wrap_forward(list(modules.values()), watch),
    ):
        model(**trace.inputs)
    pairs = zip(states, map(hidden_of_output, trace.layer_outputs), strict=False)
    parity = max(float((now.detach() - then).abs().amax()) for now, then in pairs)
    return [
        *(states[call] for call in watched.calls),
        *(heads.seen[site] for site in watched.sites),
    ], parity


class _Heads(Tap):
    """Keeps the averaged values of the sites that are watched."""

    def __init__(self, sites: Sequence[int]) -> None:
        self.sites = sites
        self.seen: dict[int, Tensor] = {}

    def result(self, call: AttentionCall, context: Context) -> None:
        """Remember what the heads averaged."""
        if call.site in self.sites:
            self.seen[call.site] = context


def _starting_from(
    entry: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A layer's arguments with ``entry`` in the place of its hidden states."""
    given = first_hidden(args, kwargs)
    return (
        tuple(entry if arg is given else arg for arg in args),
        {name: entry if arg is given else arg for name, arg in kwargs.items()},
    )


def _transposed(
    outputs: list[Tensor], entry: Tensor, stand_ins: tuple[Tensor, ...], create_graph: bool = False
) -> Float[Tensor, "batch token d_model"]:
    """g(u); outputs that ``entry`` does not reach have no part in it."""
    pairs = zip(outputs, stand_ins, strict=True)
    reached = [(part, stand_in) for part, stand_in in pairs if part.requires_grad]
    if not reached:
        raise NotComputableError("Nothing that is asked for depends on these tokens.")
    parts, cotangents = zip(*reached, strict=True)
    (found,) = torch.autograd.grad(parts, entry, cotangents, create_graph=create_graph)
    return found


def _push(
    transposed: Tensor, stand_ins: tuple[Tensor, ...], tangents: Tangents
) -> list[EachPushed]:
    def push(tangent: Tensor) -> tuple[Tensor, ...]:
        every = tangent.expand_as(transposed)
        return torch.autograd.grad(
            transposed, stand_ins, every, retain_graph=True, materialize_grads=True
        )

    return list(side_by_side(push, tangents))


def _adjoint_gap(
    gradient: Tensor, stand_ins: tuple[Tensor, ...], probe: Tangents, pushed: list[Tensor]
) -> float:
    """How far ⟨Jᵀu, v⟩ is from ⟨u, Jv⟩, relative to the size of the vectors."""
    backwards = (gradient.double().sum(0) * probe.double()).sum((1, 2))
    terms = [
        (stand_in.detach().double() * part.double()).flatten(1)
        for stand_in, part in zip(stand_ins, pushed, strict=True)
    ]
    forwards = torch.stack([term.sum(1) for term in terms]).sum(0)
    size = torch.stack([term.square().sum(1) for term in terms]).sum(0).sqrt()
    return float(((backwards - forwards).abs() / size.clamp_min(1e-30)).amax())
