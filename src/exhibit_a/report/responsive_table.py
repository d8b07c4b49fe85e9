"""Which of several tables fits the line?

A table that is wider than the screen would cut its numbers. So the same rows are drawn with fewer
and fewer columns, and the first drawing that fits is shown; the last, if none does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table


@dataclass(frozen=True)
class Fitting:
    """A table in several widths, the widest first."""

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
    """What the table asks for, however wide the screen is."""
    return console.measure(table, options=options.update(max_width=10_000)).maximum
