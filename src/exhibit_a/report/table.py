"""How do rows of numbers stand in a terminal, so that all of them can be read?

Headings break at their underscores, tuples after their commas, and words where a line is too short
for them. A number never breaks. Columns for which there is no room stand in a table below, beside
the names of the rows again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHORT = {"effective": "eff.", "comprehensiveness": "compre-\nhensiveness"}


def cell(value: Any) -> str:
    """A value in a few letters."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 and value else f"{value:.3f}"
    if isinstance(value, tuple | list):
        return ", ".join(map(cell, value))
    return str(value)


@dataclass(frozen=True)
class Column:
    """One column in letters, and how many of them it asks for in a line."""

    heading: str
    cells: tuple[str, ...]
    has_words: bool

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
    rows: Sequence[dict[str, Any]],
    *,
    width: int,
    told: Callable[[Any], str] = cell,
) -> RenderableType:
    """The rows under their headings, each value as ``told``, in as many tables as it takes."""
    columns = [
        _column(name, [row[name] for row in rows], told) for name in (rows[0] if rows else ())
    ]
    parts = _parts(columns, width)
    return Group(Text(title, style="table.title"), *(_drawn(part, width) for part in parts))


def longest(told: Iterable[str]) -> int:
    """The letters of the longest word."""
    return max((cell_len(word) for one in told for word in one.split()), default=0)


def _column(name: str, values: list[Any], told: Callable[[Any], str]) -> Column:
    heading = name.replace("_", "\n")
    for word, short in SHORT.items():
        heading = heading.replace(word, short)
    return Column(heading, tuple(map(told, values)), any(isinstance(one, str) for one in values))


def _parts(columns: list[Column], width: int) -> list[list[Column]]:
    """Columns that fit side by side; each part begins with the names of the rows."""
    names = list(takewhile(lambda one: one.has_words, columns)) or columns[:1]
    parts: list[list[Column]] = []
    for column in columns[len(names) :]:
        if not parts or sum(_leasts([*parts[-1], column], width)) + len(parts[-1]) > width:
            parts.append([*names])
        parts[-1].append(column)
    return parts or [names] * bool(names)


def _leasts(columns: list[Column], width: int) -> list[int]:
    """What each column needs, when words may fill no more than an equal share of the line."""
    share = width // (1 + sum(one.has_words for one in columns))
    return [one.least(share) for one in columns]


def _drawn(columns: list[Column], width: int) -> RenderableType:
    gaps, leasts = len(columns) - 1, _leasts(columns, width)
    gap = 2 if sum(one.best() for one in columns) + 2 * gaps <= width else 1
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
