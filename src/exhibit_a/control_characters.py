"""Makes control characters of foreign text visible before it reaches a terminal or a pipe.

A label, a column or a token may hold anything. Sent as they are, some characters are orders to a
terminal (colours, the window's title, the clipboard), some turn the reading direction round so that
a line says something else than it seems to, and halves of a character cannot be written at all.
Each is shown by its number instead; what people write, in any script, stays as it is.
"""

import json
import re

# C0 and C1 controls, the marks that turn the direction, separators of lines, lone surrogates.
_ORDERS = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
_LAYOUT = "\n\t"


def escape_controls(text: str, *, lines: bool = True) -> str:
    r"""The text with every control character shown; line breaks and tabs stay if ``lines`` may be.

    >>> escape_controls("\x1b]0;mine\x07 fine")
    '\\x1b]0;mine\\x07 fine'
    >>> escape_controls("two\nlines") == "two\nlines", escape_controls("two\nlines", lines=False)
    (True, 'two\\nlines')
    """
    return _ORDERS.sub(lambda order: _shown(order[0], _LAYOUT if lines else ""), text)


def visible_json(value: object) -> str:
    r"""The value as JSON that says the same, and holds no control character as such.

    >>> visible_json(["a\x9bm", "é"])
    '[\n  "a\\u009bm",\n  "é"\n]'
    >>> json.loads(visible_json("a\x9bm\ud800")) == "a\x9bm\ud800"
    True
    """
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return _ORDERS.sub(lambda o: o[0] if o[0] in _LAYOUT else f"\\u{ord(o[0]):04x}", text)


def _shown(order: str, kept: str) -> str:
    return order if order in kept else order.encode("unicode_escape").decode("ascii")
