"""What a method is: it says so once, above its function, and everything else follows from that.

    @method(question="How much of attention can reach the output?", needs=("attention", "values"),
            cost=Cost(forwards=1), command="effective")
    def effective_attention(trace: Trace, *, value_bias: ValueBias = "include", …): …

The registry feeds the doctor (does it apply, what does it cost?), the command line (a verb, with
options and their help from signature and docstring), corpus tasks, the attributions that
``companions`` and ``faithfulness`` know, and the tables in README and docs. Choices are ``Literal``
types in the signature (``options``), and are checked whenever a method is called.

Where methods are found: packages say in their metadata, in the group ``exhibit_a.methods``, which
of their packages, modules or functions hold methods. Ours are read from their source (``source``)
and imported when they are used, so that ``exhibit-a --help`` need not wait for torch.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import (
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from exhibit_a.errors import (
    BadRequestError,
    ExhibitError,
    NotComputableError,
    asks_too_much,
    first_line,
    require_choice,
)
from exhibit_a.methods.options import Function, Option, check_choices, must_be_given, options_of
from exhibit_a.methods.source import GROUP, declared, room_of
from exhibit_a.shapes import Options

YOURS = "yours"  # the room of methods that are not ours

Gives = Literal["result", "tokens", "maps"]
Need = Literal[
    "attention", "values", "hidden", "keys", "target", "distribution", "classes", "text",
    "projection", "answer",
]  # fmt: skip


class Facts(TypedDict, total=False):
    """What else a method may say of itself; see `Method`."""

    gives: Gives
    command: str
    flags: Mapping[str, str]
    defaults: Mapping[str, object]
    tokens: Function


class SomeRows(tuple[Need, ...]):
    """Needs of which a few rows of attention suffice, where no more were kept."""


def rows_of(*needs: Need) -> SomeRows:
    """What a method needs that can do with a few rows of attention.

    >>> rows_of("attention", "values")
    ('attention', 'values')
    """
    return SomeRows(needs)


Given = ParamSpec("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Cost:
    """What one text costs: forward passes of the model, and the floats that are kept.

    ``algebra`` is work outside the model, in passes. Where passes are also run backwards, each
    takes three times as long.
    """

    forwards: float = 0.0
    per_layer: float = 0.0  # forwards for each layer call
    per_token: float = 0.0  # forwards for each token
    backwards: bool = False
    algebra: float = 0.0
    algebra_per_token: float = 0.0
    algebra_per_direction: float = 0.0  # for each token and each direction of its vector
    maps: float = 0.0  # kept, in sets of all attention maps
    states: float = 0.0  # kept, in sets of all hidden states
    at_once: int = 0  # tokens, copies included, of passes that are run backwards together
    most: float = float("inf")  # forward passes, and as much other work

    @property
    def runs_the_model(self) -> bool:
        """Whether the model runs again after the pass that was captured."""
        return self.forwards > 1 or self.per_layer + self.per_token > 0 or self.backwards

    def counted(self, layers: int, tokens: int) -> float:
        """The forward passes.

        >>> Cost(forwards=1, per_layer=5).counted(layers=6, tokens=32)
        31.0
        """
        return min(self.forwards + self.per_layer * layers + self.per_token * tokens, self.most)

    def passes(self, layers: int, tokens: int, width: int = 0) -> float:
        """The forward passes, and other work in the same unit."""
        counted = self.counted(layers, tokens) * (3 if self.backwards else 1)
        per_token = self.algebra_per_token + self.algebra_per_direction * width
        return counted + min(self.algebra + per_token * tokens, self.most)

    def floats(self, maps: float, states: float) -> float:
        """The floats kept, by the entries of maps and of hidden states."""
        return self.maps * maps + self.states * states


@dataclass(frozen=True, eq=False)
class Method:
    """A method: its question, its function, and what is known about both."""

    name: str
    question: str
    room: str
    function: Function
    gives: Gives = "result"
    needs: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    command: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)  # names of options on the command line
    defaults: Mapping[str, object] = field(default_factory=dict)  # and their defaults there
    tokens: Function | None = None  # (trace, target, …) to a score for each token
    rows: bool = False  # whether a few rows of attention suffice, where no more were kept

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of what it must be given: trace, or subject and examples, …"""
        places = inspect.signature(self.function).parameters.values()
        names = tuple(place.name for place in places if must_be_given(place))
        return ("trace", *names[1:]) if self.room == YOURS else names

    @property
    def takes_several(self) -> bool:
        """Whether it takes several passes, with a result for each: where that is much faster."""
        hint = get_type_hints(self.function).get("trace")
        return any(get_origin(part) is Sequence for part in get_args(hint))

    @property
    def options(self) -> dict[str, Option]:
        """Its options, in the order of the signature."""
        return options_of(self.function)

    @property
    def does(self) -> str:
        """What it does, in one sentence."""
        return (inspect.getdoc(self.function) or self.question).split("\n")[0]


_known: dict[str, Method] = {}


def method(
    *,
    question: str,
    room: str | None = None,
    needs: Sequence[Need] = (),
    cost: Cost = Cost(),  # noqa: B008 (frozen)
    name: str | None = None,
    **more: Unpack[Facts],
) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Say what the function below is; ``more`` are further fields of `Method`.

    A method whose needs are ``rows_of`` something takes a pass of which only some rows were kept.
    Its room is the folder of its file, unless another is named.
    """

    def declare(function: Callable[Given, Made]) -> Callable[Given, Made]:
        @wraps(function)
        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            from exhibit_a.subject.guard import (
                method_modes,
            )  # with torch, which --help can spare

            check_choices(function, args, kwargs)
            given = args[0] if args else kwargs.get("trace")
            passes = given if isinstance(given, list | tuple) else [given]
            if not rows:
                for passed in passes:
                    require_all_rows(name or function.__name__, passed)
            with method_modes(), _within_reach(name or function.__name__), _outermost() as first:
                for passed in passes:
                    if first and cost.runs_the_model and hasattr(passed, "require_same_answer"):
                        passed.require_same_answer()
                return function(*args, **kwargs)

        facts: Options = {"needs": tuple(needs), "cost": cost, "rows": rows, **more}
        place = room or room_of(function.__module__)
        add(Method(name or function.__name__, question, place, checked, **facts))
        return checked

    rows = isinstance(needs, SomeRows)
    return declare


_inside_a_method: ContextVar[bool] = ContextVar("inside a method", default=False)


@contextmanager
def _outermost() -> Iterator[bool]:
    """Whether this method was called by the user, and not by another method."""
    inside = _inside_a_method.get()
    entered = _inside_a_method.set(True)
    try:
        yield not inside
    finally:
        _inside_a_method.reset(entered)


@contextmanager
def _within_reach(name: str) -> Iterator[None]:
    """Say in one line that a number given to a method is too large for torch or the memory."""
    try:
        yield
    except ExhibitError:
        raise
    except Exception as problem:
        if not asks_too_much(problem):
            raise
        raise BadRequestError(
            f"{name} was given a number that is too large, or needs more memory than there is: "
            f"{first_line(problem)}"
        ) from problem


def require_all_rows(name: str, given: object) -> None:
    """Refuse a pass, or a result, of which only some rows were kept."""
    rows = getattr(given, "rows", None)
    if rows is not None and hasattr(given, "sequences"):
        kept = f"{len(rows)} row" + ("s were" if len(rows) > 1 else " was")
        raise NotComputableError(
            f"{name} needs every row of attention, and only {kept} kept: capture the text without "
            "rows=, or fetch them with trace.whole()."
        )


def token_method(
    name: str, question: str, cost: Cost, *needs: Need, rows: bool = False
) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Say what the function below is: a method that gives a score for each token."""
    needed = rows_of(*needs) if rows else needs
    return method(name=name, question=question, cost=cost, needs=needed, gives="tokens")


def add(entry: Method) -> None:
    """Make a method known."""
    if entry.gives == "tokens" and entry.tokens is None:
        entry = Method(**{**vars(entry), "tokens": entry.function})
    _known[entry.name] = entry


def methods() -> dict[str, Method]:
    """Every method there is, by name: ours, those of installed packages, those of this session."""
    for declaration in declared().values():
        import_module(declaration.module)
    for offer in _offers():
        _load(offer)
    return dict(_known)


def find(name: str, among: str = "method") -> Method:
    """The method of that name; where there is none, the error lists them all."""
    if name not in _known:
        if (declaration := declared().get(name)) is not None:
            import_module(declaration.module)
        for offer in _offers():
            _load(offer)
    if name not in _known:
        require_choice(among, name, sorted(methods()))
    return _known[name]


def is_of_this_session(name: str) -> bool:
    """Whether a method is known to this process alone: neither ours nor of an installed package."""
    if name in declared() or name not in _known:
        return False
    package = _known[name].function.__module__.partition(".")[0]
    return all(offer.module.partition(".")[0] != package for offer in _offers())


def attributions() -> dict[str, Method]:
    """Every method that gives, or can be read as, a score for each token."""
    return {name: entry for name, entry in methods().items() if entry.tokens is not None}


def commands() -> dict[str, str]:
    """The verbs that methods bring to the command line, and what each does in one sentence."""
    verbs = {entry.command: entry.does for entry in declared().values() if entry.command}
    for offer in _offers():
        _load(offer)
    ours = {entry.name for entry in declared().values()}
    return verbs | {
        entry.command: entry.does
        for name, entry in _known.items()
        if entry.command and name not in ours
    }


def with_command(verb: str) -> Method:
    """The method behind a verb."""
    for declaration in declared().values():
        if declaration.command == verb:
            return find(declaration.name)
    return next(entry for entry in methods().values() if entry.command == verb)


def _offers() -> Iterable[EntryPoint]:
    """Methods that other packages offer: a function of theirs, or a module that registers some."""
    ours = {declaration.module.rpartition(".")[0] for declaration in declared().values()}
    return (offer for offer in entry_points(group=GROUP) if offer.module not in ours)


@cache
def _load(offer: EntryPoint) -> None:
    """Import what a package offers; one that cannot be imported is named, and is no traceback."""
    from exhibit_a.methods.custom_methods import register

    try:
        offered = offer.load()
    except Exception as problem:  # a package's code can fail in any way
        raise ExhibitError(
            f"The method {offer.name!r} of an installed package ({offer.value}) cannot be loaded: "
            f"{first_line(problem)}. Mend or uninstall that package."
        ) from problem
    if inspect.isfunction(offered) and all(
        entry.function is not offered for entry in _known.values()
    ):
        register(offered, name=offer.name)
