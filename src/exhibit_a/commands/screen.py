"""Prints what a command answers: a table and its checks, or JSON. Files are written whole."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from exhibit_a.control_characters import visible_json

if TYPE_CHECKING:
    from rich.console import Console

    from exhibit_a.report.blocks import Table
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
    result: "Result", summary: "Table", *, json: bool, written: Sequence[Path | None]
) -> None:
    """Answer with a table and its checks, or with JSON."""
    if json:
        from exhibit_a.results.plain import plain

        about = {
            "result": type(result).__name__,
            "title": summary.title,
            "tokens": result.tokens,
            "provenance": asdict(result.provenance),
            "checks": result.checks,
            "rows": summary.first(),
        }
        print_json(plain(about))
        return
    print_table(summary.title, summary.first(), columns=summary.columns)
    for line in check_lines(result.checks):
        console().print(line, style="dim")
    print_written(written)


def check_lines(checks: Facts) -> list[str]:
    """A line for each check; what two results say of the same stands in one.

    >>> check_lines({"adjoint_gap": 0.25, "first, points": 5, "second, points": 25})
    ['adjoint gap: 0.250', 'points: 5 and 25']
    """
    from exhibit_a.report.table import cell

    texts = {name.replace("_", " "): cell(value) for name, value in checks.items()}
    lines = list[str]()
    for name, text in texts.items():
        side, _, check = name.partition(", ")
        other = texts.get(f"second, {check}") if side == "first" else None
        if other is not None:
            lines.append(f"{check}: {text}" + (" in both" if other == text else f" and {other}"))
        elif side != "second" or f"first, {check}" not in texts:
            lines.append(f"{name}: {text or 'none'}")
    return lines


def save_figure(result: "Result", path: Path, by: str | None = None) -> None:
    """Draw a result into a file that is either complete or not there."""
    result.plot(by=by).savefig(path, bbox_inches="tight")
