"""The command line: one verb per public function.

A user's mistake is one ``error:`` line and exit code 2; a traceback only comes with ``--debug``.
Verbs of registered methods are there by themselves: their names and first lines are read from the
registry, and the rest when one of them is called.
"""

import contextlib
import os
import sys
from importlib.metadata import version
from traceback import format_exc
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from exhibit_a.commands import compare, context, corpus, explain, heads, model, text, web
from exhibit_a.commands.verb import Verb, function_of
from exhibit_a.control_characters import escape_controls
from exhibit_a.errors import ExhibitError, asks_too_much, first_line
from exhibit_a.interrupts import INTERRUPTED, raise_if_interrupted

WRITTEN: dict[str, type[Verb]] = {
    kind.name(): kind
    for kind in (
        explain.Explain,
        model.Doctor,
        model.Train,
        text.Effective,
        text.Mixing,
        text.Attribute,
        text.TreeVerb,
        text.Adversary,
        compare.Compare,
        context.Context,
        heads.Heads,
        heads.Prune,
        heads.TriggersVerb,
        web.ViewVerb,
        web.Serve,
    )
}


class Verbs(TyperGroup):
    """The verbs that were written, and those that methods bring along."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb: ours in the order of a reader, then those of methods."""
        from exhibit_a.methods.registry import commands

        brought = [verb for verb in commands() if verb not in WRITTEN]
        return [*WRITTEN, *brought, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A verb as the list of verbs shows it: its name and what it does."""
        from exhibit_a.methods.registry import commands

        if cmd_name in WRITTEN:
            return TyperCommand(cmd_name, help=WRITTEN[cmd_name].__doc__)
        if cmd_name in (brought := commands()):
            return TyperCommand(cmd_name, help=brought[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is called, with all its options."""
        verb, command, rest = super().resolve_command(ctx, args)
        if verb is None or super().get_command(ctx, verb) is not None:
            return verb, command, rest
        return verb, _command(_whole(verb), verb), rest


def _whole(verb: str) -> type[Verb]:
    """A verb with the options of its method."""
    from exhibit_a.commands.method_verbs import verb_of, with_options
    from exhibit_a.methods.registry import find, with_command

    if verb not in WRITTEN:
        return verb_of(with_command(verb))
    kind = WRITTEN[verb]
    return with_options(kind, find(kind.method)) if kind.method else kind


def _command(kind: type[Verb], name: str) -> Any:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(function_of(kind))
    return get_command(alone)


app = typer.Typer(
    cls=Verbs,
    name="exhibit-a",
    help="Is a Transformer's attention map evidence of what it did?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
over_a_corpus = typer.Typer(
    help="A method over a data set, on one machine or many.", no_args_is_help=True
)
for _kind in corpus.VERBS:
    over_a_corpus.command(_kind.name())(function_of(_kind))
app.add_typer(over_a_corpus, name="corpus")


def _print_version(requested: bool) -> bool:
    if requested:
        typer.echo(f"exhibit-a {version('exhibit-a')}")
        raise typer.Exit
    return requested


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", callback=_print_version, is_eager=True),
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
        sys.stdout.flush()  # a full device is noticed here, not when Python ends
    except ExhibitError as mistake:
        if debug:
            _trace()
        _refuse(str(mistake))
    except OSError as problem:
        if debug:
            _trace()
        _refuse(f"{problem.filename or 'The answer cannot be written'}: {problem.strerror}.")
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Exception as mistake:
        format_message = getattr(mistake, "format_message", None)  # typer's own usage errors
        message = format_message() if format_message else None
        if message == "":  # no verb was given, and typer has answered with the help
            sys.exit(0)
        if message is None and not debug and asks_too_much(mistake):
            message = f"There is not enough memory, or a number is too large: {first_line(mistake)}"
        if debug or message is None:
            _trace()
        _refuse(message)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> NoReturn:
    """One line and exit code 2, also where there is nowhere to write."""
    raise_if_interrupted()  # whatever error a library made of it
    with contextlib.suppress(OSError):
        typer.echo(f"error: {escape_controls(' '.join(message.split()))}", err=True)
    try:
        sys.stdout.flush()
    except OSError:  # what is left of the answer has no place; Python must not try again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(2)


def _trace() -> NoReturn:
    """Say where an error came from, unless from an interrupt; its words may be of any origin."""
    raise_if_interrupted()
    typer.echo(escape_controls(format_exc()), err=True, nl=False)
    sys.exit(1)
