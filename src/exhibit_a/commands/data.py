"""Verbs about a data set."""

import typer


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
