"""Write the tables of measured numbers into the pages that people write.

A page marks the place of a table:

    <!-- measured: ID -->
    <!-- /measured -->

and ``make map`` puts the table of that id from docs/data/tables.jsonl between the marks, where a
study wrote it (``studies/tables.py``). A test sees that every page is what the file gives, that no
other table of measured numbers stands on it, and that a number in its sentences is one of the
numbers of its tables, of docs/claims.md, or a setting.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "studies"))

from tables import kept, markdown  # noqa: E402

PAGES = tuple(
    ROOT / f"docs/{name}.md"
    for name in (
        "attribution",
        "corpus",
        "explanation",
        "heads",
        "identifiability",
        "mixing",
        "trees",
        "triggers",
    )
)
MARK = re.compile(r"<!-- measured: (?P<id>[\w-]+) -->\n.*?<!-- /measured -->", re.DOTALL)


def filled(text: str) -> str:
    """The page with every marked table as it is kept."""
    known = kept()

    def put(mark: re.Match[str]) -> str:
        table = known[mark["id"]]
        source = f"*`{table['command']}`, version {table['versions']['exhibit-a']}*"
        parts = [f"<!-- measured: {mark['id']} -->", markdown(table), source, "<!-- /measured -->"]
        return "\n\n".join(parts)

    return MARK.sub(put, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
