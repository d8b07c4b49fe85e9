"""How does any value become one that JSON can hold?"""

import math
from typing import Any

JSON = dict[str, Any] | list[Any] | str | int | float | None  # beartype cannot check recursion


def plain(value: object, digits: int | None = None) -> Any:
    """The value as dicts, lists, text and numbers; a float has so many digits, and NaN is None.

    >>> plain({"a": (1, float("nan")), 2: "b"})
    {'a': [1, None], '2': 'b'}
    >>> plain(1 / 3, digits=3)
    0.333
    """
    if isinstance(value, dict):
        return {str(name): plain(inner, digits) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, digits) for inner in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    return value if isinstance(value, str | int | bool | None) else str(value)
