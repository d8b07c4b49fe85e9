"""Reaches attention without rewriting any model.

Transformers lets a model look its attention function up by name. We register one name, ours. Our
function runs the family's own eager attention and stops at five points, where a tap may look at
something or replace it:

1. ``scoring``    the queries and keys, before they meet;
2. ``values``     what will be averaged;
3. ``averaged``   the context, if it does not take the model's own probabilities: nothing of what
                  follows is computed then;
4. ``weighting``  the probabilities, and everything that made them;
5. ``result``     the context: one averaged value per head and query.

The name is registered when this module is imported, and stays: to take it out again would break
every thread that is inside. Only callers that ask for it meet it, and even then, without a tap,
it is the family's own eager attention, bit for bit.

A point that returns ``None`` replaces nothing. Families that do not look their attention up are
reached by ``softmax_tap.py``, through all points but the third; ``fused.py`` leaves the model on
its own fused kernel, which never forms the probabilities, and serves all points but the fourth.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import eager_mask

from exhibit_a.errors import UnsupportedModelError
from exhibit_a.shapes import Attention, Context, Options, Queries, SharedKeys, SharedValues, Values
from exhibit_a.subject.packing import borders_inside, unpacking
from exhibit_a.subject.replay_skips import replay_skips
from exhibit_a.subject.weights import every_module

NAME = "exhibit_a"

Scorers = Sequence[tuple[int, int]]  # per site: number of heads and width of a query

MASKED = -1e4  # an added score below this can only be a mask: e^-10000 is 0 in every dtype


@dataclass(frozen=True, slots=True, eq=False)
class AttentionCall:
    """One attention call at the moment its probabilities are known."""

    site: int
    module: nn.Module | None
    query: Queries | None
    key: SharedKeys | None
    value: SharedValues
    probs: Attention
    visible: Bool[Tensor, "#batch #head query key"] | None  # None: every key is visible
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> Values:
        """The values with shared heads repeated, one per query head."""
        return shared_to_all(self.value, self.probs.shape[1])


class Tap:
    """Something that looks into attention; override the points you need."""

    context_only = False  # whether nothing is looked at or replaced but contexts, row by row

    @property
    def gives_contexts(self) -> bool:
        """Whether ``averaged`` gives the context of every site that it acts at."""
        return False

    def acts_at(self, site: int) -> bool:  # noqa: ARG002
        """Whether anything may be looked at or replaced at a site."""
        return True

    @property
    def reads_weights(self) -> bool:
        """Whether the probabilities themselves are requested, which fused kernels do not form."""
        return type(self).weighting is not Tap.weighting

    def scoring(self, site: int, query: Queries, key: SharedKeys) -> tuple[Tensor, Tensor] | None:
        """Look at, or replace, the queries and keys of one call."""

    def values(self, site: int, value: SharedValues) -> SharedValues | None:
        """Look at, or replace, the values of one call."""

    def averaged(self, site: int, value: SharedValues) -> Context | None:
        """Give the context of one call without its probabilities; not called for every layer."""

    def weighting(self, call: AttentionCall) -> Attention | None:
        """Look at, or replace, the probabilities of one call."""

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """Look at, or replace, the averaged values of one call."""


@runtime_checkable
class Tapping(Protocol):
    """A way to show the attention calls of a model to a tap while a block runs."""

    def __call__(
        self, model: PreTrainedModel, tap: Tap, *, first: int = 0, scorers: Scorers = ()
    ) -> AbstractContextManager[None]:
        """Number the calls from ``first``; ``scorers`` is what is known of each call's queries."""


def shared_to_all(shared: Tensor, heads: int) -> Tensor:
    """Repeat key-value heads so that every query head has its own; nothing is copied if it has."""
    groups = heads // shared.shape[1]
    return shared if groups == 1 else shared.repeat_interleave(groups, dim=1)


class _Session:
    """The active tap and how many calls it has seen."""

    def __init__(self, tap: Tap, first: int) -> None:
        self.tap, self.next = tap, first
        self.mask: Tensor | None = None  # the last one, which layers usually share
        self.seen: Tensor | None = None

    def visible(self, mask: Tensor | None) -> Tensor | None:
        """Which keys a mask lets through; the same tensor as long as the mask is the same."""
        if mask is not None and mask is not self.mask:
            self.mask, self.seen = mask, mask > MASKED
        return None if mask is None else self.seen

    def number(self) -> int:
        self.next += 1
        return self.next - 1


_active: ContextVar[_Session | None] = ContextVar("exhibit_a_tap", default=None)


@contextmanager
def registry_tapping(
    model: PreTrainedModel,
    tap: Tap,
    *,
    first: int = 0,
    scorers: Scorers = (),  # noqa: ARG001 - our function is given the queries
) -> Iterator[None]:
    """Show every attention call that goes through the registry to ``tap``."""
    with attention_implementation(model, NAME):
        if built_on(model) != NAME:
            raise UnsupportedModelError(
                f"{type(model).__name__} does not look its attention up in AttentionInterface. "
                'Load it with tap="softmax" instead.'
            )
        with showing(model, tap, first):
            yield


@contextmanager
def showing(model: PreTrainedModel, tap: Tap, first: int) -> Iterator[None]:
    """Number the calls of our registered functions from ``first`` on, and show them to ``tap``."""
    token = _active.set(_Session(tap, first))
    try:
        with unpacking(model):
            yield
    finally:
        _active.reset(token)


@contextmanager
def attention_implementation(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Switch the attention of ``model`` and of every model inside it, and switch each one back."""
    with _as_it_was(model):
        if reads_registry(model):
            model.set_attn_implementation(name)
        elif name != NAME:
            # Some of these families still read the name at every call (Falcon); others ignore it.
            for config in _configs(model):
                config._attn_implementation_internal = name
        yield


@contextmanager
def attention_by_part(
    model: PreTrainedModel, name_of: Callable[[str, PreTrainedModel], str]
) -> Iterator[None]:
    """Give every part of a model the attention that is named for it, and switch each one back.

    Names are written as they are: transformers would take some for those of kernels to download.
    """
    with _as_it_was(model):
        for config, name in [(c, name_of(*part)) for c, part in _attending_parts(model)]:
            config._attn_implementation_internal = name
        yield


def parts_of(model: PreTrainedModel) -> list[tuple[str, PreTrainedModel]]:
    """The attention that every part of a model was built on, and the part."""
    return [part for _, part in _attending_parts(model)]


def _attending_parts(
    model: PreTrainedModel,
) -> list[tuple[PretrainedConfig, tuple[str, PreTrainedModel]]]:
    parts = {id(part.config): part for part in _models_inside(model)}
    return [
        (config, (config._attn_implementation or "eager", parts.get(id(config), model)))
        for config in _configs(model)
    ]


@contextmanager
def _as_it_was(model: PreTrainedModel) -> Iterator[None]:
    """Put back what every part of the model was built on."""
    before = [(config, config._attn_implementation_internal) for config in _configs(model)]
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def reads_registry(model: PreTrainedModel) -> bool:
    """Whether the model says that it looks its attention function up by name."""
    return bool(model._can_set_attn_implementation())


def built_on(model: PreTrainedModel) -> str:
    """The name of the attention that the model uses when it is not tapped."""
    return model.config._attn_implementation or "eager"


def attend(
    module: nn.Module,
    query: Queries,
    key: SharedKeys,
    value: SharedValues,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as the family computes it, with the active tap at its points."""
    given = Operands(query, key, value, attention_mask)
    return serve(eager_function(module), _seen, module, given, kwargs)


class Operands(NamedTuple):
    """What an attention function is given."""

    query: Queries
    key: SharedKeys
    value: SharedValues
    mask: Any  # None, or what the kernel takes; a tensor for eager attention


Kernel = Callable[..., tuple[Tensor, Tensor | None]]
CallOf = Callable[[int, nn.Module, Operands, Tensor | None, Options], AttentionCall]


def serve(
    kernel: Kernel, call_of: CallOf, module: nn.Module, given: Operands, details: Options
) -> tuple[Tensor, Tensor | None]:
    """What ``kernel`` makes of the operands, with the active tap at the points it can have."""
    session = _active.get()
    if session is None:
        return kernel(module, *given, **details)
    spared = replay_skips()
    if spared.known:
        return spared.known.pop(0), None
    site, tap, packing = session.number(), session.tap, borders_inside()
    acts = tap.acts_at(site)
    query, key, value, mask = given
    if packing is not None:
        mask = packing.mask(query)
        query, key, value = map(packing.side_by_side, (query, key, value))

    query, key = tap.scoring(site, query, key) or (query, key)
    if (changed_value := tap.values(site, value)) is not None:
        value = changed_value
    if (given_context := tap.averaged(site, value)) is not None:
        context = _query_first(given_context)
        context = context if packing is None else packing.one_behind_the_other(context)
        spared.attended(context)
        return context, None
    if spared.kept is not None:
        key, value, mask = spared.kept.completed(site, key, value, mask)
    operands = Operands(query, key, value, mask)
    once = spared.sharing and (tap.context_only or not acts)
    if once:
        operands, details = tree_map_only(Tensor, spared.distinct, (operands, details))
    if spared.requested is not None and not acts and call_of is _seen:
        operands, details = _of_rows(operands, details, spared.requested)
    context, probs = kernel(module, *operands, **details)
    call = call_of(site, module, operands, probs, details)

    edited = None if probs is None else tap.weighting(call)
    if edited is not None:
        context = _query_first(edited.to(value.dtype) @ call.values)
    if once:
        context, probs = spared.repeated(context), None
    changed = tap.result(call, context.transpose(1, 2))
    if changed is not None:
        context = _query_first(changed)
    if packing is not None:
        context = packing.one_behind_the_other(context)
    spared.attended(context)
    return context, probs if edited is None else edited


def _of_rows(given: Operands, details: Options, rows: Tensor) -> tuple[Operands, Options]:
    """What eager attention is given, with some of the queries alone."""
    query, key, value, mask = given
    rows, size = rows.to(query.device), (query.shape[2], key.shape[2])

    def some(maps: Tensor) -> Tensor:
        return maps[:, :, rows] if maps.ndim == 4 and maps.shape[-2:] == size else maps

    mask, details = tree_map_only(Tensor, some, (mask, details))
    return Operands(query[:, :, rows], key, value, mask), details


def _seen(
    site: int, module: nn.Module, given: Operands, probs: Tensor | None, details: Options
) -> AttentionCall:
    """An eager call."""
    session = _active.get()
    assert probs is not None
    assert session is not None
    visible = session.visible(given.mask)
    return AttentionCall(site, module, *given[:3], probs, visible, details)


def eager_function(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
    """The eager attention written next to this module's class."""
    for cls in type(module).__mro__:
        eager: Callable[..., tuple[Tensor, Tensor]] | None = getattr(
            sys.modules[cls.__module__], "eager_attention_forward", None
        )
        if eager is not None:
            return eager
    raise UnsupportedModelError(f"No eager attention is defined next to {type(module).__name__}.")


def _configs(model: PreTrainedModel) -> list[PretrainedConfig]:
    """Every configuration that some part of ``model`` reads, each once."""
    configs: dict[int, PretrainedConfig] = {id(model.config): model.config}
    configs |= {id(part.config): part.config for part in _models_inside(model)}
    for config in list(configs.values()):
        for name in config.sub_configs:
            if (inner := getattr(config, name, None)) is not None:
                configs[id(inner)] = inner
    return list(configs.values())


def _models_inside(model: PreTrainedModel) -> list[PreTrainedModel]:
    return [part for part in every_module(model) if isinstance(part, PreTrainedModel)]


def _query_first(context: Context) -> Tensor:
    """The context with queries before heads, the layout that the family expects."""
    return context.transpose(1, 2).contiguous()


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)  # without this, masks silently vanish
