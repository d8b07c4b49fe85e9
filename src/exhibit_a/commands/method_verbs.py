"""Makes a verb of a registered method.

What it takes decides what is to be given: a trace is a text, examples are a data set, an
attribution is a text that is attributed first. Its options become options, with the help of its
docstring. A verb written by hand may add to this (``with_options``) and call ``result`` with what
was given.
"""

import inspect
from collections.abc import Sequence
from dataclasses import MISSING, make_dataclass
from inspect import Parameter
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from exhibit_a.commands.options import AnswerVerb, DataSet, OneText, expect
from exhibit_a.commands.verb import Verb, option
from exhibit_a.errors import BadRequestError
from exhibit_a.progress import progress_bar

if TYPE_CHECKING:
    from exhibit_a.methods.options import Option
    from exhibit_a.methods.registry import Method
    from exhibit_a.progress import Bar
    from exhibit_a.results.result import Result
    from exhibit_a.shapes import Options

AUTOMATIC = ("seed",)  # options that need no words of their own
SEED = "same seed, same numbers."
ROWS = "Only these rows of attention, for long texts: answer, positions (0,-1) or a range (-16:)."


def verb_of(method: "Method") -> type[Verb]:
    """A verb with everything that a method takes and offers."""
    group = OneText if _about_one_text(method) else DataSet

    def run(self: AnswerVerb) -> None:
        self.answer(result(method, self))

    named = {"run": run, "method": method.name, "__doc__": method.does}
    plain: type[Verb] = make_dataclass(
        method.name, [], bases=(group, AnswerVerb), namespace=named, frozen=True, kw_only=True
    )
    return with_options(plain, method)


def with_options(kind: type[Verb], method: "Method") -> type[Verb]:
    """A verb with the options of its method as fields, as far as it has not its own."""
    present = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    added = [
        (name, _type(entry), _field(method, entry))
        for name, entry in method.options.items()
        if _can_be_said(entry) and name not in present
    ]
    if method.rows and method.takes == ("trace",) and "rows" not in method.options:
        added.append(("rows", str | None, option(None, help=ROWS)))
    made: type[Verb] = make_dataclass(
        kind.__name__,
        added,
        bases=(kind,),
        namespace={"__doc__": kind.__doc__},
        frozen=True,
        kw_only=True,
    )
    return made


def given(method: "Method", verb: object) -> "Options":
    """What was given on the command line, as the method's options take it."""
    return {
        name: parsed(entry, getattr(verb, name))
        for name, entry in method.options.items()
        if hasattr(verb, name) and _can_be_said(entry)
    }


def result(method: "Method", verb: object, **changed: object) -> "Result":
    """Run the method on what the verb was given; ``changed`` options replace what was given."""
    options = given(method, verb) | changed
    with progress_bar(method.does.rstrip(".")) as bar:
        made: Result = _call(method, verb, options, bar)
    return made


def called(verb: object, name: str, *about: object) -> Any:
    """What the method of that name says about these, with all that the verb was given for it.

    A verb written by hand reaches its methods through this or ``result``, so that no option can be
    shown in its help and then be forgotten.
    """
    from exhibit_a.methods.registry import find

    method = find(name)
    with progress_bar(method.does.rstrip(".")) as bar:
        return method.function(*about, **given(method, verb), **_heard(method, bar))


def _call(method: "Method", verb: Any, options: "Options", bar: "Bar") -> Any:
    from exhibit_a.methods.custom_methods import result_of
    from exhibit_a.trace.targets import chosen_target

    if method.takes == ("subject", "text"):
        return method.function(verb.subject(), verb.given_text(), **options)
    if not _about_one_text(method):
        examples = verb.examples()
        data = [example.text for example in examples] if "texts" in method.takes else examples
        return method.function(verb.subject(), data, **options, **_heard(method, bar))
    requested = options.pop("target", None) or getattr(verb, "target", None)
    if "rows" in method.options and options["rows"] not in (None, *method.options["rows"].choices):
        options["rows"] = "all"  # that were captured
    usual = "rows" in method.options and options["rows"] is None and requested is None
    trace = verb.trace(answer_rows=usual)
    expect(bar, trace.subject, method.name, len(trace.tokens or ()))
    target = None if requested is None else chosen_target(trace, requested)
    if method.takes == ("attribution",):
        from exhibit_a.methods.registry import find

        return method.function(find("self_attribution").function(trace, target=target), **options)
    return result_of(method, trace, target, **options)


def parsed(entry: "Option", value: object) -> object:
    """A value as the method takes it: lists come with commas, numbers as digits."""
    if not isinstance(value, str):
        return value
    if (kind := _listed(entry)) is not None:
        words = [word.strip() for word in value.split(",") if word.strip()]
        try:
            return tuple(kind(word) if kind in (int, float) else word for word in words)
        except ValueError:
            raise BadRequestError(
                f"{entry.name.replace('_', ' ').capitalize()} are numbers with commas between, "
                f"such as 1,2, not {value!r}."
            ) from None
    if value.isdecimal() and int in get_args(entry.type):
        return int(value)
    return value


def _about_one_text(method: "Method") -> bool:
    return "examples" not in method.takes and "texts" not in method.takes


def _heard(method: "Method", bar: "Bar") -> "Options":
    """The bar, for a method that tells how far it is."""
    hears = "progress" in inspect.signature(method.function).parameters
    return {"progress": bar} if hears else {}


def _can_be_said(entry: "Option") -> bool:
    """Whether an option can be given as words; functions and tensors cannot."""
    return entry.name != "methods" and _type(entry) is not None


def _type(entry: "Option") -> object:
    """The type of an option on the command line."""
    kinds = [kind for kind in (get_args(entry.type) or (entry.type,)) if kind is not NoneType]
    optional = entry.default is None
    listed = _listed(entry) is not None
    if get_origin(entry.type) is Literal or listed or entry.name == "target":
        return str | None if optional else str
    for plain in (bool, float, int):
        if kinds == [plain]:
            return plain | None if optional else plain
    if any(kind is str or get_origin(kind) is Literal for kind in kinds):
        return str | None if optional else str
    return None


def _listed(entry: "Option") -> Any:
    """What an option is a list of; None where it is none, or where a text will do as it is."""
    kinds = (entry.type, *get_args(entry.type))
    lists = [kind for kind in kinds if get_origin(kind) in (list, tuple, Sequence)]
    listed = get_args(lists[0])[0] if lists else None
    return None if listed is int and str in kinds else listed


def _field(method: "Method", entry: "Option") -> object:
    from exhibit_a.methods.registry import attributions

    default = method.defaults.get(entry.name, entry.default)
    default = MISSING if default is Parameter.empty else default
    default = ",".join(map(str, default)) if isinstance(default, list | tuple) else default
    words = entry.help or (SEED if entry.name in AUTOMATIC else "")
    if entry.name == "attribution":
        words = f"{words} With commas: {', '.join(attributions())}.".strip()
    flag = f"--{method.flags.get(entry.name, entry.name).replace('_', '-')}"
    if default is True:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    choices = "|".join(entry.choices) or None
    return option(default, help=words[:1].upper() + words[1:], flag=flag, metavar=choices)
