"""The command line: one verb per public function.

A user's mistake is one ``error:`` line and exit code 2; a traceback only comes with ``--debug``.
"""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from typer.main import get_command

from exhibit_a.commands import corpus, data, explain, heads, model, text, web
from exhibit_a.errors import ExhibitError

app = typer.Typer(
    name="exhibit-a",
    help="Attention, on the stand: is a Transformer's attention map evidence of what it did?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verbs in (explain, model, text, data, heads, corpus, web):
    verbs.register(app)


def _tell_version(asked: bool) -> bool:
    if asked:
        typer.echo(f"exhibit-a {version('exhibit-a')}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", callback=_tell_version, is_eager=True),
    ] = False,
    _debug: Annotated[  # taken out by main wherever it stands; it is here for the help
        bool, typer.Option("--debug", help="With an error, also show where it came from.")
    ] = False,
) -> None:
    """Options that go with every verb."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        code = get_command(app).main(
            [word for word in given if word != "--debug"],
            prog_name="exhibit-a",
            standalone_mode=False,
        )
    except ExhibitError as mistake:
        if debug:
            raise
        _refuse(str(mistake))
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as mistake:
        told = getattr(mistake, "format_message", None)  # what typer's own usage errors have
        message = told() if told else None
        if message == "":  # nothing was asked, and typer has answered with the help
            sys.exit(0)
        if debug or message is None:
            raise
        _refuse(message)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> None:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)
