"""Finds out what a model is made of, by watching one forward pass.

Nothing is looked up by name. One forward pass is watched and what happens is written down:

1. an attention call belongs to the outermost item of a ``ModuleList`` that is running: its layer;
   every item of such a list is a layer, and layer *calls* are counted (ALBERT repeats one);
2. a call is cross-attention when its module was given the states of another stack to look at; the
   list that made these states is a stack too, also where nothing attends in it (a recurrent one);
3. a stack of layers is a decoder when a call in it is causal or crosses over, else an encoder;
   where a model is given ids and a picture, a stack whose states are not one for each id is the
   tower that looks at the picture: vision;
4. the output projection is the first Linear or Conv1D that consumes the averaged values unchanged,
   with the heads side by side or added up.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import UnsupportedModelError
from exhibit_a.numerics.precision import to_float64
from exhibit_a.shapes import Context, Inputs
from exhibit_a.subject.anatomy import (
    NO_PRODUCT,
    VISION,
    Args,
    Kwargs,
    Layer,
    Site,
    first_hidden,
    main_stack,
)
from exhibit_a.subject.guard import here_only, hooked
from exhibit_a.subject.packing import side_by_side
from exhibit_a.subject.tap import AttentionCall, Tap, Tapping

_FOREIGN_STATES = ("key_value_states", "encoder_hidden_states")


@torch.no_grad()
def observe(
    model: PreTrainedModel, inputs: Inputs, tapping: Tapping
) -> tuple[tuple[Site, ...], tuple[Layer, ...], int]:
    """Watch one pass: the attention sites, the layer calls, and the width of the hidden states."""
    watcher = _Watcher(model, inputs)
    with watcher.watching(), tapping(model, watcher):
        model(**inputs)
    if not watcher.sites:
        raise UnsupportedModelError(
            f"{type(model).__name__} computed no attention that this tap can see."
        )
    if watcher.batch_is_not_first:
        raise UnsupportedModelError(
            f"The layers of {type(model).__name__} do not carry (batch, token, width) states, so "
            "its hidden states cannot be read or replayed."
        )
    _require_whole_layers(watcher)
    sites, layers, d_model = _named_stacks(watcher)
    if model.config.is_encoder_decoder and not any(layer.stack == "encoder" for layer in layers):
        raise UnsupportedModelError(
            f"{type(model).__name__} has an encoder whose attention this tap does not see."
        )
    return sites, layers, d_model


def _require_whole_layers(watcher: "_Watcher") -> None:
    """Refuse layers that are spread over several lists: then no module returns their states.

    XLM keeps attention, norms and feed-forward maps in separate lists and goes through them side by
    side; what its attention returns is no hidden state yet.
    """
    lists = [watcher.items[name] for name in watcher.calls]
    for stack in watcher.lists:
        calls = [number for number, name in enumerate(lists) if name == stack]
        for call, following in pairwise(calls):
            between = [name for name in lists[call:following] if name not in watcher.lists]
            if between and not _same(watcher.returned[call], watcher.given[following]):
                raise UnsupportedModelError(
                    f"The layers of {type(watcher.model).__name__} are spread over several lists "
                    f"({stack}, {between[0]}, …), so its hidden states cannot be read."
                )


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    return first is not None and second is not None and torch.equal(first, second)


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """A module that is running, and what it was called with."""

    name: str
    module: nn.Module
    args: Args
    kwargs: Kwargs

    def argument(self, name: str) -> object:
        """An argument by name, however it was passed; None where it was not."""
        forward = inspect.signature(type(self.module).forward)
        arguments = forward.bind_partial(self.module, *self.args, **self.kwargs).arguments
        return arguments.get(name, arguments.get("kwargs", {}).get(name))


class _Watcher(Tap):
    """Remembers which modules are running whenever attention is computed."""

    def __init__(self, model: PreTrainedModel, inputs: Inputs) -> None:
        self.model = model
        self.ids = inputs.get("input_ids") if "pixel_values" in inputs else None
        self.running: list[_Running] = []
        self.calls: list[str] = []  # every module call that may turn out to be a layer,
        self.given: list[Tensor | None] = []  # the states it was given,
        self.returned: list[Tensor | None] = []  # and those it returned
        self.sites: list[Site] = []
        self.lists: set[str] = set()  # the module lists in which attention happened, or looked at
        self.open: tuple[int, Tensor] | None = None  # a context that no module has consumed yet
        self.widths: dict[str, int] = {}  # of the states, by module list
        self.of_pictures: dict[str, None] = {}  # the lists whose states are not one for each id
        self.batch_is_not_first = False
        self.items = {
            f"{name}.{child}": name
            for name, module in model.named_modules()
            if isinstance(module, nn.ModuleList)
            for child, _ in module.named_children()
        }

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        for name, module in self.model.named_modules():
            enter = here_only(self._entering(name))
            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(here_only(self._leaving), always_call=True))
        with hooked(handles):
            yield

    def _entering(self, name: str) -> Callable[[nn.Module, Args, Kwargs], None]:
        def enter(module: nn.Module, args: Args, kwargs: Kwargs) -> None:
            if name in self.items and self._layer() is None:
                self.calls.append(name)
                self.given.append(first_hidden(args, kwargs))
            self.running.append(_Running(name, module, args, kwargs))
            if self.open is not None and isinstance(module, nn.Linear | Conv1D) and args:
                index, context = self.open  # this Linear may consume it
                if isinstance(args[0], Tensor) and _consumes(args[0], context):
                    site = replace(self.sites[index], projection=name, projection_problem=None)
                    self.sites[index], self.open = site, None

        return enter

    def _leaving(self, _: nn.Module, __: object, output: object) -> None:
        left = self.running.pop()
        if left.name in self.items and self._layer() is None:
            states = output[0] if isinstance(output, tuple) else output
            self.returned.append(side_by_side(states) if isinstance(states, Tensor) else None)

    def _layer(self) -> "_Running | None":
        """The outermost item of a module list that is running."""
        return next((module for module in self.running if module.name in self.items), None)

    def result(self, call: AttentionCall, context: Context) -> None:
        """Write the site down; which module consumes the context is found next."""
        self.open = (call.site, context)
        layer, attention = self._layer(), self.running[-1]
        if layer is None:
            raise UnsupportedModelError(
                f"{type(self.model).__name__} attends outside any list of layers, in "
                f"{attention.name!r}; what a layer is cannot be observed there."
            )
        stack = self.items[layer.name]
        self.lists.add(stack)
        hidden = first_hidden(layer.args, layer.kwargs)
        if hidden is not None:
            self.widths.setdefault(stack, hidden.shape[-1])
            self.batch_is_not_first |= hidden.shape[0] != call.probs.shape[0]
            if self.ids is not None and hidden.shape[:2] != self.ids.shape:
                self.of_pictures[stack] = None
        foreign = [attention.argument(name) for name in _FOREIGN_STATES]
        crossing = any(states is not None for states in foreign)
        # The list whose states are looked at counts among the stacks.
        for states in foreign:
            for name, made in zip(self.calls, self.returned, strict=False):
                if made is not None and made is states:
                    self.lists.add(self.items[name])
                    self.widths.setdefault(self.items[name], made.shape[-1])
        causal, window = causal_and_window(call)
        self.sites.append(
            Site(
                index=call.site,
                layer=-1,
                call=len(self.calls) - 1,
                stack=stack,
                kind="cross" if crossing else "self",
                heads=call.probs.shape[1],
                kv_heads=call.value.shape[1],
                d_head=call.value.shape[3],
                d_query=None if call.query is None else call.query.shape[3],
                causal=causal and not crossing,
                window=None if crossing else window,
                variants=_variants(call),
                module=attention.name,
                projection=None,
                projection_problem="no Linear or Conv1D takes the averaged values as they are "
                "(a gate, a norm or another product stands between)",
            )
        )


def _consumes(states: Tensor, context: Context) -> bool:
    """Whether states are the context, its heads side by side or added up."""
    if states.numel() == context.numel():
        return torch.equal(context.transpose(1, 2).reshape(states.shape), states)
    if states.numel() * context.shape[1] == context.numel():
        added = context.sum(1).reshape(states.shape)
        return torch.allclose(added, states, rtol=1e-5, atol=1e-6 * float(context.abs().amax()))
    return False


def _named_stacks(watcher: _Watcher) -> tuple[tuple[Site, ...], tuple[Layer, ...], int]:
    """Call every module list with attention by what it does, and number its layers."""
    decoders = {site.stack for site in watcher.sites if site.causal or site.kind == "cross"}
    if watcher.of_pictures and watcher.model.can_generate():
        decoders |= watcher.lists  # the text may be read as a whole before an answer is decoded
    towers = {
        name: f"{VISION} {number}" if number > 1 else VISION
        for number, name in enumerate(watcher.of_pictures, 1)
    }
    kept = [
        (i, name) for i, name in enumerate(watcher.calls) if watcher.items[name] in watcher.lists
    ]
    number = {old: new for new, (old, _) in enumerate(kept)}
    layers: list[Layer] = []
    for _, name in kept:
        usual = "decoder" if watcher.items[name] in decoders else "encoder"
        stack = towers.get(watcher.items[name], usual)
        layers.append(Layer(name, stack, sum(layer.stack == stack for layer in layers)))
    sites = tuple(
        replace(
            site,
            call=number[site.call],
            stack=layers[number[site.call]].stack,
            layer=layers[number[site.call]].index,
        )
        for site in watcher.sites
    )
    main = main_stack(sites)
    lists = [watcher.items[layer.module] for layer in layers if layer.stack == main]
    return sites, tuple(layers), next((watcher.widths.get(name, 0) for name in lists), 0)


def causal_and_window(call: AttentionCall) -> tuple[bool, int | None]:
    """Whether queries see only what came before, and how far they see."""
    declared = call.details.get("sliding_window")
    if call.visible is None or call.probs.shape[2] != call.probs.shape[3]:
        return False, declared
    visible = call.visible[0].any(0)
    causal = visible.shape[0] > 1 and not bool(visible.triu(1).any())
    rows, columns = visible.nonzero(as_tuple=True)
    reach = int((rows - columns).amax()) + 1
    return causal, declared or (reach if reach < visible.shape[0] else None)


def _variants(call: AttentionCall) -> tuple[str, ...]:
    """What this attention has besides softmax(QK')V, as far as one call shows."""
    present = {
        "grouped keys": call.value.shape[1] < call.probs.shape[1],
        "soft-cap": call.details.get("softcap") is not None,
        "sinks": not torch.allclose(
            call.probs.float().sum(-1), torch.ones(()).to(call.probs.device), atol=1e-2
        ),
        "position bias": call.details.get("position_bias") is not None or _adds_to_scores(call),
    }
    present[NO_PRODUCT] = not any(present.values()) and _is_no_product(call)
    return tuple(name for name, is_there in present.items() if is_there)


def _is_no_product(call: AttentionCall) -> bool:
    """Whether no scale makes the scores products of queries and keys, as in additive attention."""
    if call.query is None or call.key is None or "scores" in call.details:
        return False
    probs = to_float64(call.probs)
    visible = probs > 0
    seen = _centred(probs.clamp(min=1e-300).log(), visible)
    product = _centred((to_float64(call.query) @ to_float64(call.key).mT).expand_as(seen), visible)
    scale = (seen * product).sum() / (product * product).sum().clamp(min=1e-300)
    return bool((seen - scale * product).norm() > 0.1 * seen.norm())


def _centred(scores: Tensor, visible: Tensor) -> Tensor:
    """Scores without the mean of their row, and zero where nothing is seen."""
    kept = torch.where(visible, scores, 0.0)
    return torch.where(visible, kept - kept.sum(-1, keepdim=True) / visible.sum(-1, True), 0.0)


def _adds_to_scores(call: AttentionCall) -> bool:
    """Whether the scores are more than products of queries and keys times one scale."""
    scores = call.details.get("scores")
    if scores is None or call.query is None or call.key is None or call.visible is None:
        return False
    visible = call.visible.expand_as(scores)
    seen = to_float64(scores[visible])
    product = (to_float64(call.query) @ to_float64(call.key).mT).expand_as(scores)
    product = product[visible.to(product.device)]
    scale = (seen @ product) / (product @ product)
    return bool((seen - scale * product).norm() > 1e-3 * seen.norm())
