"""What went from layer to layer?

A hidden state is the input of the next layer and, after the last layer, the output of that one. It
is not always what the layer before returned: a hook may change it on its way, and some models put
a convolution between two layers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from exhibit_a.subject.anatomy import Layer, first_hidden
from exhibit_a.subject.guard import Forward, StopEarly, here_only, hooked
from exhibit_a.subject.packing import side_by_side, wrap_layers


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
