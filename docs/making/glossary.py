"""Write docs/glossary.md from the words that the page explains (``report/glossary.py``).

``make map`` runs it; a test sees that the page is what the package says.
"""

from pathlib import Path

from exhibit_a.report.glossary import WORDS

PAGE = Path(__file__).parents[2] / "docs/glossary.md"
HEAD = """# Glossary

*Written by `make map` from the package; do not edit it by hand.*

One word for one thing, on the page, in the terminal, in these docs and in errors. The page shows these sentences where a
word or a number is pointed at.

| word | meaning |
|---|---|
"""


def page() -> str:
    """Every word with its meaning, in their order."""
    return HEAD + "".join(f"| **{word}** | {said} |\n" for word, said in sorted(WORDS.items()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
