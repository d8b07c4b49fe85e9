"""The folder tree shows the architecture; imports only point to the left."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import exhibit_a

ROOT = Path(exhibit_a.__file__).parent
TESTS = Path(__file__).parent
ORDER = [  # as in docs/architecture.md; a room imports from itself and from what stands before it
    {"errors", "interrupts", "shapes", "control_characters"},
    {"extras", "progress"},
    {"numerics"},
    {"models"},
    {"embedded"},
    {"subject"},
    {"examples"},
    {"trace"},
    {"results"},
    {"training"},
    {"methods"},
    {"corpus", "trials"},
    {"report"},
    {"serve"},
    {"commands"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms of the package that a file imports, also inside functions; annotations do not count.

    The package as a whole (``import exhibit_a``) is every room at once.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = [name for node in ast.walk(tree) if id(node) not in skipped for name in named_by(node)]
    ours = [name.split(".") for name in names if name.split(".")[0] == "exhibit_a"]
    return {parts[1] if len(parts) > 1 else "__main__" for parts in ours}


def named_by(node: ast.AST) -> list[str]:
    """The modules that a statement or a call imports."""
    if isinstance(node, ast.ImportFrom) and node.module == "exhibit_a":
        return [f"exhibit_a.{alias.name}" for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    if called.endswith(("import_module", "__import__", "resolve_name")) and node.args:
        first = node.args[0]
        return [first.value] if isinstance(first, ast.Constant) else []
    return []


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("import exhibit_a", {"__main__"}),
        ("def f():\n    import exhibit_a as xa", {"__main__"}),
        ("from exhibit_a import corpus", {"corpus"}),
        ("from exhibit_a.trace.capture import Trace", {"trace"}),
        ("import_module('exhibit_a.report.html')", {"report"}),
        ("if TYPE_CHECKING:\n    from exhibit_a.report import view", set()),
    ],
)
def test_every_way_to_import_is_seen(source, rooms, tmp_path):
    (tmp_path / "file.py").write_text(source)
    assert imported(tmp_path / "file.py") == rooms


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_to_the_left(path):
    here = RANK[room(path)]
    for name in imported(path):
        assert RANK[name] <= here, f"{path.name} reaches to the right, for {name}"


METHOD_ROOMS = [  # a room of methods imports from itself and from the rooms before it
    {"attribution", "identifiability", "mixing"},
    {"heads", "triggers"},
    {"explanation"},
]


def test_rooms_of_methods_import_only_from_those_before():
    rank = {name: place for place, names in enumerate(METHOD_ROOMS) for name in names}
    methods = [path for path in FILES if path.parent.parent == ROOT / "methods"]
    assert {path.parent.name for path in methods} == set(rank)
    for path in methods:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        parts = [name.split(".") for node in nodes for name in named_by(node)]
        others = {
            named[2]
            for named in parts
            if named[:2] == ["exhibit_a", "methods"] and named[2] in rank
        } - {path.parent.name}
        for other in others:
            assert rank[other] < rank[path.parent.name], f"{path.name} imports from {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_open_with_their_question(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_upstream_private_names_live_in_one_place():
    private = re.compile(r"\b_attn_implementation|\._can_set_attn|eager_attention_forward")
    users = {str(p.relative_to(ROOT)) for p in FILES if private.search(p.read_text("utf-8"))}
    # A model of our own is on the other side of the tap: it looks its attention up like any other.
    assert {user for user in users if not user.startswith("models/")} == {"subject/tap.py"}


def test_no_family_is_known_by_name():
    tables = re.compile(r"model_type\b|\.architectures\b.*==")
    users = [p for p in FILES if tables.search(p.read_text("utf-8"))]
    assert {room(p) for p in users} <= {"models"}  # which state their own


def test_nothing_is_pickled():
    pickling = re.compile(r"\bpickle\b|(?<!safetensors\.)torch\.(load|save)\(")
    assert not [p for p in FILES if pickling.search(p.read_text("utf-8"))]


def test_tests_import_nothing_from_other_tests():
    """What they share is in tests/support, or in a fixture."""
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 100
    for path in files:
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        parts = [part for node in nodes for name in named_by(node) for part in name.split(".")]
        assert not [part for part in parts if part.startswith(("test_", "conftest"))], path


def test_tests_have_the_rooms_of_the_package():
    """A folder of tests is a room, or one of those that are about more than a room."""
    rooms = {path.parent.name for path in FILES} - {ROOT.name}
    inner = {
        path.parent.name for path in FILES if path.parent.parent not in (ROOT, ROOT / "methods")
    }
    tested = {path.parent.name for path in TESTS.rglob("test_*.py")} - {TESTS.name}
    assert tested - rooms == {"documentation", "regression", "studies"}
    assert rooms - inner - tested == set()


def test_every_public_name_of_the_contract_is_importable():
    missing = [name for name in exhibit_a.__all__ if not hasattr(exhibit_a, name)]
    assert exhibit_a.__all__
    assert not missing


def test_every_result_has_a_public_name():
    """So that a saved result finds its class, wherever that lives."""
    from exhibit_a.results.result import Result

    for name in exhibit_a.__all__:
        getattr(exhibit_a, name)
    ours = {n: k for n, k in Result.kinds.items() if k.__module__.startswith("exhibit_a.")}
    assert {name for name in ours if not hasattr(exhibit_a, name)} <= {"SiteResult"}


@pytest.mark.parametrize("folder", ["benchmarks", "studies", "docs/making"])
def test_scripts_import_what_there_is(folder):
    """Scripts that take hours are run by no test: nobody would see that a name has moved."""
    for path in sorted((TESTS.parent / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exhibit_a"):
                module = importlib.import_module(str(node.module))
                missing = [alias.name for alias in node.names if not there(module, alias.name)]
                assert not missing, f"{path.name}: {node.module} has no {missing}"


def there(module, name):
    return hasattr(module, name) or importlib.util.find_spec(f"{module.__name__}.{name}")
