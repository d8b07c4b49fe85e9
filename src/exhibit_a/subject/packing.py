"""Sees patches that are packed into one long sequence as the rows of a batch.

Some vision towers know no batch: the patches of all pictures stand in one sequence (patch, width),
and a list of borders, ``cu_seqlens``, says where one picture or window ends and attention starts
anew. Copies of a text then lie behind one another and not side by side. Here they are put
side by side while we look, and behind one another again for the model:

1. while a tap is active, the number of rows is read from the ids that the model is called with;
2. attention is computed once for each layer, over all borders: rows as a batch, and borders within
   a row as a mask, so that a layer is one site however many pictures or windows there are;
3. layers are wrapped so that whoever looks sees states (row, patch, width).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from exhibit_a.errors import UnsupportedModelError
from exhibit_a.shapes import Inputs
from exhibit_a.subject.guard import Forward, here_only, hooked, wrap_forward
from exhibit_a.subject.weights import every_module

BORDERS = "cu_seqlens"  # what transformers calls them


class Packing:
    """What is known of the pass that runs: how many rows it has, and where sequences end."""

    def __init__(self) -> None:
        self.rows = 1
        self.lengths: list[int] | None = None  # of the sequences, while attention is computed

    def side_by_side(self, heads: Tensor) -> Tensor:
        """(1, head, row · token, width) as (row, head, token, width)."""
        packed = heads[0]
        return packed.reshape(len(packed), self.rows, -1, packed.shape[-1]).transpose(0, 1)

    def one_behind_the_other(self, context: Tensor) -> Tensor:
        """(row, token, head, width) as (1, row · token, head, width)."""
        return context.flatten(0, 1).unsqueeze(0)

    def mask(self, like: Tensor) -> Tensor | None:
        """What keeps the sequences of one row apart, added to scores; None for one sequence."""
        assert self.lengths is not None
        within = self.lengths[: len(self.lengths) // self.rows]
        if within * self.rows != self.lengths:
            raise UnsupportedModelError(
                "The pictures of several texts differ in size; give texts with pictures one by one."
            )
        if len(within) == 1:
            return None
        number = torch.arange(len(within), device=like.device)
        number = number.repeat_interleave(torch.tensor(within, device=like.device))
        apart = number[:, None] != number[None, :]
        mask = torch.zeros(apart.shape, dtype=like.dtype, device=like.device)
        return mask.masked_fill(apart, torch.finfo(like.dtype).min)[None, None]


_packing: ContextVar[Packing | None] = ContextVar("exhibit_a_packing", default=None)


def borders_inside() -> Packing | None:
    """The packing, where the attention that is being computed has several sequences."""
    packing = _packing.get()
    return None if packing is None or packing.lengths is None else packing


@contextmanager
def unpacking(model: PreTrainedModel) -> Iterator[None]:
    """Follow the borders of packed attention while the block runs (steps 1 and 2)."""
    attending = _packed_attention(model)
    if not attending:
        yield
        return
    packing = Packing()

    def count_rows(_: nn.Module, __: object, kwargs: Inputs) -> None:
        ids = kwargs.get("input_ids")
        packing.rows = 1 if ids is None else len(ids)

    def one_sequence(
        _: nn.Module, args: tuple[object, ...], kwargs: Inputs
    ) -> tuple[tuple[object, ...], Inputs] | None:
        borders = kwargs.get(BORDERS)
        if not isinstance(borders, Tensor) or len(borders) < 3:
            return None
        packing.lengths = borders.diff().tolist()
        return args, {**kwargs, BORDERS: borders[[0, -1]]}

    def close(*_: object) -> None:
        packing.lengths = None

    token = _packing.set(packing)
    handles = [model.register_forward_pre_hook(here_only(count_rows), with_kwargs=True)]
    for module in attending:
        handles.append(module.register_forward_pre_hook(here_only(one_sequence), with_kwargs=True))
        handles.append(module.register_forward_hook(here_only(close), always_call=True))
    try:
        with hooked(handles):
            yield
    finally:
        _packing.reset(token)


@contextmanager
def refusing_borders(model: PreTrainedModel) -> Iterator[None]:
    """Refuse packed attention over several sequences, for a tap that would see each as a site."""

    def refuse(_: nn.Module, __: object, kwargs: Inputs) -> None:
        borders = kwargs.get(BORDERS)
        if isinstance(borders, Tensor) and len(borders) > 2:
            raise UnsupportedModelError(
                f"{type(model).__name__} attends to {len(borders) - 1} packed sequences one after "
                'the other, which only tap="registry" can follow.'
            )

    attending = _packed_attention(model)
    with hooked(
        [m.register_forward_pre_hook(here_only(refuse), with_kwargs=True) for m in attending]
    ):
        yield


def side_by_side(states: Tensor) -> Tensor:
    """States of a layer as (row, token, width), also where the model packs its rows."""
    if states.ndim != 2:
        return states
    packing = _packing.get()
    return states.reshape(1 if packing is None else packing.rows, -1, states.shape[-1])


@contextmanager
def wrap_layers(layers: Sequence[nn.Module], wrap: Callable[[Forward], Forward]) -> Iterator[None]:
    """Wrap the ``forward`` of layers; the wrapper sees states (row, token, width) (step 3)."""

    def wrap_unpacked(forward: Forward) -> Forward:
        packed = False

        def inner(*args: object, **kwargs: object) -> object:
            if not packed:
                return forward(*args, **kwargs)
            output = forward(*_changed(args, 3, _flat), **_changed_by_name(kwargs, 3, _flat))
            return tree_map_only(Tensor, side_by_side, output)

        wrapped = wrap(inner)

        def outer(*args: object, **kwargs: object) -> object:
            nonlocal packed
            packed = is_packed(args, kwargs)
            if not packed:
                return wrapped(*args, **kwargs)
            output = wrapped(
                *_changed(args, 2, side_by_side), **_changed_by_name(kwargs, 2, side_by_side)
            )
            return tree_map_only(Tensor, _flat, output)

        return outer

    with wrap_forward(layers, wrap_unpacked):
        yield


def is_packed(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a layer is called with states (row · token, width)."""
    states = args[0] if args else kwargs.get("hidden_states")
    return isinstance(states, Tensor) and states.is_floating_point() and states.ndim == 2


def _changed(
    args: tuple[object, ...], axes: int, change: Callable[[Tensor], Tensor]
) -> tuple[object, ...]:
    """A layer's arguments with its states changed, which come first."""
    if args and isinstance(args[0], Tensor) and args[0].ndim == axes:
        return (change(args[0]), *args[1:])
    return args


def _changed_by_name(kwargs: Inputs, axes: int, change: Callable[[Tensor], Tensor]) -> Inputs:
    states = kwargs.get("hidden_states")
    if isinstance(states, Tensor) and states.ndim == axes:
        return {**kwargs, "hidden_states": change(states)}
    return kwargs


def _flat(states: Tensor) -> Tensor:
    return states.flatten(0, 1) if states.ndim == 3 else states


def _packed_attention(model: PreTrainedModel) -> list[nn.Module]:
    """The innermost modules that are given where sequences end: those attend."""
    packing_modules = [module for module in every_module(model) if _takes_borders(module)]
    return [
        module
        for module in packing_modules
        if not any(_takes_borders(part) for part in module.modules() if part is not module)
    ]


_marks_ends: dict[type, bool] = {}  # whether modules of a class are given where sequences end


def _takes_borders(module: nn.Module) -> bool:
    kind = type(module)
    if kind not in _marks_ends:
        _marks_ends[kind] = BORDERS in inspect.signature(kind.forward).parameters
    return _marks_ends[kind]
