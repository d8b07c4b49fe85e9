"""What a field means and an example of it, on the pages of the API (an extension of griffe).

A field without a docstring gets the comment beside or above it; examples in a docstring become
blocks of code.
"""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Function

BESIDE = re.compile(r"\s# (?!noqa|type:)(.+)$")
ABOVE = re.compile(r"\s*# (.+)$")
EXAMPLE = re.compile(r"((?:^>>> .*\n?(?:^(?!\s*$|>>> ).*\n?)*)+)", re.M)


class FieldComments(Extension):
    """Gives a field without a docstring the comment that was written for it; fences examples."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Put the examples of a docstring into blocks of code."""
        if func.docstring is not None:
            fenced = lambda example: f"```pycon\n{example[1].rstrip()}\n```\n"  # noqa: E731
            func.docstring.value = EXAMPLE.sub(fenced, func.docstring.value)

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Look at the line on which the field is declared, and at those before it."""
        if attr.docstring is None and attr.lineno and attr.parent and attr.parent.is_class:
            told = comment_on(attr.lines_collection[attr.filepath], attr.lineno - 1)
            if told:
                text = f"{told[0].upper()}{told[1:]}".rstrip(".")
                attr.docstring = Docstring(f"{text}.", parent=attr)


def comment_on(lines: list[str], place: int) -> str:
    """What is written beside a line, or in the lines above it."""
    if beside := BESIDE.search(lines[place]):
        return beside[1]
    told: list[str] = []
    while above := ABOVE.match(lines[place - 1]):
        told.insert(0, above[1])
        place -= 1
    return " ".join(told)
