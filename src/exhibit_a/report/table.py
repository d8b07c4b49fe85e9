"""Prints rows of numbers in a terminal, so that all of them can be read.

Headings break between their words, tuples after their commas, and words where a line is too short
for them. A number never breaks. Columns for which there is no room go into a second table below,
which repeats the names of the rows; a number and its interval stay together. A column with nothing
in any row is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, takewhile

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exhibit_a.control_characters import escape_controls
from exhibit_a.report import blocks
from exhibit_a.report.blocks import Cell, Row
from exhibit_a.report.console import words
from exhibit_a.report.sentences import p_text
from exhibit_a.trials.sentences import percent_text

FORMS: dict[str, Callable[[float], str]] = {"percent": percent_text, "p": p_text}
SHORT = {"effective": "eff.", "comprehensiveness": "compre-\nhensiveness"}


def cell(value: object, form: str = "") -> str:
    """A value in a few letters, or in a form of ``format`` or ``FORMS``.

    >>> cell(0.25, ".0%"), cell(0.04, "p")
    ('25%', '.04')
    >>> cell(0.123456), cell(0.00012345), cell(0.0), cell(None), cell((True, 1e-5))
    ('0.123', '0.00012', '0', '–', 'yes, 1e-05')
    >>> cell("\x1b[2J")
    '\\\\x1b[2J'
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if form and isinstance(value, int | float):
        return FORMS[form](value) if form in FORMS else format(value, form)
    if isinstance(value, float):
        return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:.3f}"
    if isinstance(value, tuple | list):
        return ", ".join(map(cell, value))
    return escape_controls(str(value), lines=False)


@dataclass(frozen=True)
class TextColumn:
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
    columns: Sequence[blocks.Column] = (),
    text_of: Callable[[Cell], str] = cell,
) -> RenderableType:
    """The rows under their headings, in as many tables as it takes; ``text_of`` writes a value."""
    known = {column.key: column for column in columns}
    drawn = [
        _column(heading, values, partial(cell, form=form) if form else text_of, key)
        for key in (rows[0] if rows else ())
        for name, form in [_name_and_form(key, known.get(key))]
        for heading, values in split_intervals(name, [row[key] for row in rows])
        if any(value is not None for value in values)
    ]
    tables = (_drawn(side_by_side, width) for side_by_side in _split(drawn, width))
    return Group(words(title, style="table.title"), *tables)


def _name_and_form(key: str, column: blocks.Column | None) -> tuple[str, str]:
    """What stands above a column: its name, unless that is its key."""
    if column is None or column.name == key.replace("_", " "):
        return key, "" if column is None else column.form
    return column.name, column.form


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


def _column(title: str, values: list[Cell], text_of: Callable[[Cell], str], of: str) -> TextColumn:
    heading = escape_controls(title, lines=False).replace("_", "\n")
    for word, short in SHORT.items():
        heading = heading.replace(word, short)
    has_words = any(isinstance(value, str) for value in values)
    return TextColumn(heading, tuple(map(text_of, values)), has_words, of)


def _split(columns: list[TextColumn], width: int) -> list[list[TextColumn]]:
    """Columns that fit side by side, table by table; each begins with the names of the rows."""
    names = list(takewhile(lambda column: column.has_words, columns)) or columns[:1]
    tables: list[list[TextColumn]] = []
    for _, group in groupby(columns[len(names) :], lambda column: column.of):
        together = list(group)
        wider = [*tables[-1], *together] if tables else together
        if not tables or sum(_leasts(wider, width)) + len(wider) - 1 > width:
            tables.append([*names])
        tables[-1] += together
    return tables or [names] * bool(names)


def _leasts(columns: list[TextColumn], width: int) -> list[int]:
    """What each column needs, when words may fill no more than an equal share of the line."""
    share = width // (1 + sum(column.has_words for column in columns))
    return [column.least(share) for column in columns]


def _drawn(columns: list[TextColumn], width: int) -> RenderableType:
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


@dataclass(frozen=True)
class ResponsiveTable:
    """A table in several widths: the first that fits the line is shown, or the last."""

    tables: Sequence[Callable[[], Table]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """The widest table that fits."""
        for make in self.tables:
            table = make()
            if _width(table, console, options) <= options.max_width:
                break
        yield table

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Between the narrowest and the widest."""
        widths = [_width(make(), console, options) for make in self.tables]
        return Measurement(min(widths), max(widths)).with_maximum(options.max_width)


def _width(table: Table, console: Console, options: ConsoleOptions) -> int:
    """what the table needs, however wide the screen is."""
    return console.measure(table, options=options.update(max_width=10_000)).maximum
