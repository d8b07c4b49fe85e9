"""The header in Python and the model in TypeScript describe the same page."""

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from exhibit_a.report import header

MODEL = Path(__file__).parents[2] / "viewer" / "src" / "model.ts"
UNNAMED = {"Word", "Line"}  # object types without a name of their own in the viewer


def interfaces(source):
    """Every interface as {field: (type, is optional)}, comments left out."""
    source = re.sub(r"//.*", "", source)
    bodies = re.findall(r"export interface (\w+) \{\n(.*?)\n\}", source, re.DOTALL)
    return {name: fields(body) for name, body in bodies}


def fields(body):
    found = re.findall(r"(\w+)(\??): ((?:\{[^}]*\}|[^;{}])+)", body)
    return {name: (written.strip(), bool(mark)) for name, mark, written in found}


def typescript(hint):
    """A Python annotation as the viewer writes it; whole numbers are numbers there."""
    plain = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}
    if hint in plain:
        return plain[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is list:
        element = typescript(inner[0])
        is_union = get_origin(inner[0]) in (Union, UnionType)
        return f"({element})[]" if is_union else f"{element}[]"
    if origin is dict:
        return f"Record<{typescript(inner[0])}, {typescript(inner[1])}>"
    if origin is tuple:
        return f"[{', '.join(map(typescript, inner))}]"
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(typescript, inner)))
    if origin is Literal:
        return " | ".join(map(str, inner))
    if hint.__name__ in UNNAMED:
        listed = (f"{name}: {typescript(one)}" for name, one in get_type_hints(hint).items())
        return f"{{ {'; '.join(listed)} }}"
    return hint.__name__


def described(kind):
    return {
        name: (typescript(hint), name in kind.__optional_keys__)
        for name, hint in get_type_hints(kind).items()
    }


KINDS = {name: kind for name, kind in vars(header).items() if is_typeddict(kind)}
WRITTEN = interfaces(MODEL.read_text("utf-8"))


def test_both_files_have_the_same_names():
    assert set(WRITTEN) == set(KINDS) - UNNAMED
    assert len(WRITTEN) == 24


@pytest.mark.parametrize("name", WRITTEN)
def test_an_interface_and_its_class_have_the_same_fields(name):
    assert described(KINDS[name]) == WRITTEN[name]
    assert list(described(KINDS[name])) == list(WRITTEN[name])


def test_panels_are_fields_of_the_header():
    whole, panels = described(header.Header), described(header.Panels)
    assert {name: kind for name, (kind, _) in panels.items()}.items() <= {
        (name, kind) for name, (kind, _) in whole.items()
    }


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (("root: number;", "root: string;"), "Tree"),
        (
            ("answers?: Record<string, boolean | null>;", "answers?: Record<string, boolean>;"),
            "Head",
        ),
        (("reliance: string[];", "reliance: string;"), "Summary"),
        (("word?: string;", "word: string;"), "Head"),
        (("  keys: string;\n  rows", "  rows"), "Site"),
        (("points: [number, number][];", "points: number[];"), "Series"),
        (("lines: { at: number; name: string }[];", "lines: { at: number }[];"), "Chart"),
        (("groups: Group[] | null;", "groups: Group[];"), "Maps"),
        (("rows: (string | number | null)[][];", "rows: string[][];"), "Table"),
    ],
)
def test_a_drift_is_seen(change, name):
    source = MODEL.read_text("utf-8")
    assert change[0] in source
    assert interfaces(source.replace(*change))[name] != described(KINDS[name])
