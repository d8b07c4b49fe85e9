"""One progress bar for all long work, on stderr, and only on a terminal.

Work tells a ``Progress`` how much is done and of how much; the bar adds an estimate of the rest:
from how fast it went so far, or, where the steps are unlike each other, from what the doctor says
the whole takes (``methods.doctor.estimate``). A dropped interrupt is raised here.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from exhibit_a.control_characters import escape_controls as shown
from exhibit_a.interrupts import raise_if_interrupted, undone, was_interrupted

Progress = Callable[[int, int | None], None]  # receives how much is done, and of how much if known


def tell(progress: Progress | None, done: int, total: int | None = None) -> None:
    """Say how far it is, if anyone wants to know."""
    raise_if_interrupted()
    if progress is not None:
        progress(done, total)


class Bar:
    """A bar that can be set to how far it is, and given another title or a note next to it."""

    def __init__(self, update: Callable[..., None], *, watched: bool = False) -> None:
        self._update = update
        self.watched = watched  # whether there is a screen to draw it on

    def __call__(self, done: int, total: int | None = None) -> None:
        """So much is done, of so much."""
        self._update(completed=done, **({} if total is None else {"total": total}))

    def title(self, words: str) -> None:
        """What is being done now."""
        self._update(description=shown(words, lines=False))

    def stage(self, words: str, done: int, total: int) -> None:
        """What is being done now, and how much of all stages is done."""
        self._update(description=shown(words, lines=False), completed=done, total=total)

    def expect(self, seconds: float) -> None:
        """The whole takes about so long."""
        self._update(expected=seconds)

    def note(self, words: str) -> None:
        """Something that is known so far."""
        self._update(note=shown(words, lines=False))


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(0.034), duration(7.2), duration(95), duration(600)
    ('0.034 s', '7.2 s', '95 s', '10 min')
    """
    return f"{seconds:.2g} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def left(expected: float, elapsed: float) -> str:
    """What is left of a time that was estimated.

    >>> left(12.3, 3.1), left(12.3, 14.0)
    ('about 9 s left', 'longer than the estimated 12 s')
    """
    rest = expected - elapsed
    if rest < 0:
        return f"longer than the estimated {duration(round(expected, expected < 2))}"
    return f"about {duration(round(rest))} left"


@contextmanager
def progress_bar(title: str, *, visible: bool = True) -> Iterator[Bar]:
    """A bar with an estimate while the block runs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Columns
    from rich.text import Text

    class Remaining(TimeRemainingColumn):
        """What is left by the estimate that was given, or by how fast it went."""

        def render(self, task: Task) -> Text:
            expected = task.fields["expected"]
            if expected is None:
                return super().render(task)
            return Text(left(expected, task.elapsed or 0.0), style="progress.remaining")

    screen = Console(stderr=True)
    watched = visible and screen.is_terminal

    def clear() -> None:
        """Remove the bar and show the cursor again, if the process is ended at once."""
        if watched and was_interrupted():
            os.write(2, b"\r\x1b[2K\x1b[?25h")

    with (
        undone(clear),
        Columns(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            Remaining(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=screen,
            transient=True,
            disable=not watched,
        ) as columns,
    ):
        task = columns.add_task(shown(title, lines=False), total=None, note="", expected=None)

        def update(**changes: Any) -> None:
            raise_if_interrupted()
            columns.update(task, **changes)

        yield Bar(update, watched=watched)
        raise_if_interrupted()
