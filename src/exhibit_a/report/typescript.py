"""Writes the header of a page as TypeScript: ``python -m exhibit_a.report.typescript``.

Every class of ``header.py``, and every block among its fields, becomes an interface. A field that
may be missing (``NotRequired``, or a default of None) gets a question mark. The viewer knows no
other charts than those of a page, so ``PageChart`` is its ``Chart``.
"""

from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from exhibit_a.report import header

TARGET = Path(__file__).parents[3] / "viewer" / "src" / "model.ts"
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}


def model() -> str:
    """The whole file."""
    kinds = (kind for kind in vars(header).values() if is_typeddict(kind) or is_dataclass(kind))
    parts = "\n".join(map(_interface, _with_inner(list(kinds))))
    return f"// Written by report/typescript.py from report/header.py; change it there.\n\n{parts}"


def _with_inner(kinds: list[Any]) -> list[Any]:
    """The classes, and those that their fields are made of, in the order of their names."""
    known = {_name(kind): kind for kind in kinds}
    for kind in kinds:
        for hint in get_type_hints(kind).values():
            inner = [part for part in _parts(hint) if is_dataclass(part)]
            known |= {_name(part): part for part in _with_inner(inner)}
    return [known[name] for name in sorted(known)]


def _parts(hint: Any) -> list[Any]:
    return [hint, *(part for inner in get_args(hint) for part in _parts(inner))]


def _name(kind: Any) -> str:
    return str(kind.__name__).removeprefix("Page")


def _interface(kind: Any) -> str:
    optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    if is_dataclass(kind):
        optional = frozenset(one.name for one in fields(kind) if one.default is None)
    lines = []
    for name, hint in get_type_hints(kind).items():
        missing = is_dataclass(kind) and name in optional
        written = _typescript(hint).removesuffix(" | null") if missing else _typescript(hint)
        lines.append(f"  {name}{'?' if name in optional else ''}: {written};\n")
    return f"export interface {_name(kind)} {{\n{''.join(lines)}}}\n"


def _typescript(hint: Any) -> str:
    """An annotation as TypeScript writes it; whole numbers are numbers there."""
    if hint in PLAIN:
        return PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is dict:
        return f"Record<{_typescript(inner[0])}, {_typescript(inner[1])}>"
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        element = _typescript(inner[0])
        return f"({element})[]" if " | " in element else f"{element}[]"
    if origin is tuple:
        return f"[{', '.join(map(_typescript, inner))}]"
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(_typescript, inner)))
    if origin is Literal:
        return " | ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in inner)
    return _name(hint)


if __name__ == "__main__":
    TARGET.write_text(model(), encoding="utf-8")
