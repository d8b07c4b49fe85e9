"""Which parts of its libraries does a command leave alone?

To define any model at all, transformers imports torch's compiler and its distributed tensors, and
these a library for symbolic algebra: together a quarter of all imports, and a command compiles and
distributes nothing. So a command imports transformers

1. as if torch had been built without its distributed part, which transformers provides for; and
2. with a stand-in for the compiler. What transformers takes from it meanwhile are decorators and
   one class, and each of them turns into the real one as soon as it is called; anything else that
   is asked of the stand-in brings in the real compiler at once.

Afterwards the stand-in is gone, and whoever imports the compiler gets it. A program that imports
exhibit_a is not concerned: only commands do this, in a process of their own.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from types import FunctionType, ModuleType

COMPILER = "torch._dynamo"
TRACING = f"{COMPILER}._trace_wrapped_higher_order_op"
DECORATORS = ("disable", "assume_constant_result", "allow_in_graph")
CLASSES = ("TransformGetItemToIndex",)
MODELS = "transformers.modeling_utils"

Function = Callable[..., object]


def import_models() -> None:
    """Import what every model of transformers needs, and no more; a second time does nothing."""
    if MODELS in sys.modules:
        return
    try:
        with _undistributed(), _uncompiled():
            import_module(MODELS)
            import_module("transformers.generation.utils")  # every family imports it
    except ImportError:  # another transformers, which takes more from the compiler: as it wants it
        import_module(MODELS)


@contextmanager
def _undistributed() -> Iterator[None]:
    """Torch says that it cannot distribute; transformers asks once and remembers."""
    import torch.distributed

    real = torch.distributed.is_available
    torch.distributed.is_available = lambda: False
    try:
        yield
    finally:
        torch.distributed.is_available = real


@contextmanager
def _uncompiled() -> Iterator[None]:
    """A stand-in for the compiler, unless it is there already."""
    if COMPILER in sys.modules:
        yield
        return
    compiler, tracing = _StandIn(COMPILER), ModuleType(TRACING)
    for name in DECORATORS:
        setattr(compiler, name, _decorator(name))
    for name in CLASSES:
        setattr(tracing, name, _called(TRACING, name))
    _put(compiler, tracing)
    try:
        yield
    finally:
        if sys.modules.get(COMPILER) is compiler:
            _take_away()


class _StandIn(ModuleType):
    """The compiler as far as it is decorators; whatever else is asked for is the real one's."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(COMPILER) is self:
            _take_away()
        return getattr(import_module(COMPILER), name)


def _put(compiler: ModuleType, tracing: ModuleType) -> None:
    sys.modules.update({COMPILER: compiler, TRACING: tracing})
    package, _, name = COMPILER.rpartition(".")
    setattr(sys.modules[package], name, compiler)


def _take_away() -> None:
    package, _, name = COMPILER.rpartition(".")
    delattr(sys.modules[package], name)
    del sys.modules[COMPILER], sys.modules[TRACING]


def _decorator(name: str) -> Function:
    """A decorator of the compiler that decorates when the function is first called."""

    def decorate(function: object = None, *args: object, **options: object) -> object:
        if function is None:
            return lambda given: decorate(given, *args, **options)

        @cache
        def decorated() -> Function:
            done: Function = _real(COMPILER, name)(function, *args, **options)  # type: ignore[assignment]
            return done

        if not isinstance(function, FunctionType):
            return decorated()

        @wraps(function)
        def call(*given: object, **named: object) -> object:
            return decorated()(*given, **named)

        return call

    return decorate


def _called(module: str, name: str) -> Function:
    """What stands for a class until one of it is made."""
    return lambda *args, **options: _real(module, name)(*args, **options)


def _real(module: str, name: str) -> Function:
    if isinstance(sys.modules.get(COMPILER), _StandIn):
        _take_away()
    found: Function = getattr(import_module(module), name)
    return found
