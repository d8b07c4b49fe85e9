"""Reads from the source of a package which methods it declares, so that nothing need be imported.

``exhibit-a --help`` lists every verb without waiting for torch: names, questions and commands stand
as plain words in the decorator above a method, and what it does in the first line below.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

GROUP = "exhibit_a.methods"


@dataclass(frozen=True)
class Declaration:
    """What a file says about a method of its own, read without importing it."""

    name: str
    module: str
    question: str
    room: str
    command: str | None
    does: str


@cache
def declared() -> dict[str, Declaration]:
    """The methods in the source of the packages that offer some, by name.

    >>> declared()["effective_attention"].command
    'effective'
    """
    declarations = [
        declaration
        for offer in entry_points(group=GROUP)
        for place in _folders(offer)
        for file in sorted(Path(place).glob("*.py"))
        for declaration in _declarations(file, f"{offer.module}.{file.stem}")
    ]
    return {declaration.name: declaration for declaration in declarations}


def _folders(offer: EntryPoint) -> list[str]:
    """The folders of the package that an entry point names; none for a module or a function."""
    try:
        spec = find_spec(offer.module) if not offer.attr else None
    except ImportError:
        return []
    return [] if spec is None else list(spec.submodule_search_locations or ())


def _declarations(file: Path, module: str) -> Iterator[Declaration]:
    """The methods that a file declares."""
    source = file.read_text("utf-8")
    if "@method(" not in source and "@token_method(" not in source:
        return
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and (facts := _facts(decorator)):
                yield Declaration(
                    name=facts.get("name", node.name),
                    module=module,
                    question=facts["question"],
                    room=facts.get("room", room_of(module)),
                    command=facts.get("command"),
                    does=(ast.get_docstring(node) or "").split("\n")[0],
                )


def _facts(decorator: ast.Call) -> dict[str, str]:
    """What a decorator says in plain words about a method; another decorator says nothing."""
    kind = ast.unparse(decorator.func)
    if kind not in ("method", "token_method"):
        return {}
    words = {word.arg: word.value for word in decorator.keywords if word.arg}
    if kind == "token_method":
        words |= dict(zip(("name", "question"), decorator.args, strict=False))
    return {n: str(v.value) for n, v in words.items() if isinstance(v, ast.Constant)}


def room_of(module: str) -> str:
    """The folder of a file."""
    return module.split(".")[-2]
