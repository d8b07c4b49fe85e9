"""Verbs about one text."""

import typer


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
