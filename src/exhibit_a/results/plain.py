"""Turns any value into one that JSON can hold."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

JSON = dict[str, Any] | list[Any] | str | int | float | None  # beartype cannot check recursion


def plain(value: object, digits: int | None = None) -> Any:
    """The value as dicts, lists, text and numbers; floats are rounded, and NaN is None.

    Of a dataclass, optional fields without a value are left out.

    >>> plain({"a": (1, float("nan")), 2: "b"})
    {'a': [1, None], '2': 'b'}
    >>> plain(1 / 3, digits=3)
    0.333
    """
    if is_dataclass(value) and not isinstance(value, type):
        known = {field.name: getattr(value, field.name) for field in fields(value)}
        optional = {field.name for field in fields(value) if field.default is None}
        return {
            name: plain(inner, digits)
            for name, inner in known.items()
            if inner is not None or name not in optional
        }
    if isinstance(value, dict):
        return {str(name): plain(inner, digits) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, digits) for inner in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    return value if isinstance(value, str | int | bool | None) else str(value)
