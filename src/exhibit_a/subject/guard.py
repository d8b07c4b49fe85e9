"""How do we work on a model that is not ours and leave no trace?

Every change is a context manager whose undoing stands in the same function, so that a model is as
it was after every call, and after every exception.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

Forward = Callable[..., Any]


class StopEarly(Exception):  # noqa: N818 - it is not an error
    """Everything that was wanted of a pass has been seen; the rest of the model need not run."""


_turns: "WeakKeyDictionary[nn.Module, threading.RLock]" = WeakKeyDictionary()
_asking = threading.Lock()


@contextmanager
def frozen_eval(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients for weights inside the block; everything as before after it.

    What is changed belongs to the model, not to the thread, so threads take turns; whoever has the
    turn may begin another block inside its own. Enter this before any other change to the model.
    """
    with _turn(model):
        training = [(part, part.training) for part in model.modules() if part.training]
        wanting = [weight for weight in model.parameters() if weight.requires_grad]
        try:
            for part, _ in training:
                part.training = False
            for weight in wanting:
                weight.requires_grad_(False)
            yield
        finally:
            for part, was in training:
                part.training = was
            for weight in wanting:
                weight.requires_grad_(True)


def _turn(model: nn.Module) -> "threading.RLock":
    with _asking:
        return _turns.setdefault(model, threading.RLock())


@contextmanager
def wrap_forward(
    modules: Sequence[nn.Module], wrap: Callable[[Forward], Forward]
) -> Iterator[None]:
    """Wrap the ``forward`` of each module while the block runs.

    A module may carry a ``forward`` of its own (accelerate puts one there); it is put back.
    """
    own = [vars(module).get("forward") for module in modules]
    try:
        for module in modules:
            module.forward = wrap(module.forward)
        yield
    finally:
        for module, forward in zip(modules, own, strict=True):
            if forward is not None:
                module.forward = forward
            elif "forward" in vars(module):
                del module.forward


@contextmanager
def hooked(handles: Sequence[Any]) -> Iterator[None]:
    """Keep torch hooks while the block runs."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def without_padding(model: PreTrainedModel) -> Iterator[None]:
    """Let rows of one length share a batch also in classifiers that know no padding token.

    They look for the last token that is not padding and refuse to, where they know of none. An id
    that no text has lets them find the true last one, which is what they take for a single text.
    """
    config = model.config.get_text_config()
    nameless = getattr(config, "pad_token_id", 0) is None
    try:
        if nameless:
            config.pad_token_id = -1
        yield
    finally:
        if nameless:
            config.pad_token_id = None


def without_cache(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs that make no key-value cache: it would grow each time a layer is entered again."""
    accepts = inspect.signature(model.forward).parameters
    return {**inputs, "use_cache": False} if "use_cache" in accepts else inputs


def floating(tree: Any) -> list[Tensor]:
    """Every floating-point tensor of a model's output, in a fixed order."""
    leaves = tree_leaves(dict(tree) if isinstance(tree, dict) else tree)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
