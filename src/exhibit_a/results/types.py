"""Checks that a stored value fits the annotation of its field.

A file can be changed and sealed again, by anyone. Nothing in it names code to run, but a number
where words were meant would come to light far from here. So every field is compared with what its
class says, tensors by dtype, number of axes and the sizes that axes of one name share.
"""

import reprlib
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from jaxtyping import jaxtyped

from exhibit_a.errors import BadRequestError


def require_types(kind: type, values: Mapping[str, object]) -> None:
    """Refuse values that are not of the types that a dataclass gives to its fields.

    >>> from exhibit_a.subject.anatomy import Site
    >>> require_types(Site, {"layer": 3})
    >>> require_types(Site, {"layer": "third"})
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: layer of its Site is no int (but 'third').
    """
    hints = get_type_hints(kind)
    with jaxtyped("context"):  # within which axes of one name have one size
        for name, value in values.items():
            if not fits(value, hints.get(name, Any)):
                expected = getattr(hints[name], "__name__", str(hints[name]))
                shown = " ".join(reprlib.repr(value).split())
                raise BadRequestError(
                    f"{name} of its {kind.__name__} is no {expected} (but {shown})."
                )


def fits(value: object, hint: object) -> bool:
    """Whether a value is of a type, down to the entries; what no type can say is not checked.

    >>> fits(("a", "b"), tuple[str, ...]), fits(("a", 1), tuple[str, ...])
    (True, False)
    >>> fits({"a": None}, dict[str, int | None]), fits({"a": "b"}, dict[str, int | None])
    (True, False)
    """
    parts = get_args(hint)
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            return any(fits(value, part) for part in parts)
        case origin if origin is Literal:
            return value in parts
        case origin if origin is tuple:
            if not isinstance(value, tuple):
                return False
            if len(parts) == 2 and parts[1] is Ellipsis:  # one part for all entries
                return all(fits(entry, parts[0]) for entry in value)
            return len(value) == len(parts) and all(map(fits, value, parts))
        case origin if isinstance(origin, type) and issubclass(origin, Mapping):
            return isinstance(value, origin) and all(
                fits(key, parts[0]) and fits(entry, parts[1]) for key, entry in value.items()
            )
        case origin if isinstance(origin, type) and issubclass(origin, Sequence):
            return isinstance(value, origin) and all(fits(entry, parts[0]) for entry in value)
    if hint is Any or not isinstance(hint, type):
        return hint is not None or value is None
    if hint is float:  # a whole number is one too
        return isinstance(value, float | int) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
