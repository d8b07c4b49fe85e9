"""How are rows of numbers printed in a terminal, so that all of them can be read?

Headings break at their underscores, tuples after their commas, and words where a line is too short
for them. A number never breaks. Columns for which there is no room go into a second table below,
which repeats the names of the rows; a number and its interval stay together. A column with nothing
in any row is left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exhibit_a.control_characters import escape_controls
from exhibit_a.report.console import words

Cell = str | int | float | bool | None | tuple[float, ...] | list[float]
Row = dict[str, Cell]
Rows = list[Row]

SHORT = {"effective": "eff.", "comprehensiveness": "compre-\nhensiveness"}


def cell(value: object) -> str:
    """A value in a few letters.

    >>> cell(0.123456), cell(0.00012345), cell(0.0), cell(None), cell((True, 1e-5))
    ('0.123', '0.00012', '0', '–', 'yes, 1e-05')
    >>> cell("\x1b[2J")
    '\\\\x1b[2J'
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.3f}"
    if isinstance(value, tuple | list):
        return ", ".join(map(cell, value))
    return escape_controls(str(value), lines=False)


@dataclass(frozen=True)
class Column:
    """One column in letters, and how many of them it asks for in a line."""

    heading: str
    cells: tuple[str, ...]
    has_words: bool
    of: str  # what the row calls it: a number and its interval are columns of one value

    def least(self, longest_word: int) -> int:
        """Room for its numbers, and for as much of a word as is granted."""
        if self.has_words:
            return min(longest([self.heading, *self.cells]), longest_word)
        return max(min(longest([self.heading]), longest_word), longest(self.cells))

    def best(self) -> int:
        """Room for every cell in one line."""
        return max(map(cell_len, [*self.heading.split("\n"), *self.cells]))


def table(
    title: str,
    rows: Sequence[Row],
    *,
    width: int,
    text_of: Callable[[Cell], str] = cell,
) -> RenderableType:
    """The rows under their headings, in as many tables as it takes; ``text_of`` writes a value."""
    columns = [
        _column(heading, values, text_of, name)
        for name in (rows[0] if rows else ())
        for heading, values in split_intervals(name, [row[name] for row in rows])
        if any(value is not None for value in values)
    ]
    tables = (_drawn(side_by_side, width) for side_by_side in _split(columns, width))
    return Group(words(title, style="table.title"), *tables)


def split_intervals(name: str, values: list[Cell]) -> list[tuple[str, list[Cell]]]:
    """An interval as two columns, a number with its interval as three; any other column as it is.

    >>> split_intervals("interval", [(0.1, 0.3), (0.2, 0.4)])
    [('low', [0.1, 0.2]), ('high', [0.3, 0.4])]
    >>> split_intervals("deletion", [(0.2, 0.1, 0.3)])
    [('deletion_mean', [0.2]), ('low', [0.1]), ('high', [0.3])]
    """
    sizes = {len(value) if isinstance(value, tuple | list) else 0 for value in values}
    if sizes not in ({2}, {3}):
        return [(name, values)]
    bounds = ["low", "high"] if name == "interval" else [f"{name}_low", f"{name}_high"]
    headings = bounds if sizes == {2} else [f"{name}_mean", "low", "high"]
    parts = [value for value in values if isinstance(value, tuple | list)]
    return [(heading, [part[at] for part in parts]) for at, heading in enumerate(headings)]


def longest(texts: Iterable[str]) -> int:
    """The letters of the longest word."""
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def _column(title: str, values: list[Cell], text_of: Callable[[Cell], str], of: str) -> Column:
    heading = escape_controls(title, lines=False).replace("_", "\n")
    for word, short in SHORT.items():
        heading = heading.replace(word, short)
    has_words = any(isinstance(value, str) for value in values)
    return Column(heading, tuple(map(text_of, values)), has_words, of)


def _split(columns: list[Column], width: int) -> list[list[Column]]:
    """Columns that fit side by side, table by table; each begins with the names of the rows."""
    names = list(takewhile(lambda column: column.has_words, columns)) or columns[:1]
    tables: list[list[Column]] = []
    for _, group in groupby(columns[len(names) :], lambda column: column.of):
        together = list(group)
        wider = [*tables[-1], *together] if tables else together
        if not tables or sum(_leasts(wider, width)) + len(wider) - 1 > width:
            tables.append([*names])
        tables[-1] += together
    return tables or [names] * bool(names)


def _leasts(columns: list[Column], width: int) -> list[int]:
    """What each column needs, when words may fill no more than an equal share of the line."""
    share = width // (1 + sum(column.has_words for column in columns))
    return [column.least(share) for column in columns]


def _drawn(columns: list[Column], width: int) -> RenderableType:
    gaps, leasts = len(columns) - 1, _leasts(columns, width)
    gap = 2 if sum(column.best() for column in columns) + 2 * gaps <= width else 1
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    spare = max(0, width - gap * gaps - sum(leasts))
    for column, least in zip(columns, leasts, strict=True):
        more = column.best() - least
        if more > spare:
            more = spare if column.has_words else 0  # half a tuple is no gain
        spare -= more
        drawn.add_column(
            Text(column.heading),
            justify="left" if column.has_words else "right",
            overflow="fold",
            width=least + more,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        drawn.add_row(*map(Text, row))
    return Padding(drawn, (0, 0, 1, 0))
