"""How does any value become one that JSON can say?"""

import math
from typing import Any

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None


def plain(value: Any, digits: int | None = None) -> JSON:
    """A value that JSON can say, floats in so many digits; what is not a number there is null.

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
