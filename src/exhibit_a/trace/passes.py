"""One run of the model, and what was kept of it.

A ``Pass`` is a run over some rows: what went in, what came out, and what every attention call and
every layer call did, as far as it was to be kept. A ``Trace`` is a pass over one text, whose
positions have names; a ``Batch`` is a pass over several, padded to one length. Both can be
replayed, and both raise an error when they are requested something that was not kept.

A hidden state is the input of the next layer and, after the last layer, the output of that one. It
is not always what the layer before returned: a hook may change it on its way, and some models put
a convolution between two layers.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.shapes import Inputs, Options
from exhibit_a.subject.anatomy import Layer, Site, first_hidden, output_weight
from exhibit_a.subject.guard import Forward, StopEarly, floating, frozen_eval, here_only, hooked
from exhibit_a.subject.packing import side_by_side, wrap_layers
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap, shared_to_all
from exhibit_a.subject.weights import Stamp, weights_stamp

KEEPABLE = ("attention", "values", "hidden", "queries", "keys")
LATER = "logits_to_keep"  # what transformers calls the number of answers at the end
AT_SITES = ("attention", "values", "queries", "keys")

Kind = TypeVar("Kind", bound="Pass")
AtSites = dict[str, Sequence[Tensor | None]]  # by name, then by site, with rows in front


@dataclass(frozen=True)
class PartialPass:
    """What is known of a pass of which only some rows were kept."""

    rows: tuple[int, ...]  # positions in the stack that answers
    stack: str
    sizes: tuple[tuple[int, int], ...]  # queries and keys of every site
    parity: float  # largest difference to the kernel's averages, of the largest average
    kernels: tuple[str, ...]  # fused kernels that ran; none where maps were formed and cut
    captured: tuple[int, ...] | None = None  # rows these were cut from; none: all; None: not cut


@dataclass(frozen=True, eq=False)
class Pass(ABC):
    """One run over some rows, remembered."""

    subject: Subject
    inputs: Inputs
    sites: tuple[Site, ...]
    layers: tuple[Layer, ...]
    output: Any
    keep: tuple[str, ...]
    at_sites: AtSites = field(repr=False)
    layer_inputs: tuple[Tensor | None, ...] = field(repr=False)  # states each layer call was given
    layer_outputs: tuple[Any, ...] = field(repr=False)  # what it returned, as replay returns it
    stack_outputs: dict[str, Tensor] = field(repr=False)  # the output of each stack's last layer
    weights: Stamp = field(repr=False)  # of the model, when it ran
    partial: PartialPass | None = field(
        default=None, kw_only=True
    )  # where only some rows were kept
    texts: Int[Tensor, " row"] | None = field(default=None, kw_only=True)  # of picked rows
    first_logit: int = field(default=0, kw_only=True)  # position of the first answer it gives

    @property
    def model(self) -> PreTrainedModel:
        """The model, to compute the rest of this pass with; it must be what it was."""
        self.require_same_weights()
        return self.subject.model

    def require_same_weights(self) -> None:
        """Refuse to go on with other weights than those that were run."""
        if weights_stamp(self.subject.model) != self.weights:
            raise BadRequestError(
                f"The weights of {self.subject.name} were changed after this pass, and what was "
                "kept of it belongs to the old ones; capture the text again."
            )

    @property
    def fused(self) -> bool:
        """Whether the model ran on its own fused kernels, and is to do so again."""
        return self.partial is not None and bool(self.partial.kernels)

    @property
    def stack_inputs(self) -> dict[str, Tensor]:
        """The states that the first layer of each stack was given."""
        self.require("hidden")
        inputs: dict[str, Tensor] = {}
        for layer, states in zip(self.layers, self.layer_inputs, strict=True):
            if states is not None:
                inputs.setdefault(layer.stack, states)
        return inputs

    def require(self, *what: str) -> None:
        """Refuse to go on without what was not kept."""
        for name in what:
            if name not in self.keep:
                raise BadRequestError(
                    f'The {name} of this pass were not kept: capture with keep=("{name}", …), or '
                    f'run it again with .keeping("{name}").'
                )

    def at(self, name: str) -> Sequence[Tensor | None]:
        """What was kept of every attention call under ``name``, with rows in front."""
        self.require(name)
        return self.at_sites[name]

    def keeping(self: Kind, *what: str) -> Kind:
        """This pass with ``what`` kept too; the model is run again when it was not."""
        missing = [name for name in what if name not in self.keep]
        return self.rerun((*self.keep, *missing)) if missing else self

    @abstractmethod
    def rerun(self: Kind, keep: tuple[str, ...]) -> Kind:
        """The same rows, run once more."""

    def output_weight(self, site: int) -> Tensor | None:
        """The output projection as each head of a site meets it, where it was found."""
        return output_weight(self.model, self.sites[site])

    def output_weights(self) -> list[Tensor | None]:
        """The same of all sites; that the model is as it was is looked at once."""
        model = self.model
        return [output_weight(model, site) for site in self.sites]


class Recorder(Tap):
    """Keeps what was requested of every attention call."""

    fused = False  # whether the model may run on its fused kernels meanwhile

    def __init__(self, keep: Iterable[str]) -> None:
        self.kept: dict[str, list[Tensor | None]] = {n: [] for n in AT_SITES if n in tuple(keep)}

    def weighting(self, call: AttentionCall) -> None:
        """Remember the call."""
        for name, calls in self.kept.items():
            recorded: Tensor | None
            if name == "attention":
                recorded = call.probs
            elif name == "values":
                recorded = call.values
            elif name == "queries":
                recorded = call.query
            else:
                recorded = (
                    None if call.key is None else shared_to_all(call.key, call.probs.shape[1])
                )
            calls.append(recorded)

    def at_sites(self) -> AtSites:
        """What was kept, by name and site."""
        return {name: tuple(calls) for name, calls in self.kept.items()}


@torch.no_grad()
def run_pass(
    subject: Subject,
    inputs: Inputs,
    recorder: Recorder,
    keep: tuple[str, ...],
    active: tuple[Sequence[Site], Sequence[Layer]] | None = None,
) -> Options:
    """Run the model once past a recorder: the fields of a `Pass`, by name.

    ``active`` are the sites and layers that this input uses, if not those of the anatomy.
    """
    sites, layers = active or (subject.anatomy.sites, subject.anatomy.layers)
    recorded = LayerRecorder()
    watched = layers if "hidden" in keep else ()
    with (
        frozen_eval(subject.model),
        subject.tapping(recorder, fused=recorder.fused),
        recorded.watching(subject.model, watched),
    ):
        output = subject.model(**inputs)
    require_finite(output)
    return {
        "subject": subject,
        "inputs": inputs,
        "sites": tuple(sites),
        "layers": tuple(layers),
        "output": output,
        "keep": keep,
        "at_sites": recorder.at_sites(),
        "layer_inputs": tuple(recorded.inputs),
        "layer_outputs": tuple(recorded.outputs),
        "weights": weights_stamp(subject.model),
        "stack_outputs": recorded.stack_outputs(layers),
    }


def leaves_answers_out(subject: Subject) -> bool:
    """Whether the model can give its later answers alone."""
    return LATER in inspect.signature(subject.model.forward).parameters


def require_finite(output: object) -> None:
    """Refuse an answer with which nothing can be computed."""
    # A sum shows it, unless it overflows, in a tenth of the time.
    if not all(tensor.sum().isfinite() or tensor.isfinite().all() for tensor in floating(output)):
        raise BrokenInvariantError(
            "The model's answer to this input is NaN or infinite; no numbers are given for it."
        )


def checked_keep(keep: Iterable[str]) -> tuple[str, ...]:
    """What is to be kept, each once, and nothing that cannot be."""
    names = (keep,) if isinstance(keep, str) else tuple(dict.fromkeys(keep))
    unknown = [name for name in names if name not in KEEPABLE]
    if unknown:
        raise BadRequestError(f"Cannot keep {unknown[0]!r}; choose from {', '.join(KEEPABLE)}.")
    return names


class LayerRecorder:
    """Remembers the layer calls of one pass, in their order, and stops it after ``enough``."""

    def __init__(self, enough: int | None = None) -> None:
        self.enough = enough
        self.inputs: list[Tensor | None] = []  # the states each layer call was given
        self.outputs: list[object] = []  # whatever it returned
        self.states: list[Tensor] = []  # the states in its output, after every hook

    @contextmanager
    def watching(self, model: PreTrainedModel, layers: Sequence[Layer]) -> Iterator[None]:
        """Remember the calls of these layers while the block runs."""
        modules = [model.get_submodule(name) for name in {layer.module: 0 for layer in layers}]
        # Hooks run in the order they were registered: ours is last and sees what the others made.
        handles = [module.register_forward_hook(here_only(self._returned)) for module in modules]
        with hooked(handles), wrap_layers(modules, self._remember):
            yield

    def stack_outputs(self, layers: Sequence[Layer]) -> dict[str, Tensor]:
        """What the last layer of each stack gave."""
        pairs = zip(layers, self.states, strict=False)
        return {layer.stack: states for layer, states in pairs}

    def _remember(self, forward: Forward) -> Forward:
        def layer(*args: object, **kwargs: object) -> object:
            self.inputs.append(first_hidden(args, kwargs))
            self.outputs.append(forward(*args, **kwargs))
            return self.outputs[-1]

        return layer

    def _returned(self, _: nn.Module, __: object, output: Any) -> None:
        self.states.append(hidden_of_output(output))
        if len(self.states) == self.enough:
            raise StopEarly


def hidden_of_output(output: Any) -> Tensor:
    """The hidden states in what a layer returned."""
    states: Tensor = output if isinstance(output, Tensor) else output[0]
    return side_by_side(states)


def with_states(output: Tensor | tuple[object, ...], states: Tensor) -> object:
    """What a layer returned, with other hidden states in it."""
    return states if isinstance(output, Tensor) else (states, *output[1:])
