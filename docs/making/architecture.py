"""The rooms of the package and the imports between them, for docs/architecture.md.

python docs/making/architecture.py      draws the picture (``make map``)
"""

import ast
from html import escape
from pathlib import Path

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
)  # used by all, so drawn with no arrow
WIDTH, HEIGHT, GAP, STEP = 116, 34, 46, 14


def rooms() -> dict[str, str]:
    """Every room and top-level file, with the first line of what it says about itself."""
    found = {}
    for path in sorted(SOURCE.iterdir()):
        file = path / "__init__.py" if path.is_dir() else path
        name = path.name.removesuffix(".py")
        if file.suffix == ".py" and file.exists() and not name.startswith("__"):
            found[name] = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n")[
                0
            ]
    return found


def imports(room: str) -> set[str]:
    """The rooms that a room imports, in any of its files and functions."""
    files = (
        [SOURCE / f"{room}.py"]
        if (SOURCE / f"{room}.py").exists()
        else (SOURCE / room).rglob("*.py")
    )
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exhibit_a."):
                found.add((node.module or "").split(".")[1])
    return found - {room}


def ranks(arrows: dict[str, set[str]]) -> dict[str, int]:
    """How far to the right each room stands: one step beyond the farthest it imports."""
    known: dict[str, int] = {}

    def rank(room: str, path: tuple[str, ...] = ()) -> int:
        if room not in known:
            below = [rank(other, (*path, room)) for other in arrows[room] if other not in path]
            known[room] = 1 + max(below, default=-1)
        return known[room]

    for room in arrows:
        rank(room)
    return known


def drawn(arrows: dict[str, set[str]]) -> str:
    """The rooms as boxes, each arrow from a room to one that it imports."""
    columns: dict[int, list[str]] = {}
    for room, rank in ranks(arrows).items():
        columns.setdefault(rank, []).append(room)
    place = {
        room: (20 + rank * (WIDTH + GAP), 20 + row * (HEIGHT + STEP) + (rank % 2) * 92)
        for rank, column in columns.items()
        for row, room in enumerate(sorted(column))
    }
    width = max(x for x, _ in place.values()) + WIDTH + 20
    height = max(y for _, y in place.values()) + HEIGHT + 70
    lines = [
        _arrow(place[room], place[other], place)
        for room in sorted(arrows)
        for other in sorted(_nearest(room, arrows))
    ]
    boxes = [_box(room, *place[room]) for room in sorted(place)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">'
        "<title>Rooms of the package: an arrow leads from a room to one that it imports</title>"
        '<rect width="100%" height="100%" fill="#ffffff"/>' + "".join(lines + boxes) + "</svg>\n"
    )


def _nearest(room: str, arrows: dict[str, set[str]]) -> set[str]:
    """What a room imports, without what it reaches through another room anyway."""
    direct = arrows[room]
    through: set[str] = set()
    for other in direct:
        todo = list(arrows[other])
        while todo:
            far = todo.pop()
            if far not in through:
                through.add(far)
                todo += arrows[far]
    return direct - through


def _box(room: str, x: int, y: int) -> str:
    middle = f'x="{x + WIDTH // 2}" y="{y + HEIGHT // 2 + 5}"'
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fbfaf6" '
        f'stroke="#1f6db3"/><text {middle} text-anchor="middle" fill="#222222">{escape(room)}</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int], place: dict[str, tuple[int, int]]) -> str:
    del place
    x1, y1 = start[0], start[1] + HEIGHT // 2
    x2, y2 = end[0] + WIDTH, end[1] + HEIGHT // 2
    bend = f"C {x1 - GAP // 2} {y1}, {x2 + GAP // 2} {y2}, {x2 + 6} {y2}"
    head = f"M {x2 + 9} {y2 - 4} L {x2 + 1} {y2} L {x2 + 9} {y2 + 4} Z"
    return f'<path d="M {x1} {y1} {bend}" fill="none" stroke="#888888"/><path d="{head}" fill="#888888"/>'


def known_arrows() -> tuple[dict[str, str], dict[str, set[str]]]:
    """Every room with what it is for, and the rooms that each imports."""
    known = rooms()
    return known, {room: imports(room) & set(known) - set(EVERYWHERE) for room in known}


def parts() -> dict[str, str]:
    """The tables of rooms."""
    known, arrows = known_arrows()
    order = sorted((r for r in known if r not in EVERYWHERE), key=lambda r: (ranks(arrows)[r], r))
    table = [f"| `{room}` | {known[room]} |" for room in [*EVERYWHERE, *order]]
    inner = [
        f"| `methods/{path.parent.name}` | {ast.get_docstring(ast.parse(path.read_text('utf-8')))} |"
        for path in sorted((SOURCE / "methods").glob("*/__init__.py"))
    ]
    return {
        "rooms": "\n".join(["| room | what it is for |", "|---|---|", *table]),
        "methods": "\n".join(["| room | question |", "|---|---|", *inner]),
    }


if __name__ == "__main__":
    known, arrows = known_arrows()
    PICTURE.write_text(
        drawn({room: arrows[room] for room in known if room not in EVERYWHERE}), "utf-8"
    )
