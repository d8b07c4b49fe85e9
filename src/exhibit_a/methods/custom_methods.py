"""Functions of a user's own as methods like ours.

``register`` takes a function from a trace to a score for each token, or to a map for each head, and
gives it the same rights: it can be named in ``companions``, ``faithfulness`` and ``corpus.run``,
its results are saved, plotted and shown, and a package that offers it by entry point brings it to
the command line as well. What it returns is checked: a wrong shape, a number that is none, or an
error of its own is one clear line with its name.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, ExhibitError, first_line, require_choice
from exhibit_a.methods.options import Function
from exhibit_a.methods.registry import (
    YOURS,
    Cost,
    Gives,
    Method,
    add,
    find,
    require_all_rows,
)
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import Result, SiteResult
from exhibit_a.shapes import Options, SiteMap
from exhibit_a.subject.guard import method_modes
from exhibit_a.trace.answer_rows import one_stack, readout
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, choose_target

Scores = Float[Tensor, " token"]
Checks = dict[str, Any]
STANDARD_ERROR = "standard error"  # among the checks of a method: one for each token


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenAttribution(Result):
    """How much each input token speaks for the target, by one method."""

    unit_rules: ClassVar[dict[str, Rule]] = {
        "scores": "sum",
        "standard_error": "sum",  # of a sum at most the sum of theirs
    }
    method: str
    target: str
    scores: Scores  # of each token
    standard_error: Scores | None = None  # of the scores, where they are estimates


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadMaps(SiteResult):
    """A map for every head, by one method."""

    unit_rules: ClassVar[dict[str, Rule]] = {"maps": "map", "sequences": "names"}
    method: str
    maps: tuple[SiteMap, ...]  # what the function gave


def register(
    function: Function,
    *,
    name: str | None = None,
    gives: str = "tokens",
    question: str = "",
    needs: Sequence[str] = (),
    cost: Cost = Cost(forwards=1),  # noqa: B008 (frozen)
    command: str | None = None,
) -> Function:
    """Make a function of your own a method, everywhere a method can be named.

    >>> def length(trace):
    ...     return torch.tensor([float(len(token)) for token in trace.tokens])
    >>> _ = register(length, name="length")
    >>> xa.companions(trace, methods=["length"])["length"].scores[:3]
    tensor([5., 1., 8.])
    >>> xa.faithfulness(subject, examples[:2], attribution="length").attributions
    ('length', 'random')

    Args:
        function: takes a trace, and the target if it has a parameter of that name; further
            parameters with defaults become options.
        name: what it is called; without, the function's own name.
        gives: "tokens", a score for each token, or "maps", for each site a (head, query, key) map.
        question: the question it answers, for tables; without, the first line of its docstring.
        needs: what must be kept or known, such as "attention" or "target".
        cost: what one text costs.
        command: its verb on the command line; without, its name.
    """
    title = str(name or getattr(function, "__name__", ""))
    if not callable(function) or not title.replace("-", "_").isidentifier():
        raise BadRequestError(
            f"A method is a function with a name made of letters, digits and _; {title!r} is none."
        )
    try:
        inspect.signature(function)
    except ValueError as problem:  # some that are built in do not say what they take
        raise BadRequestError(f"A method says what it takes, and {title!r} does not.") from problem
    require_choice("kind of method", gives, ("tokens", "maps"))
    kind: Gives = "maps" if gives == "maps" else "tokens"
    requested = question or (inspect.getdoc(function) or title).split("\n")[0]
    verb = command or title.replace("_", "-")
    entry = Method(title, requested, YOURS, function, kind, tuple(needs), cost, verb)
    add(Method(**{**vars(entry), "tokens": _last_rows(entry) if gives == "maps" else function}))
    return function


@method_modes()
def result_of(
    method: Method | str, trace: Trace, target: Target | None = None, **options: Any
) -> Result:
    """What a method says about a trace, as a result: its own, token scores or maps."""
    entry = find(method) if isinstance(method, str) else method
    if entry.gives == "result":
        given = {"target": target} if "target" in entry.options and target is not None else {}
        made: Result = entry.function(trace, **given, **options)
        return made
    seed = options.get("seed")
    if entry.gives == "maps":
        return build_result(
            HeadMaps,
            trace,
            entry.name,
            seed=seed,
            method=entry.name,
            maps=head_maps(entry, trace, **options),
        )
    return attribution_of(entry, trace, target or choose_target(trace), **options)


def attribution_of(entry: Method, trace: Trace, target: Target, **options: Any) -> TokenAttribution:
    """A method's score for each token, as a result."""
    scores, checks = token_scores(entry, trace, target, **options)
    used = {name: value for name, value in options.items() if name != "seed"}
    error = checks.pop(STANDARD_ERROR, None)
    return build_result(
        TokenAttribution,
        trace,
        entry.name,
        seed=options.get("seed"),
        settings={"target": str(target), **used},
        checks=checks,
        method=entry.name,
        target=str(target),
        scores=scores.detach().cpu(),
        standard_error=error,
    )


def token_scores(
    entry: Method, trace: Trace, target: Target, **options: object
) -> tuple[Scores, Checks]:
    """A method's score for each token, and its checks; anything else it returns is refused."""
    assert entry.tokens is not None
    returned = _called(entry, entry.tokens, trace, target, options)
    scores, checks = (
        returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
    )
    tensor = _as_tensor(entry, scores)
    if tensor.shape != (len(trace.tokens),) or not bool(tensor.isfinite().all()):
        raise BadRequestError(
            f"The method {entry.name!r} gave {_shape(tensor)} scores for {len(trace.tokens)} "
            "tokens, or some that are not numbers; give one finite number for each token."
        )
    if not isinstance(checks, Mapping):
        raise BadRequestError(
            f"The method {entry.name!r} gave {checks!r} with its scores; give a dictionary of "
            "checks, or the scores alone."
        )
    error = checks.get(STANDARD_ERROR, tensor)
    if not isinstance(error, Tensor) or error.shape != tensor.shape:
        raise BadRequestError(
            f"The method {entry.name!r} gave a standard error that is not one number for each "
            "token."
        )
    return tensor, dict(checks)


def head_maps(entry: Method, trace: Trace, **options: object) -> tuple[SiteMap, ...]:
    """A method's map for every head of every site; anything else it returns is refused."""
    maps = _called(entry, entry.function, trace, None, options)
    shapes = [
        (site.heads, *seen.shape) for site, seen in zip(trace.sites, trace.visible, strict=True)
    ]
    checked = (
        tuple(_as_tensor(entry, site_map) for site_map in maps)
        if isinstance(maps, list | tuple)
        else ()
    )
    if [tuple(site_map.shape) for site_map in checked] != shapes:
        given = ", ".join(map(_shape, checked)) or "no shape"
        raise BadRequestError(
            f"The method {entry.name!r} gave maps of {given}; give a list with one (head, query, "
            f"key) map for each site: {shapes}."
        )
    if not all(bool(site_map.isfinite().all()) for site_map in checked):
        raise BadRequestError(
            f"The method {entry.name!r} gave maps with entries that are not numbers."
        )
    return checked


def _last_rows(entry: Method) -> Callable[..., Scores]:
    """Maps as token scores: the rows that the answer is read from, last layer, mean over heads."""

    def tokens(trace: Trace, target: Target, **options: object) -> Scores:
        one_stack(trace)
        last = head_maps(entry, trace, **options)[-1].abs().mean(0)
        return readout(trace, target).to(last) @ last

    return tokens


def _called(
    entry: Method,
    function: Function,
    trace: Trace,
    target: Target | None,
    options: Options,
) -> Any:
    """What the function returns, given what it has parameters for."""
    places = inspect.signature(function).parameters
    anything = any(place.kind is place.VAR_KEYWORD for place in places.values())
    given = {name: value for name, value in options.items() if anything or name in places}
    if target is not None and ("target" in places or anything):
        given["target"] = target
    kept = [name for name in ("attention", "values", "hidden", "keys") if name in entry.needs]
    if not entry.rows:
        require_all_rows(entry.name, trace)
    try:
        with method_modes():
            return function(trace.keeping(*kept), **given)
    except ExhibitError:
        raise
    except Exception as problem:  # a user's code can fail in any way
        if entry.room != YOURS:
            raise
        raise BadRequestError(
            f"The method {entry.name!r} failed: {type(problem).__name__}: {first_line(problem)}"
        ) from problem


def _as_tensor(entry: Method, numbers: object) -> Tensor:
    try:
        tensor = torch.as_tensor(np.asarray(numbers) if isinstance(numbers, list) else numbers)
        if tensor.is_complex():
            raise TypeError("complex numbers have no order")
        return tensor.float()
    except (TypeError, ValueError, RuntimeError) as problem:
        raise BadRequestError(
            f"The method {entry.name!r} gave a {type(numbers).__name__}, and not an array of "
            "numbers."
        ) from problem


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "no"
