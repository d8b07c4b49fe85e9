"""What the verbs share: their options, a quiet way to load a model, and two ways to answer."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from exhibit_a.examples import Example
    from exhibit_a.results.result import Result
    from exhibit_a.subject.subject import Subject
    from exhibit_a.trace.capture import Trace


def check_place(file: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work and not after it."""
    if file is not None:
        from exhibit_a.results.files import require_place

        require_place(file)
    return file


def check_picture(file: Path | None) -> Path | None:
    """The same for a picture, which must also be of a kind that can be drawn."""
    if file is not None:
        from exhibit_a.errors import BadRequestError
        from exhibit_a.extras import extra

        known = extra("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
        if file.suffix.removeprefix(".") not in known:
            raise BadRequestError(
                f"A plot cannot be a {file.suffix!r} file; choose {', '.join(known)}."
            )
    return check_place(file)


Model = Annotated[
    str, typer.Option("--model", "-m", help="Embedded name (sentiment, nli), hub id or folder.")
]
Pair = Annotated[str | None, typer.Option("--pair", help="The second text, for models of pairs.")]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut a text that is too long for the model.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for machines.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Save the result to this file.", callback=check_place),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", help="Draw the result into this file (svg, png, pdf).", callback=check_picture
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same numbers.")]
Data = Annotated[Path, typer.Argument(help="TSV, CSV, JSONL or Parquet file of texts.")]
TextColumn = Annotated[str | None, typer.Option("--text", help="Column of the text.")]
PairColumn = Annotated[str | None, typer.Option("--pair", help="Column of the second text.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column of the label.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many texts.")]


def refuse_beside(chosen: str, idle: dict[str, Any]) -> None:
    """Refuse options that were given although what was chosen leaves them nothing to do."""
    from exhibit_a.errors import BadRequestError

    for option in filter(idle.get, idle):
        raise BadRequestError(f"{option} has no meaning with {chosen}; leave one of them out.")


def load_quietly(name: str, **options: Any) -> "Subject":
    """Load a model without the library's own chatter."""
    import logging

    import huggingface_hub
    import transformers

    from exhibit_a.subject.subject import load

    huggingface_hub.logging.set_verbosity(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return load(name, **options)


def capture_text(
    model: str, text: str, pair: str | None = None, *, truncate: bool = False, **options: Any
) -> "Trace":
    """Run a model on a text given on the command line."""
    from exhibit_a.trace.capture import capture

    return capture(load_quietly(model), text, pair=pair, truncate=truncate, **options)


def read_some(
    data: Path, text: str | None, pair: str | None, label: str | None, limit: int | None
) -> "list[Example]":
    """The first examples of a file named on the command line."""
    from exhibit_a.examples import read_examples

    return read_examples(data, text=text, pair=pair, label=label)[:limit]


@contextmanager
def working(title: str) -> "Iterator[Callable[[int, int], None]]":
    """A bar with an estimate while something takes long; on stderr, and only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(elapsed_when_finished=True),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def deliver(result: "Result", *, out: Path | None, plot: Path | None) -> None:
    """Write what was asked for to files, whole or not at all."""
    if out is not None:
        result.save(out)
    if plot is not None:
        save_figure(result, plot)


def save_figure(result: "Result", path: Path) -> None:
    """Draw a result into a file that is either complete or not there."""
    import io

    from exhibit_a.results.files import write_whole

    drawn = io.BytesIO()
    result.plot().savefig(drawn, format=path.suffix.removeprefix("."), bbox_inches="tight")
    write_whole(path, drawn.getvalue())


Rows = list[dict[str, Any]]


def present(
    result: "Result", title: str, rows: Rows, *, json: bool, out: Path | None, plot: Path | None
) -> None:
    """Answer with a table and the doubts about it, or with JSON; write what was asked for."""
    deliver(result, out=out, plot=plot)
    if json:
        about = {"result": type(result).__name__, "title": title, "tokens": result.tokens}
        origin = asdict(result.provenance)
        print_json(plain(about | {"provenance": origin, "checks": result.checks, "rows": rows}))
        return
    from exhibit_a.report.table import cell, table

    screen = console()
    screen.print(table(title, rows, width=screen.width))
    for name, value in result.checks.items():
        screen.print(f"{name}: {cell(value)}", style="dim")
    for path in filter(None, (out, plot)):
        screen.print(f"written to {path}", soft_wrap=True)


def plain(value: Any) -> Any:
    """A value that JSON can say; what is not a number there is null."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def console() -> "Console":
    """Where people read. Words are printed as they are: in texts and paths, [bold] is no order."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """Answer a machine."""
    typer.echo(dumps(value, ensure_ascii=False, indent=2))
