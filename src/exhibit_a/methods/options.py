"""The options of a method: names, types and defaults from the signature, their meaning from the
docstring, and the words that a choice allows from its ``Literal`` type.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from exhibit_a.errors import require_choice
from exhibit_a.shapes import Options

WORDS = "Args:"  # the section of a docstring that says what each option means

Function = Callable[..., Any]


@dataclass(frozen=True)
class Option:
    """One option of a method: its name, type and default, and what it means."""

    name: str
    type: object
    default: object
    help: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it can be, where these are fixed."""
        return _choices(self.type)


def options_of(function: Function) -> dict[str, Option]:
    """The options of a function, in the order of its signature."""
    hints, words = get_type_hints(function), option_help(function)
    return {
        name: Option(name, hints.get(name, object), place.default, words.get(name, ""))
        for name, place in inspect.signature(function).parameters.items()
        if not must_be_given(place) and name != "progress"
    }


def must_be_given(place: inspect.Parameter) -> bool:
    """Whether a parameter is what a method is about, and no option."""
    return place.default is place.empty and place.kind is not place.KEYWORD_ONLY


def check_choices(function: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Refuse a word that is none of those in the signature, and list them."""
    hints = _hints(function)
    for name, value in inspect.signature(function).bind_partial(*args, **kwargs).arguments.items():
        words = _choices(hints.get(name))
        requested = [value] if isinstance(value, str) else value
        if not words or not isinstance(requested, list | tuple):
            continue
        hint: object = hints[name]
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if any(part is str for part in parts):
            continue  # any text will do, besides the words that are listed
        thing = name if isinstance(value, str) else name.removesuffix("s")
        for word in requested:
            require_choice(thing.replace("_", " "), word, words)


def option_help(function: Function) -> dict[str, str]:
    """What each option means, from the section ``Args:`` of the docstring."""
    lines = (inspect.getdoc(function) or "").split("\n")
    if WORDS not in lines:
        return {}
    meanings: dict[str, list[str]] = {}
    name = ""
    for line in lines[lines.index(WORDS) + 1 :]:
        if line and not line.startswith(" "):
            break
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, rest = line.strip().partition(":")
            meanings[name] = [rest.strip()]
        elif name and line.strip():
            meanings[name].append(line.strip())
    return {name: " ".join(words) for name, words in meanings.items()}


@cache
def _hints(function: Function) -> Options:
    return get_type_hints(function)


def _choices(hint: object) -> tuple[str, ...]:
    """The words in the ``Literal`` types of a hint, inside unions and sequences too."""
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if isinstance(word, str))
    return tuple(dict.fromkeys(word for part in get_args(hint) for word in _choices(part)))
