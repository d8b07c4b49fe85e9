"""Changes a model and torch's state for a while, and leaves both exactly as they were.

Every change is a context manager that undoes it in the same function, so that a model is as it was
after every call, and after every exception. Numbers are computed under the state that torch starts
with: no inference mode, no autocast, the default device and number type.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, UnsupportedModelError
from exhibit_a.shapes import Inputs
from exhibit_a.subject.precision import float32_arithmetic
from exhibit_a.subject.weights import every_module

DEVICES = ("cpu", "cuda", "mps", "xpu")  # autocast is switched on for each of them alone


@contextmanager
def default_torch_state() -> Iterator[None]:
    """No inference mode, no autocast, the default device and number type that torch starts with.

    Gradients stay on or off as they are: inference mode has them off.
    """
    with ExitStack() as modes:
        if torch.is_inference_mode_enabled():
            modes.enter_context(torch.inference_mode(False))  # this switches gradients on
            modes.enter_context(torch.no_grad())
        for device in DEVICES:
            if torch.is_autocast_enabled(device):
                modes.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            modes.enter_context(torch.device("cpu"))
        modes.enter_context(_FLOAT32.shared())
        yield


@contextmanager
def method_modes() -> Iterator[None]:
    """The usual modes, with gradients: where a method does not want them it says so itself."""
    with default_torch_state(), torch.enable_grad():
        yield


def require_differentiable(model: nn.Module) -> None:
    """Refuse weights that were made in inference mode: no gradient can ever pass through them."""
    for name, weight in model.named_parameters():
        if weight.is_inference():
            raise BadRequestError(
                f"The weights of {type(model).__name__} ({name}, …) were made inside "
                "torch.inference_mode(), and torch cannot differentiate through such tensors; "
                "build the model outside of it."
            )


def require_one_device(model: nn.Module) -> None:
    """Refuse a model that is spread over devices: passes are run again in parts, in one place."""
    places = sorted({str(weight.device) for weight in model.parameters()})
    if len(places) > 1:
        raise UnsupportedModelError(
            f"The weights of {type(model).__name__} lie on {', '.join(places)}; they must lie on "
            'one device. Load it with device="cuda", or with device_map={"": 0} in place of "auto".'
        )


class _DefaultType:
    """Torch's default number type: one for the whole process, so that threads change it together.

    The first block that is entered changes it, and the last that is left puts it back.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.before = dtype, dtype
        self.blocks = 0
        self.lock = threading.Lock()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """The number type, while any thread is in such a block."""
        with self.lock:
            if not self.blocks:
                self.before = torch.get_default_dtype()
                self._set(self.dtype)
            self.blocks += 1
        try:
            yield
        finally:
            with self.lock:
                self.blocks -= 1
                if not self.blocks:
                    self._set(self.before)

    def _set(self, dtype: torch.dtype) -> None:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)


_FLOAT32 = _DefaultType(torch.float32)


Forward = Callable[..., Any]


class StopEarly(Exception):  # noqa: N818 - it is not an error
    """Everything that is needed of a pass has been seen; the rest of the model need not run."""


_locks: "WeakKeyDictionary[nn.Module, threading.RLock]" = WeakKeyDictionary()
_adding_a_lock = threading.Lock()


@contextmanager
def frozen_eval(model: nn.Module, *, as_held: bool = False) -> Iterator[None]:
    """No dropout and no gradients for weights inside the block; everything as before after it.

    Torch's modes are the usual ones too, whatever those of the caller are (see ``modes.py``), and a
    model held in half precision computes in float32 (see ``precision.py``), unless ``as_held``.
    The change is to the model, which threads share, so a lock lets one thread in at a time; that
    thread may begin another block inside its own. Enter this before any other change to the model.
    """
    arithmetic = nullcontext() if as_held else float32_arithmetic(model)
    with _adding_a_lock:
        lock = _locks.setdefault(model, threading.RLock())
    with lock, default_torch_state(), arithmetic:
        modules = list(every_module(model))
        training = [module for module in modules if module.training]
        weights = [weight for module in modules for weight in module._parameters.values()]
        trainable = [weight for weight in weights if weight is not None and weight.requires_grad]
        try:
            for module in training:
                module.training = False
            for weight in trainable:
                weight.requires_grad_(False)
            yield
        finally:
            for module in training:
                module.training = True
            for weight in trainable:
                weight.requires_grad_(True)


@contextmanager
def wrap_forward(
    modules: Sequence[nn.Module], wrap: Callable[[Forward], Forward]
) -> Iterator[None]:
    """Wrap the ``forward`` of each module while the block runs.

    A module may carry a ``forward`` of its own (accelerate puts one there); it is put back. Other
    threads that use the model meanwhile meet the forward that was there.
    """
    before = [vars(module).get("forward") for module in modules]
    try:
        for module in modules:
            module.forward = here_only(wrap(module.forward), elsewhere=module.forward)
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            if forward is not None:
                module.forward = forward
            elif "forward" in vars(module):
                del module.forward


@contextmanager
def giving_zeros(module: nn.Module) -> Iterator[None]:
    """Let a projection give zeros, of the shape it would give, without computing anything."""
    width = int(getattr(module, "out_features", 0) or getattr(module, "nf", 0))

    def zeros(_: Forward) -> Forward:
        return lambda states: states.new_zeros(*states.shape[:-1], width)

    with wrap_forward([module], zeros):
        yield


def here_only(function: Forward, *, elsewhere: Forward = lambda *_, **__: None) -> Forward:
    """A function, or a hook, for the thread that asks for it; others call ``elsewhere``.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> answers = here_only(lambda: "here", elsewhere=lambda: "elsewhere")
    >>> with ThreadPoolExecutor() as pool:
    ...     answers(), pool.submit(answers).result()
    ('here', 'elsewhere')
    """
    owner = threading.get_ident()

    def called(*args: object, **kwargs: object) -> Any:
        chosen = function if threading.get_ident() == owner else elsewhere
        return chosen(*args, **kwargs)

    return called


@contextmanager
def hooked(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """Keep torch hooks while the block runs, and remove them after it."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def without_padding(model: PreTrainedModel) -> Iterator[None]:
    """Let rows of one length share a batch also in classifiers that know no padding token.

    Such a classifier looks for the last token that is not padding, and refuses a batch where it
    knows of no padding. With a padding id that no text has it takes the true last token, as it does
    for a single text.
    """
    config = model.config.get_text_config()
    unknown = getattr(config, "pad_token_id", 0) is None
    try:
        if unknown:
            config.pad_token_id = -1
        yield
    finally:
        if unknown:
            config.pad_token_id = None


def without_cache(model: PreTrainedModel, inputs: Inputs) -> Inputs:
    """Inputs that make no key-value cache: it would grow each time a layer is entered again."""
    own = vars(model).get("forward")  # it may hold the model, and is not kept
    accepts = _parameters(type(model).forward) if own is None else _parameters.__wrapped__(own)
    # A model around a language model hands on what it does not name itself.
    hands_on = any(place.kind is place.VAR_KEYWORD for place in accepts.values())
    around = "pixel_values" in accepts and hands_on and model.can_generate()
    return {**inputs, "use_cache": False} if "use_cache" in accepts or around else inputs


@lru_cache(maxsize=64)
def _parameters(forward: Forward) -> Mapping[str, inspect.Parameter]:
    """What a forward takes, by name."""
    return inspect.signature(forward).parameters


def floating(tree: object) -> list[Tensor]:
    """Every floating-point tensor of a model's output, in a fixed order."""
    leaves = tree_leaves(dict(tree) if isinstance(tree, dict) else tree)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
