"""Where do the tables of the documentation come from? From lines that studies write here.

A line is one table as it is printed: an id, its heading and its cells, the command that measures it
again and the versions it was measured with. A line replaces earlier ones with its id. A page marks
the place of a table with its id, and ``docs/making/measured.py`` writes it there.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "docs/data/tables.jsonl"


def keep(
    name: str,
    heading: Sequence[str],
    rows: Iterable[Sequence[Any]],
    path: Path = FILE,
    command: str | None = None,
) -> None:
    """Print a table and keep it, with the command of this process unless another is given."""
    from ledger import PACKAGES, spoken  # the page is written without the packages that this needs

    table = {
        "id": name,
        "heading": list(heading),
        "rows": [[str(cell) for cell in row] for row in rows],
        "command": command or spoken(sys.argv),
        "versions": {package: version(package) for package in PACKAGES},
    }
    others = [line for line in lines(path) if json.loads(line)["id"] != name]
    path.write_text("".join(f"{line}\n" for line in [*others, json.dumps(table, ensure_ascii=False)]), "utf-8")
    print(f"\n{markdown(table)}\n", flush=True)


def kept(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """The tables by their ids."""
    return {table["id"]: table for table in map(json.loads, lines(path))}


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def markdown(table: dict[str, Any]) -> str:
    """The table as a page shows it."""
    heading = table["heading"]
    rows = [heading, ["---"] * len(heading), *table["rows"]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
