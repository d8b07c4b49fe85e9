"""From the installed package to a figure for a paper: the lines of docs/for-authors.md.

    python tests/plain/paper.py docs/for-authors.md

`make release` runs it in an environment that has the wheel and nothing of the checkout.
"""

import re
import sys
from pathlib import Path

import exhibit_a as xa

FOLDER = Path("path/to/your/folder")  # as the page calls it
MOST_LINES = 5


def main() -> None:
    """Save a model to a folder, run the lines, and look for the figure."""
    page = Path(sys.argv[1]).read_text("utf-8")
    snippet = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert len([line for line in snippet.splitlines() if line.strip()]) <= MOST_LINES
    subject = xa.load("sentiment")
    subject.model.save_pretrained(FOLDER)
    subject.tokenizer.save_pretrained(FOLDER)
    exec(compile(snippet, sys.argv[1], "exec"), {})
    assert Path("effective.pdf").read_bytes().startswith(b"%PDF")


if __name__ == "__main__":
    main()
