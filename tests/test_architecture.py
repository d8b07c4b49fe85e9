"""The folder tree shows the architecture; imports only point to the left."""

import ast
import re
from pathlib import Path

import pytest

import exhibit_a

ROOT = Path(exhibit_a.__file__).parent
ORDER = [
    {"errors", "shapes"},
    {"subject"},
    {"examples", "results", "store"},
    {"trace", "fit"},
    {"train"},
    {"methods"},
    {"corpus", "trial", "verdict", "testimony", "stages", "doctor"},
    {"report"},
    {"web"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms of the package that a file imports, also inside functions; annotations do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exhibit_a"):
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("exhibit_a.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_to_the_left(path):
    here = RANK[room(path)]
    for name in imported(path):
        assert RANK[name] <= here, f"{path.name} reaches to the right, for {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small_and_open_with_their_question(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 350
    assert ast.get_docstring(ast.parse(source))


def test_upstream_private_names_live_in_one_place():
    private = re.compile(r"\b_attn_implementation|\._can_set_attn|eager_attention_forward")
    users = {str(p.relative_to(ROOT)) for p in FILES if private.search(p.read_text("utf-8"))}
    assert users == {"subject/tap.py"}


def test_no_family_is_known_by_name():
    tables = re.compile(r"model_type\b|\.architectures\b.*==")
    assert not [p for p in FILES if tables.search(p.read_text("utf-8"))]


def test_nothing_is_pickled():
    pickling = re.compile(r"\bpickle\b|(?<!safetensors\.)torch\.(load|save)\(")
    assert not [p for p in FILES if pickling.search(p.read_text("utf-8"))]


def test_every_public_name_of_the_contract_is_importable():
    missing = [name for name in exhibit_a.__all__ if not hasattr(exhibit_a, name)]
    assert exhibit_a.__all__
    assert not missing


def test_names_for_the_type_checker_are_the_names_there_are():
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    told = {
        alias.asname: (node.module or "").removeprefix("exhibit_a").removeprefix(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert told == exhibit_a._HOME
