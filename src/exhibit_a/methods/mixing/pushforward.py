"""Computes how everything in a model changes when one of its input tokens changes (forward mode).

A change is a direction at one token of a stack's input. The exact mode takes all d directions at
every token; a sketch takes a few random ones, the probes, which are orthonormal at every token.
Padding is never changed and never looked at; special tokens are both unless they are left out.

What a change does is a Jacobian times a vector: forward mode. Few models offer it (kernels lack the
rule, tracing takes seconds), but all can be differentiated backwards, and transposing twice is
forward mode:

1. The model runs again from x, the input of a stack's first layer. Whatever is watched (hidden
   states, head outputs) is recorded on the way; what comes after the last of them is not run.
   Curved kernels are replaced by their tangents and, where many changes are to be pushed, what
   follows attention in a layer by matrices (``folding.py``).
2. Backwards once: g(u) = Σₖ Jₖᵀuₖ, with one stand-in uₖ for every watched output k; g is linear.
3. Backwards through g: along a change v of x it gives Jₖv, for every k in one pass and for many v
   at a time (vmap). Thanks to step 1 only products and sums occur there.
4. Before any number is used, the pass of step 1 must give the states that were recorded, and
   ⟨Σₖ Jₖᵀuₖ, v⟩, from an ordinary gradient, must be Σₖ⟨uₖ, Jₖv⟩.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.overrides import TorchFunctionMode

from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError, first_line
from exhibit_a.methods.mixing.folding import FirstOrder, Fold, side_by_side
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Context
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.guard import Forward, StopEarly, frozen_eval
from exhibit_a.subject.packing import wrap_layers
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.passes import Pass, hidden_of_output

Tangents = Float[Tensor, "tangent token d_model"]

ROWS = 1024  # tangents × tokens in one pass: the widest activations still fit into a CPU's cache
FOLDED_BYTES = 2**30  # what matrices in the place of layers may take

Pushed = Float[Tensor, "tangent ..."]


@dataclass(frozen=True, eq=False)
class Changes:
    """Every direction at every source token, one after the other."""

    directions: Float[Tensor, "source direction d_model"]
    sources: Sequence[int]
    scale: Float[Tensor, "source d_model"] | None = None

    def scaled(self, scale: Float[Tensor, "source d_model"]) -> "Changes":
        """The same changes with every component multiplied by what stands at the source."""
        return replace(self, scale=scale)

    def __len__(self) -> int:
        return len(self.sources) * self.directions.shape[1]

    def within(self, run: slice, like: Tensor) -> tuple[Tangents, Int[Tensor, " tangent"]]:
        """The changes of a run as tangents of ``like``, and the source each belongs to."""
        number = torch.arange(run.start, run.stop)
        source, direction = number // self.directions.shape[1], number % self.directions.shape[1]
        places = torch.tensor(self.sources)[source]
        tangents = like.new_zeros(len(number), *like.shape[1:])
        unit = self.directions[source, direction].to(like)
        scaled = unit if self.scale is None else unit * self.scale[source.to(like.device)]
        tangents[torch.arange(len(number)), places] = scaled
        return tangents, source


@dataclass(frozen=True)
class Probing:
    """How the changes are chosen: all of them without ``probes``, else as many random ones."""

    probes: int | None
    seed: int = 0
    special: bool = True  # whether special tokens take part

    @property
    def exact(self) -> bool:
        """Whether all directions are pushed."""
        return self.probes is None

    def check(self, width: int) -> None:
        """Refuse a number of probes that says nothing, or exceeds the number of directions."""
        if self.probes is not None and not 2 <= self.probes <= width:
            raise BadRequestError(
                f"{self.probes} probes were requested; 2 to {width} (the model's width) make "
                "sense, and probes=None is exact."
            )

    def positions(self, trace: Trace, stack: str) -> list[int]:
        """The positions of a stack that take part."""
        sequence = trace.sequences[stack]
        kept = sequence.real if self.special else sequence.real & ~sequence.special
        if not bool(kept.any()):
            raise BadRequestError("The text has none but special tokens; use special=True.")
        return [int(place) for place in kept.nonzero()]

    def changes(self, entry: Tensor, sources: Sequence[int]) -> Changes:
        """Unit changes of ``entry``, the input of a stack, at every source."""
        width = entry.shape[-1]
        if self.probes is None:
            return Changes(torch.eye(width).expand(len(sources), -1, -1), sources)
        return Changes(orthonormal(len(sources), self.probes, width, self.seed), sources)

    @property
    def used_seed(self) -> int | None:
        """The seed, if anything depends on it: without probes nothing does."""
        return None if self.exact else self.seed

    def checks(self, **measured: float) -> dict[str, float | str]:
        """How the changes were chosen, around what was measured with them."""
        return {
            "probes": "all" if self.probes is None else self.probes,
            **measured,
            "padding": "excluded",
            "special_tokens": "kept" if self.special else "excluded",
        }


def orthonormal(
    sources: int, count: int, width: int, seed: int
) -> Float[Tensor, "source direction d_model"]:
    """Random orthonormal directions for every source; the same for the same seed."""
    drawn = torch.randn(sources, width, count, generator=generator(seed), dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    signs = triangle.diagonal(dim1=1, dim2=2).sign()  # without them the basis is not uniform
    uniform: Tensor = basis * signs.unsqueeze(1)
    return uniform.mT


@dataclass(frozen=True, eq=False)
class Pushforward:
    """Derivatives of watched outputs along changes of one stack's input."""

    entry: Float[Tensor, "1 token d_model"]
    stand_ins: tuple[Tensor, ...]
    transposed: Float[Tensor, "1 token d_model"]  # g(u), with its graph
    parity: float  # how far the states differ from those that were recorded
    adjoint_gap: float  # how far derivatives forwards differ from those backwards
    folded: bool

    @property
    def checks(self) -> dict[str, float | str]:
        """How the derivatives were computed, and how well they passed step 4."""
        return {
            "mode": "forward, by transposing twice" + (", layers folded" if self.folded else ""),
            "parity": self.parity,
            "adjoint_gap": self.adjoint_gap,
            "dtype": str(self.entry.dtype).removeprefix("torch."),
        }

    def __call__(self, tangents: Tangents) -> list[Pushed]:
        """Jₖv for every watched output k and every tangent v."""
        pushed = _push(self.transposed, self.stand_ins, tangents)
        return [derivative.squeeze(1) for derivative in pushed]

    def chunks(self, count: int) -> Iterator[slice]:
        """Runs of as many tangents as are best pushed together."""
        size = max(1, ROWS // self.entry[..., 0].numel())
        yield from (slice(start, min(start + size, count)) for start in range(0, count, size))


def push_to_layers(run: Pass, source: str, stack: str, *, many: bool = False) -> Pushforward:
    """From the input of ``source`` to the output of every layer of ``stack``.

    With ``many`` changes to push, layers are folded into matrices where that is possible.
    """
    calls = [call for call, layer in enumerate(run.layers) if layer.stack == stack]
    watched = _Watched(calls)
    if many and _folded_bytes(run) <= FOLDED_BYTES:
        with suppress(BrokenInvariantError):  # a layer cannot be folded: all stay as they are
            return _prepare(run, source, watched, Fold(run))
    return _prepare(run, source, watched)


def push_to_heads(run: Pass, source: str, sites: Sequence[int]) -> Pushforward:
    """From the input of ``source`` to what every head of the ``sites`` averaged."""
    return _prepare(run, source, _Watched(sites=sites))


def push_to_all(run: Pass) -> Pushforward:
    """From the input of a model's only stack to every layer's output and what every head averaged.

    The outputs of layers come first, those of sites after them.
    """
    (stack,) = {layer.stack for layer in run.layers}
    sites = [site.index for site in run.sites]
    return _prepare(run, stack, _Watched(range(len(run.layers)), sites))


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


def _folded_bytes(run: Pass) -> int:
    """What the matrices of all layers would take: two for each token."""
    states = [hidden_of_output(output) for output in run.keeping("hidden").layer_outputs]
    return sum(2 * state.numel() * state.shape[-1] * state.element_size() for state in states)


def _prepare(run: Pass, source: str, watched: _Watched, fold: Fold | None = None) -> Pushforward:
    """Steps 1 and 2, and the checks of step 4."""
    run.subject.require_gradients()
    run = run.keeping("hidden")
    entry = run.stack_inputs[source].detach().clone().requires_grad_()
    with torch.enable_grad():
        plain, _ = _run_from(run, source, entry, watched)
        outputs, parity = _run_from(run, source, entry, watched, FirstOrder(), fold)  # step 1
        chance = generator(0)
        stand_ins = tuple(
            torch.randn(output.shape, generator=chance).to(output).requires_grad_()
            for output in outputs
        )
        gradient = _transposed(plain, entry, stand_ins)
        del plain
        transposed = _transposed(outputs, entry, stand_ins, create_graph=True)  # step 2
    # step 4, by step 3 for two random changes
    probe = torch.randn((2, *entry.shape[1:]), generator=chance).to(entry)
    try:
        pushed = _push(transposed, stand_ins, probe)
    except RuntimeError as problem:
        reason = first_line(problem)
        raise NotComputableError(
            f"{type(run.subject.model).__name__} has a kernel that cannot be differentiated "
            f"twice, and token mixing needs that: {reason}"
        ) from problem
    # The adjoint gap: how far ⟨Jᵀu, v⟩ is from ⟨u, Jv⟩, relative to the size of the vectors.
    backwards = (to_float64(gradient).sum(0) * to_float64(probe)).sum((1, 2))
    terms = [
        (to_float64(stand_in.detach()) * to_float64(derivative)).flatten(1)
        for stand_in, derivative in zip(stand_ins, pushed, strict=True)
    ]
    forwards = torch.stack([term.sum(1) for term in terms]).sum(0)
    size = torch.stack([term.square().sum(1) for term in terms]).sum(0).sqrt()
    gap = float(((backwards - forwards).abs() / size.clamp_min(1e-30)).amax())
    # Norms and softmax often work in float32 whatever the model's dtype is.
    rounding = 1e4 * max(torch.finfo(dtype).eps for dtype in (entry.dtype, torch.float32))
    if not (parity <= run.subject.anatomy.tolerance and gap <= rounding):
        raise BrokenInvariantError(
            f"{type(run.subject.model).__name__} does not repeat itself: run again from layer 0 "
            f"its states move by {parity:.2g}, and its derivative forwards differs from that "
            f"backwards by {gap:.2g} (rounding explains {rounding:.1g}). No numbers are given."
        )
    return Pushforward(entry, stand_ins, transposed, parity, gap, folded=fold is not None)


def _run_from(
    run: Pass,
    source: str,
    entry: Tensor,
    watched: _Watched,
    mode: TorchFunctionMode | None = None,
    fold: Fold | None = None,
) -> tuple[list[Tensor], float]:
    """What is watched in a pass whose stack ``source`` starts from ``entry``; and its parity."""
    model, heads = run.model, _HeadRecorder(watched.sites)
    first = next(call for call, layer in enumerate(run.layers) if layer.stack == source)
    last = max([*watched.calls, *(run.sites[site].call for site in watched.sites)])
    states: list[Tensor] = []

    def watch(forward: Forward) -> Forward:
        def layer(*args: object, **kwargs: object) -> object:
            if len(states) == first:
                before = first_hidden(args, kwargs)
                args = tuple(entry if arg is before else arg for arg in args)
                kwargs = {name: entry if arg is before else arg for name, arg in kwargs.items()}
            if fold is None:
                output = forward(*args, **kwargs)
            else:
                output = fold.through(len(states), forward, args, kwargs)
            states.append(hidden_of_output(output))
            if len(states) > last:
                raise StopEarly
            return output

        return layer

    modules = {layer.module: model.get_submodule(layer.module) for layer in run.layers}
    with (
        suppress(StopEarly),
        frozen_eval(model),
        mode or nullcontext(),
        run.subject.tapping(fold or heads),
        wrap_layers(list(modules.values()), watch),
    ):
        model(**run.inputs)
    pairs = zip(states, map(hidden_of_output, run.layer_outputs), strict=False)
    parity = max(float((now.detach() - then).abs().amax()) for now, then in pairs)
    return [
        *(states[call] for call in watched.calls),
        *(heads.contexts[site] for site in watched.sites),
    ], parity


class _HeadRecorder(Tap):
    """Keeps the averaged values of the sites that are watched."""

    def __init__(self, sites: Sequence[int]) -> None:
        self.sites = sites
        self.contexts: dict[int, Tensor] = {}

    def result(self, call: AttentionCall, context: Context) -> None:
        """Remember what the heads averaged."""
        if call.site in self.sites:
            self.contexts[call.site] = context


def _transposed(
    outputs: list[Tensor], entry: Tensor, stand_ins: tuple[Tensor, ...], create_graph: bool = False
) -> Float[Tensor, "1 token d_model"]:
    """g(u); outputs that ``entry`` does not reach have no part in it."""
    pairs = zip(outputs, stand_ins, strict=True)
    pairs_reached = [(output, stand_in) for output, stand_in in pairs if output.requires_grad]
    if not pairs_reached:
        raise NotComputableError("Nothing that is requested depends on these tokens.")
    reached, cotangents = zip(*pairs_reached, strict=True)
    (transposed,) = torch.autograd.grad(reached, entry, cotangents, create_graph=create_graph)
    return transposed


def _push(
    transposed: Tensor, stand_ins: tuple[Tensor, ...], tangents: Tangents
) -> list[Float[Tensor, "tangent 1 ..."]]:
    """Step 3: Jₖv for every tangent v."""

    def push(tangent: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            transposed,
            stand_ins,
            tangent.expand_as(transposed),
            retain_graph=True,
            materialize_grads=True,
        )

    return list(side_by_side(push, tangents))
