"""What does a field mean? The comment beside it says, and the API pages should too."""

import inspect
import re
from typing import Any

from griffe import Attribute, Docstring, Extension

NOTE = re.compile(r"\s# (?!noqa|type:)(.+)$")


class FieldComments(Extension):
    """Gives a field without a docstring the comment at the end of its line."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """Look at the line on which the field is declared."""
        if attr.docstring is None and attr.lineno and attr.parent and attr.parent.is_class:
            line = attr.lines_collection[attr.filepath][attr.lineno - 1]
            if note := NOTE.search(line):
                told = inspect.cleandoc(note[1])
                attr.docstring = Docstring(f"{told[0].upper()}{told[1:]}.", parent=attr)
