"""How far is it? One bar for all long work, on stderr, and only where somebody watches.

Work tells a ``Progress`` how much is done and of how much; the bar adds an estimate of the rest.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exhibit_a.visible import visible as shown

Progress = Callable[[int, int | None], None]  # is told how much is done, and of how much if known


def tell(progress: Progress | None, done: int, total: int | None = None) -> None:
    """Say how far it is, if anyone wants to know."""
    if progress is not None:
        progress(done, total)


class Bar:
    """A bar that can be told how far it is, and given another title or a note beside it."""

    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update

    def __call__(self, done: int, total: int | None = None) -> None:
        """So much is done, of so much."""
        self._update(completed=done, **({} if total is None else {"total": total}))

    def title(self, words: str) -> None:
        """What is being done now."""
        self._update(description=shown(words, lines=False))

    def stage(self, words: str, done: int, total: int) -> None:
        """What is being done now, and how much of all stages is done."""
        self._update(description=shown(words, lines=False), completed=done, total=total)

    def note(self, words: str) -> None:
        """Something that is known so far."""
        self._update(note=shown(words, lines=False))


@contextmanager
def progress_bar(title: str, *, visible: bool = True) -> Iterator[Bar]:
    """A bar with an estimate while the block runs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Columns

    screen = Console(stderr=True)
    with Columns(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}", markup=False),
        console=screen,
        transient=True,
        disable=not (visible and screen.is_terminal),
    ) as columns:
        task = columns.add_task(shown(title, lines=False), total=None, note="")
        yield Bar(lambda **changes: columns.update(task, **changes))
