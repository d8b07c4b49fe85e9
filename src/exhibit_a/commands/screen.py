"""How does a command answer? With a table and its doubts, or with JSON; files are written whole."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from exhibit_a.visible import visible_json

if TYPE_CHECKING:
    from rich.console import Console

    from exhibit_a.report.summaries import Summary
    from exhibit_a.results.result import Result

Facts = dict[str, Any]  # by name


def console() -> "Console":
    """Where people read."""
    from exhibit_a.report.console import Screen

    return Screen()


def print_json(value: object) -> None:
    """Answer a machine."""
    typer.echo(visible_json(value))


def print_table(title: str, rows: Sequence[Facts], **how: Any) -> None:
    """Rows under their headings, as wide as the screen."""
    from exhibit_a.report.table import table

    screen = console()
    screen.print(table(title, rows, width=screen.width, **how))


def print_written(paths: Sequence[Path | None]) -> None:
    """Say which files were written."""
    for path in filter(None, paths):
        console().print(f"written to {path}", soft_wrap=True)


def present(
    result: "Result", summary: "Summary", *, json: bool, written: Sequence[Path | None]
) -> None:
    """Answer with a table and the doubts about it, or with JSON."""
    if json:
        from exhibit_a.results.plain import plain

        about = {
            "result": type(result).__name__,
            "title": summary.title,
            "tokens": result.tokens,
            "provenance": asdict(result.provenance),
            "checks": result.checks,
            "rows": summary.rows,
        }
        print_json(plain(about))
        return
    from exhibit_a.report.table import cell

    print_table(summary.title, summary.rows)
    for name, value in result.checks.items():
        console().print(f"{name}: {cell(value)}", style="dim")
    print_written(written)


def save_figure(result: "Result", path: Path, by: str | None = None) -> None:
    """Draw a result into a file that is either complete or not there."""
    result.plot(by=by).savefig(path, bbox_inches="tight")
