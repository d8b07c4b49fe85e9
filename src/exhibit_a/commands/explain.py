"""The main verb: everything about one text, on the screen and on one page."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhibit_a.commands.common import (
    Json,
    Model,
    Out,
    Pair,
    Plot,
    Seed,
    Truncate,
    check_place,
    console,
    deliver,
    load_quietly,
    plain,
    print_json,
    refuse_beside,
)

if TYPE_CHECKING:
    from exhibit_a.trials.stages import Progress
    from exhibit_a.trials.trial import Trial

PAGE = Path("report.html")


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(explain)


def explain(
    text: Annotated[str, typer.Argument(help="The text to examine.")],
    pair: Pair = None,
    model: Model = "sentiment",
    target: Annotated[
        str | None, typer.Option(help="Label or token to explain; without, what the model answers.")
    ] = None,
    target_text: Annotated[
        str | None, typer.Option(help="What a model with two stacks says; without, its own words.")
    ] = None,
    html: Annotated[Path, typer.Option(help="Write the page to this file.")] = PAGE,
    no_html: Annotated[bool, typer.Option("--no-html", help="Write no page.")] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Say how long each stage took.")] = False,
    truncate: Truncate = False,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Examine a text with every method: a verdict per head, and a page to look around in."""
    if no_html:
        refuse_beside("--no-html", {"--html": html != PAGE})
    page = None if no_html else html
    check_place(page)
    spent = {"load": 0.0, "files": 0.0}
    with _timed(spent, "load"):
        from exhibit_a.trials.trial import trial

        subject = load_quietly(model)
    with _progress_bar() as progress:
        found = trial(
            subject,
            text,
            pair=pair,
            target_text=target_text,
            target=target,
            seed=seed,
            truncate=truncate,
            progress=progress,
        )
    with _timed(spent, "files"):
        deliver(found, out=out, plot=plot)
        if page is not None:
            found.html(page)
    written = [str(file) for file in (page, out, plot) if file is not None]
    if json:
        print_json(plain(_told(found) | {"written": written} | _seconds(found, spent, timing)))
        return
    from exhibit_a.report.terminal import say, show
    from exhibit_a.report.terminal import timing as table

    show(found)
    if timing:
        say(table(found, **spent))
    for name in written:
        console().print(f"written to {name}", soft_wrap=True)


@contextmanager
def _timed(spent: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    spent[name] = time.perf_counter() - started


@contextmanager
def _progress_bar() -> "Iterator[Progress | None]":
    """A bar on stderr while a trial runs, for people only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("")

        def progress(stage: str, number: int, count: int) -> None:
            bar.update(task, description=stage, completed=number, total=count)

        yield progress


def _told(found: "Trial") -> dict[str, Any]:
    """Everything but the maps, for machines; the maps are in the file that --out writes."""
    scores = found.token_scores
    return {
        "result": "Trial",
        "provenance": asdict(found.provenance),
        "tokens": found.tokens,
        "token_scores": None if scores is None else scores.tolist(),
        "answer": found.answer,
        "target": found.target,
        "word": found.word,
        "verdict": found.verdict,
        "heads": [asdict(one) for one in found.verdicts],
        "tree": None if found.tree is None else [asdict(edge) for edge in found.tree.edges],
        "thresholds": asdict(found.thresholds),
        "checks": found.checks,
        "skipped": found.skipped,
    }


def _seconds(found: "Trial", spent: dict[str, float], wanted: bool) -> dict[str, Any]:
    return {"seconds": found.seconds | spent} if wanted else {}
