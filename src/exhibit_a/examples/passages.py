"""Reads the passages in a file.

A text file holds passages with blank lines between them. A table (TSV, CSV, JSONL, Parquet) holds
one in each row, in a column ``passage`` or in one of the usual columns for a text.
"""

import re
from pathlib import Path

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.columns import read_examples
from exhibit_a.examples.files import READERS, columns_of, is_there, lines_of

WRITTEN = (".txt", ".md")
COLUMN = "passage"


def read_passages(path: str | Path, *, column: str | None = None) -> list[str]:
    """The passages of a file, in order.

    >>> path = tmp_path / "notes.txt"
    >>> _ = path.write_text("The cat sat.\\nIt slept.\\n\\nIt rained.\\n")
    >>> read_passages(path)
    ['The cat sat.\\nIt slept.', 'It rained.']
    >>> read_passages(tmp_path / "none.txt")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: There is no file ...
    """
    file = Path(path)
    is_folder = is_there(file) and file.is_dir()
    if file.suffix.lower() not in WRITTEN:
        if not is_folder and file.suffix.lower() not in READERS:
            raise BadRequestError(
                f"Cannot tell the format of {file.name} by its ending. Passages can be read from: "
                f"{', '.join((*WRITTEN, *READERS))}."
            )
        if column is None and file.is_file() and COLUMN in columns_of(file):
            column = COLUMN
        return [example.text for example in read_examples(file, text=column)]
    if column is not None:
        raise BadRequestError(f"{file.name} is a text and has no columns; leave {column!r} out.")
    if not file.is_file():
        raise BadRequestError(f'There is no file "{file}". Check the path.')
    paragraphs = re.split(r"\n\s*\n", "".join(lines_of(file)).replace("\r\n", "\n"))
    passages = [paragraph.strip() for paragraph in paragraphs if paragraph.strip()]
    if not passages:
        raise BadRequestError(f"{file.name} is empty. Give a file with at least two passages.")
    return passages
