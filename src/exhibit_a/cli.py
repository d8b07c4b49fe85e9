"""The command line: one verb per public function.

A user's mistake is one ``error:`` line and exit code 2; a traceback only comes with ``--debug``.
"""

import sys

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
        if debug or told is None:
            raise
        _refuse(told())
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> None:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)
