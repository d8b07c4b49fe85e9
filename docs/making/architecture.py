"""Write docs/architecture.md and its picture from the package itself: rooms, arrows, two walks.

``make map`` runs it; a test sees that the page is what the package is.
"""

import ast
import importlib
import inspect
import sys
import tempfile
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/exhibit_a"
PAGE, PICTURE = ROOT / "docs/architecture.md", ROOT / "docs/figures/architecture.svg"
EVERYWHERE = (
    "errors",
    "shapes",
    "control_characters",
    "interrupts",
    "extras",
    "progress",
)  # used by all, so drawn with no arrow
WIDTH, HEIGHT, GAP, STEP = 116, 34, 46, 14
TEXT = "a gripping , beautifully shot film"


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


class Walk:
    """The steps from room to room of something that runs, in their order, each once."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str]] = []

    def __enter__(self) -> "Walk":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if event != "call" or not module.startswith("exhibit_a.") or name.startswith(("_", "<")):
            return
        before = frame.f_back
        while before and before.f_globals.get("__name__", "").split(".")[0] != "exhibit_a":
            before = before.f_back
        caller = before.f_globals["__name__"] if before else ""
        if _room(caller) == _room(module) or not callable(getattr(sys.modules[module], name, None)):
            return
        step = (_room(module), module.removeprefix("exhibit_a."), name)
        if step not in self.steps:
            self.steps.append(step)


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def told(walk: Walk) -> str:
    """A walk as a table: the room that is entered, the function, and what it does."""
    rows = ["| room | function | what it does |", "|---|---|---|"]
    for room, module, name in walk.steps:
        if room in EVERYWHERE or room == "numerics":
            continue
        function = getattr(importlib.import_module(f"exhibit_a.{module}"), name)
        does = (inspect.getdoc(function) or "").split("\n")[0].replace("|", "\\|")
        rows.append(f"| {room} | `{module}.{name}` | {does} |")
    return "\n".join(rows)


def walks() -> tuple[Walk, Walk]:
    """One ``explain`` and one ``corpus run``, followed."""
    from exhibit_a.commands.main import main

    found = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "texts.tsv"
        data.write_text(f"sentence\tlabel\n{TEXT}\tpositive\na dull plot\tnegative\n")
        for words in (
            ["explain", TEXT, "--html", str(Path(folder) / "page.html"), "--json"],
            ["corpus", "run", str(data), "--out", str(Path(folder) / "run"), "--json"],
        ):
            out, sys.stdout = sys.stdout, open(Path(folder) / "out", "w")  # noqa: SIM115, PTH123
            try:
                with Walk() as walk:
                    main(words)
            except SystemExit:
                pass
            finally:
                sys.stdout.close()
                sys.stdout = out
            found.append(walk)
    return found[0], found[1]


def page() -> str:
    """The page for newcomers."""
    known = rooms()
    arrows = {room: imports(room) & set(known) - set(EVERYWHERE) for room in known}
    order = sorted((r for r in known if r not in EVERYWHERE), key=lambda r: (ranks(arrows)[r], r))
    table = "\n".join(f"| `{room}` | {known[room]} |" for room in [*EVERYWHERE, *order])
    inner = "\n".join(
        f"| `methods/{path.name}` | {ast.get_docstring(ast.parse((path / '__init__.py').read_text('utf-8')))} |"
        for path in sorted((SOURCE / "methods").iterdir())
        if (path / "__init__.py").exists()
    )
    explain, run = walks()
    return f"""# Architecture

*Written by `make map` from the package itself; do not edit it by hand.*

A newcomer's page: which rooms there are, which room may use which, and what happens, room by room, when somebody asks.

## Rooms

| room | what it is for |
|---|---|
{table}

The methods have a room for each question:

| room | question |
|---|---|
{inner}

## Arrows

An arrow leads from a room to one that it imports; what it reaches through another room is not drawn again. Imports
only point to the left, and a test sees to it. `errors`, `shapes`, `control_characters`, `interrupts`, `extras` and `progress` are used
everywhere and stand outside the picture. Rooms to the left that need one to the right ask for it by entry point
(`results/providers.py`).

![The rooms of the package and the imports between them](figures/architecture.svg)

## One `explain`, room by room

What is entered from another room while `exhibit-a explain "{TEXT}"` runs, in the order of the first time:

{told(explain)}

## One `corpus run`, room by room

The same for `exhibit-a corpus run texts.tsv --out run` with its default method:

{told(run)}
"""


def picture() -> str:
    """The picture of the rooms."""
    known = [room for room in rooms() if room not in EVERYWHERE]
    return drawn({room: imports(room) & set(known) for room in known})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
