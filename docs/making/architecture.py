"""The rooms of the package and the imports between them, for docs/architecture.md.

python docs/making/architecture.py      draws the picture (``make map``)
"""

import ast
from functools import cache
from html import escape
from pathlib import Path

import networkx

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/exhibit_a"
PICTURE = ROOT / "docs/figures/architecture.svg"
EVERYWHERE = (
    "errors",
    "shapes",
    "control_characters",
    "interrupts",
    "extras",
    "progress",
)  # no arrows
WIDTH, HEIGHT, GAP, STEP = 116, 34, 46, 14


def says(file: Path) -> str:
    """What a file says about itself, in a line."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n")[0]


@cache
def rooms() -> dict[str, str]:
    """Every room and top-level file, with what it says about itself."""
    files = {path.stem: path for path in sorted(SOURCE.glob("*.py"))}
    files |= {path.parent.name: path for path in sorted(SOURCE.glob("*/__init__.py"))}
    return {name: says(files[name]) for name in sorted(files) if not name.startswith("__")}


def imports(room: str) -> set[str]:
    """The rooms that a room imports, in any of its files and functions."""
    found = set()
    for file in [*SOURCE.glob(f"{room}.py"), *(SOURCE / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exhibit_a."):
                found.add((node.module or "").split(".")[1])
    return (found & set(rooms())) - {room, *EVERYWHERE}


@cache
def drawn_imports() -> networkx.DiGraph:
    """The rooms and what each imports, without those that everything uses."""
    return networkx.DiGraph({room: imports(room) for room in rooms() if room not in EVERYWHERE})


@cache
def ranks() -> dict[str, int]:
    """How far to the right each room stands: one step beyond the farthest it imports."""
    graph, known = drawn_imports(), dict[str, int]()
    for room in reversed(list(networkx.topological_sort(graph))):
        known[room] = 1 + max((known[other] for other in graph.successors(room)), default=-1)
    return known


def picture() -> str:
    """The rooms as boxes, each arrow from a room to one that it needs another room to reach."""
    place = {}
    for rank in range(max(ranks().values()) + 1):
        column = sorted(room for room, its in ranks().items() if its == rank)
        for row, room in enumerate(column):
            place[room] = 20 + rank * (WIDTH + GAP), 20 + row * (HEIGHT + STEP) + (rank % 2) * 92
    width = max(x for x, _ in place.values()) + WIDTH + 20
    height = max(y for _, y in place.values()) + HEIGHT + 70
    edges = sorted(networkx.transitive_reduction(drawn_imports()).edges)
    arrows = [arrow(place[room], place[other]) for room, other in edges]
    boxes = [box(room, *place[room]) for room in sorted(place)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">'
        "<title>Rooms of the package: an arrow leads from a room to one that it imports</title>"
        '<rect width="100%" height="100%" fill="#ffffff"/>' + "".join(arrows + boxes) + "</svg>\n"
    )


def box(room: str, x: int, y: int) -> str:
    """A room with its name."""
    middle = f'x="{x + WIDTH // 2}" y="{y + HEIGHT // 2 + 5}"'
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fbfaf6" '
        f'stroke="#1f6db3"/><text {middle} text-anchor="middle" fill="#222222">{escape(room)}</text>'
    )


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """A bend from the left of a room to the right of another, and its head."""
    x1, y1, x2, y2 = start[0], start[1] + HEIGHT // 2, end[0] + WIDTH, end[1] + HEIGHT // 2
    bend = f"C {x1 - GAP // 2} {y1}, {x2 + GAP // 2} {y2}, {x2 + 6} {y2}"
    head = f"M {x2 + 9} {y2 - 4} L {x2 + 1} {y2} L {x2 + 9} {y2 + 4} Z"
    line = f'<path d="M {x1} {y1} {bend}" fill="none" stroke="#888888"/>'
    return f'{line}<path d="{head}" fill="#888888"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
