"""Are arguments and results what their annotations say? Asked at every call, for little.

jaxtyping's import hook decorates every function of the package with ``jaxtyped``, which binds the
arguments by name and checks them twice, in functions without a shape and in every new closure too:
a trial then takes more than twice as long. ``checked`` stands in its place and asks the same:

1. A function whose annotations have no axes is checked by the type checker alone.
2. One with axes is checked within a context of jaxtyping's, where equal names are equal sizes.
   (Generators, and names given as text, are left to jaxtyping.)
3. Of the closures that one definition makes, the first is checked.
"""

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from types import CodeType
from typing import Any

import jaxtyping

jaxtyped = jaxtyping.jaxtyped
_definitions: set[CodeType] = set()


def install() -> None:
    """Must come after jaxtyping's hook and before the first import of the package."""
    jaxtyping.jaxtyped = checked


def checked(function: Any = None, **asker: Callable[[Any], Any]) -> Any:
    """What ``jaxtyped`` takes, as a decorator and as a context."""
    if not asker:
        return jaxtyped(function)
    typechecker = asker["typechecker"]
    if function is None:
        return functools.partial(checked, typechecker=typechecker)
    if getattr(function, "__no_type_check__", False):
        return function
    if inspect.isclass(function):
        if is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = checked(function.__init__, typechecker=typechecker)
        return function
    if "<locals>" in function.__qualname__:
        if function.__code__ in _definitions:
            return function
        _definitions.add(function.__code__)
    hints = function.__annotations__.values()
    if any(isinstance(hint, str) for hint in hints):  # some name a thing that only stubs know
        return jaxtyped(function, typechecker=typechecker)
    if not any(map(_has_axes, hints)):
        return typechecker(function)
    if inspect.isgeneratorfunction(function):  # it runs when the context is over
        return jaxtyped(function, typechecker=typechecker)
    return _in_context(function, typechecker(function))


def _in_context(function: Callable[..., Any], asked: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with jaxtyped("context"):
            return asked(*args, **options)

    return run


def _has_axes(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(_has_axes, typing.get_args(hint)))
