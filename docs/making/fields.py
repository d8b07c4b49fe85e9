"""What does a field mean? The comment beside or above it says, and the API pages should too."""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension

BESIDE = re.compile(r"\s# (?!noqa|type:)(.+)$")
ABOVE = re.compile(r"\s*# (.+)$")


class FieldComments(Extension):
    """Gives a field without a docstring the comment that was written for it."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Look at the line on which the field is declared, and at those before it."""
        if attr.docstring is None and attr.lineno and attr.parent and attr.parent.is_class:
            lines = attr.lines_collection[attr.filepath]
            if told := _comment(lines, attr.lineno - 1):
                text = f"{told[0].upper()}{told[1:]}".rstrip(".")
                attr.docstring = Docstring(f"{text}.", parent=attr)


def _comment(lines: list[str], place: int) -> str:
    if beside := BESIDE.search(lines[place]):
        return beside[1]
    told: list[str] = []
    while above := ABOVE.match(lines[place - 1]):
        told.insert(0, above[1])
        place -= 1
    return " ".join(told)
