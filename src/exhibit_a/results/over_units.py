"""Turns a result over tokens into the same result over words, sentences or passages.

Every class of results says what becomes of each field that has tokens along an axis:

    sum         attributions: added up over all such axes, so that nothing is lost or gained
    map         attention: the mean over the tokens that look, the sum over those looked at
    mean        a number of each row: the mean over the rows of a unit
    largest     … or smallest: where a unit is as doubtful as the most doubtful of its rows
    all         marks: true where they are for all tokens of a unit
    names       the names of tokens, as a tuple or by stack
    result      a result inside the result, over units as well
    leave out   what exists for tokens only; kept where every unit is one token

Fields without such an axis stay as they are: they were measured on tokens; so do rows that were
requested one by one. Sums are taken in float64. The checks say which units were taken, and where
the places of tokens are uncertain.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.trace.units import Units, UnitSpec, units_of

if TYPE_CHECKING:
    from exhibit_a.results.result import Result

Rule = Literal["sum", "map", "mean", "largest", "smallest", "all", "names", "result", "leave out"]
Rules = dict[str, Rule]  # by field
LOOKED_AT = ("key", "source")  # axes over which a map is added up
REDUCTIONS = {"largest": "amax", "smallest": "amin", "all": "amin"}


def over_units(result: "Result", by: UnitSpec) -> Any:
    """The same result over units of its text."""
    kind = type(result).__name__
    tensors = [leaf for leaf in leaves(result) if set(leaf.dims) & set(result.token_axes)]
    if not result.unit_rules or not {leaf.field for leaf in tensors} <= set(result.unit_rules):
        raise NotComputableError(
            f"{kind} has no sums over words: what it says of tokens are not shares of a whole."
        )
    if not result.layouts:
        raise NotComputableError(
            f"This {kind} knows no text, and so no words: its input was no text, its model has no "
            "tokenizer, or its file is of an earlier version."
        )
    return _Uniting(result, by, tensors).result()


class _Uniting:
    """A result on its way from tokens to units."""

    def __init__(self, result: "Result", by: UnitSpec, tensors: list[Leaf]) -> None:
        self.tokens, self.by, self.tensors = result, by, tensors
        read, *others = result.layouts.values()
        self.units = {read.names: units_of(read, by)}
        for layout in others:  # spans and messages are those of what the model reads
            shared = isinstance(by, str) and by != "message"
            self.units.setdefault(layout.names, units_of(layout, by if shared else layout.unit))

    def result(self) -> "Result":
        """The result over units."""
        before = self.tokens
        changed: dict[str, Any] = {name: self.field(name) for name in before.unit_rules}
        return replace(
            before,
            tokens=self.renamed(before.tokens),
            layouts={
                stack: self.units[layout.names].layout for stack, layout in before.layouts.items()
            },
            checks=before.checks | {"units": units_in_words(self.by, self.units.values())},
            **changed,
        )

    def field(self, name: str) -> object:
        """One field of the result over units."""
        value, rule = getattr(self.tokens, name), self.tokens.unit_rules[name]
        if rule == "leave out":
            alike = all(len(units.layout) == len(units.of) for units in self.units.values())
            return value if alike else type(value)()
        if rule == "names":
            return self.renamed(value)
        if rule == "result":
            return None if value is None else value.by(self.by)
        tensors = (self.grouped(leaf, rule) for leaf in self.tensors if leaf.field == name)
        return _rebuilt(value, tensors)

    def renamed(self, value: Any) -> Any:
        """Names of tokens, alone or by stack, as names of units."""
        if isinstance(value, dict):
            return {key: self.renamed(names) for key, names in value.items()}
        return self.units[value].layout.names if value in self.units else value

    def grouped(self, leaf: Leaf, rule: str) -> Tensor:
        """A tensor over units along every axis of tokens; all of these axes must be known."""
        tokens, tensor = self.tokens.tokens_along(leaf), leaf.tensor
        for axis in (axis for axis in leaf.dims if axis in self.tokens.token_axes):
            if axis == "query" and getattr(self.tokens, "rows", None) is not None:
                continue  # rows that were requested one by one stay so
            units = self.units.get(tokens.get(axis, ()))
            if units is None:
                raise NotComputableError(
                    f"The {axis} axis of {leaf.field} is not known to be a text; it has no words."
                )
            if len(units.layout) < len(units.of):
                how = rule if rule != "map" else "sum" if axis in LOOKED_AT else "mean"
                tensor = grouped(tensor, leaf.dims.index(axis), units, how)
        return tensor.to(leaf.tensor.dtype).to(leaf.tensor.device)


def grouped(tensor: Tensor, dim: int, units: Units, how: str) -> Tensor:
    """A tensor over units along one of its axes.

    >>> units = Units(trace.layouts["encoder"], (0, 0, 1))  # of whose tokens the first two are one
    >>> grouped(torch.tensor([1.0, 2.0, 4.0]), 0, units, "sum")[:2]
    tensor([3., 4.], dtype=torch.float64)
    >>> grouped(torch.tensor([1.0, 2.0, 4.0]), 0, units, "largest")[:2]
    tensor([2., 4.], dtype=torch.float64)
    """
    rows = to_float64(tensor).movedim(dim, 0)
    of = torch.tensor(units.of, device=rows.device)
    shape = (len(units.layout), *rows.shape[1:])
    if how in REDUCTIONS:
        index = of.reshape(-1, *[1] * (rows.ndim - 1)).expand_as(rows)
        empty = rows.new_zeros(shape)
        united = empty.scatter_reduce(0, index, rows, REDUCTIONS[how], include_self=False)
        return united.movedim(0, dim)
    united = rows.new_zeros(shape).index_add_(0, of, rows)
    if how == "mean":
        united = united / of.bincount(minlength=shape[0]).reshape(-1, *[1] * (rows.ndim - 1))
    return united.movedim(0, dim)


def _rebuilt(value: object, tensors: Iterator[Tensor]) -> object:
    """A field with other tensors in the places of its own."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple):
        return tuple(_rebuilt(entry, tensors) for entry in value)
    return value


def units_in_words(by: UnitSpec, taken: Iterable[Units]) -> str:
    """Which units were taken, and what is uncertain about them.

    >>> units_in_words("word", [units_of(trace.layouts["encoder"])])
    'words'
    >>> ids = xa.capture(subject, {"input_ids": trace.inputs["input_ids"]})
    >>> units_in_words("word", [units_of(ids.layouts["encoder"])])
    'words from decoded pieces: token ids were given, and not their text'
    """
    units = f"{by}s" if isinstance(by, str) else "spans of the text"
    warnings = dict.fromkeys(entry.layout.warning for entry in taken if entry.layout.warning)
    return f"{units} from decoded pieces: {'; '.join(warnings)}" if warnings else units
