"""A verb is a dataclass: its fields are the options, its docstring is the help.

    @dataclass(frozen=True, kw_only=True)
    class Explain(OneText, Answer):
        \"\"\"Examine a text with every method.\"\"\"

        target: str | None = option(None, help="Label or token to explain.")

        def run(self) -> None: …

A verb of a registered method names it (``method = "effective_attention"``); the method's own
options then become fields as well (``with_options``). ``function_of`` turns a verb into the
function that typer reads.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

LAST = ("seed", "json", "out", "plot")  # options that every verb has stand after its own


def option(
    default: object = MISSING,
    *,
    help: str,
    flag: str | None = None,
    short: str | None = None,
    writes: bool = False,
    **details: object,
) -> Any:
    """A field that is an option; ``details`` are typer's (min, max, callback, metavar …).

    ``writes`` says that the option names a file to be written.
    """
    described = {"help": help, "flag": flag, "short": short, "details": details}
    return field(default=default, metadata={"option": described, "writes": writes})


def argument(default: object = MISSING, *, help: str) -> Any:
    """A field that stands without a name on the command line."""
    return field(default=default, metadata={"argument": {"help": help}})


class Verb(ABC):
    """Something that can be done from the command line, by the name of its class.

    The class of a verb ends in "Verb" where a result has its name: ``TreeVerb`` is ``tree``.
    """

    method: ClassVar[str] = ""  # the registered method whose options it has, if any

    @classmethod
    def name(cls) -> str:
        """What is typed."""
        return cls.__name__.removesuffix("Verb").lower()

    @abstractmethod
    def run(self) -> None:
        """Do it, and answer."""

    def files(self) -> dict[str, Path]:
        """The files that were named, by their fields."""
        named = {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]
        return {name: path for name, path in named.items() if isinstance(path, Path)}


def function_of(kind: type[Verb]) -> Callable[..., None]:
    """The function that typer reads: a parameter for every field."""

    def run(**given: Any) -> None:
        verb = kind(**given)
        from exhibit_a.errors import BadRequestError

        # One file written twice, or over a file that is read: one of the two would be lost.
        entries = {entry.name: entry for entry in fields(verb)}  # type: ignore[arg-type]
        for pair in combinations(verb.files().items(), 2):
            (first, path), (second, other) = ((entries[name], path) for name, path in pair)
            written = first.metadata.get("writes") or second.metadata.get("writes")
            if written and path.resolve() == other.resolve():
                raise BadRequestError(
                    f"{_flag(first)} and {_flag(second)} name one file ({path}); give each its own."
                )
        verb.run()

    hints = get_type_hints(kind)
    places = [_place(entry, hints[entry.name]) for entry in fields(kind)]  # type: ignore[arg-type]
    places.sort(key=lambda place: (place.default is not place.empty, place.name in LAST))
    run.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined]
    run.__annotations__ = {entry.name: hints[entry.name] for entry in fields(kind)}  # type: ignore[arg-type]
    run.__doc__ = inspect.getdoc(kind)
    return run


def _flag(entry: "Field[object]") -> str:
    """What a field is called on the command line."""
    described = entry.metadata.get("option")
    if described is None:
        return entry.name.upper()
    return described["flag"] or f"--{entry.name.strip('_').replace('_', '-')}"


def _place(entry: "Field[object]", hint: object) -> inspect.Parameter:
    """The parameter of a field."""
    described = entry.metadata.get("option")
    if described is None:
        shown = typer.Argument(help=entry.metadata["argument"]["help"])
    else:
        flag = _flag(entry)
        names = (flag, described["short"]) if described["short"] else (flag,)
        shown = typer.Option(*names, help=described["help"], **described["details"])
    default = inspect.Parameter.empty if entry.default is MISSING else entry.default
    return inspect.Parameter(
        entry.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, shown],
    )
