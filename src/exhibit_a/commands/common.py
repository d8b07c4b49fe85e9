"""What the verbs share: their options, a quiet way to load a model, and two ways to answer."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from exhibit_a.results import Result
    from exhibit_a.subject.subject import Subject
    from exhibit_a.trace.capture import Trace

Model = Annotated[
    str, typer.Option("--model", "-m", help="Embedded name (sentiment, nli), hub id or folder.")
]
Pair = Annotated[str | None, typer.Option("--pair", help="The second text, for models of pairs.")]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut a text that is too long for the model.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for machines.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save the result to this file.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw the result into this file (svg, png, pdf).")
]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same numbers.")]


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


def deliver(result: "Result", *, out: Path | None = None, plot: Path | None = None) -> None:
    """Write what was asked for to files, whole or not at all."""
    if out is not None:
        result.save(out)
    if plot is not None:
        save_figure(result, plot)


def save_figure(result: "Result", path: Path) -> None:
    """Draw a result into a file that is either complete or not there."""
    import io

    from exhibit_a.errors import BadRequestError
    from exhibit_a.store import write_whole

    figure, drawn = result.plot(), io.BytesIO()
    known = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".")
    if kind not in known:
        raise BadRequestError(
            f"A plot cannot be a {path.suffix!r} file; choose {', '.join(known)}."
        )
    figure.savefig(drawn, format=kind, bbox_inches="tight")
    write_whole(path, drawn.getvalue())


def console() -> "Console":
    """Where people read."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Any) -> None:
    """Answer a machine."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
