"""Which rows summarise a result whose kind has no summary of its own?

1. The first field with numbers decides what a row is: a token, a head, a site …, one place on all
   axes of its tensors. Maps from tokens to tokens give one row for each head.
2. Every field with the same axes is a column. Of a map, the largest entry is shown, and the tokens
   between which it stands.
3. Of a result without tensors, the plain values are shown.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import groupby, product

from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.table import Row, Rows
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf, leaves

LONGEST = 40  # rows

Place = tuple[int | str, ...]


def any_rows(result: Result, top: int | None = None) -> tuple[Rows, int]:
    """The rows of any result, at most ``top`` of them, and how many there are in all."""
    table: dict[Place, Row] = {}
    axes: tuple[str, ...] | None = None
    for _, group in groupby(leaves(result), lambda leaf: leaf.field):
        tensors = [leaf for leaf in group if leaf.tensor.numel()]
        if not tensors:
            continue
        axes = axes or _row_axes(tensors[0])
        for leaf in tensors:
            if _row_axes(leaf) == axes:
                _enter(table, result, leaf)
    if axes is None or not table:
        return _values(result)
    rows = _rectangular(table.values())
    if top is not None:
        rows = sorted(rows, key=_weight, reverse=True)
    return rows[: LONGEST if top is None else top], len(rows)


def _row_axes(leaf: Leaf) -> tuple[str, ...]:
    return leaf.axes[:-2] if _is_map(leaf) else leaf.axes


def _is_map(leaf: Leaf) -> bool:
    return leaf.tensor.ndim >= 2 and leaf.dims[-2:] in (("query", "key"), ("target", "source"))


def _enter(table: dict[Place, Row], result: Result, leaf: Leaf) -> None:
    """Add a tensor's numbers to the rows of their places; rows that are missing are begun."""
    tokens = result.tokens_along(leaf)
    names = _row_axes(leaf)[len(leaf.where) :]
    for position, numbers in _entries(leaf, len(names)):
        place: Place = (*leaf.where.values(), *position)
        row = table.setdefault(place, {})
        for axis, label in (*leaf.where.items(), *zip(names, position, strict=True)):
            row |= _named(axis, label, tokens.get(axis))
        row |= _largest(leaf, numbers, tokens) if numbers.ndim else {leaf.field: numbers.item()}


def _entries(leaf: Leaf, depth: int) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Every number of a tensor, or every map, behind its position on the first axes."""
    tensor = leaf.tensor.detach().cpu()
    for position in product(*map(range, tensor.shape[:depth])):
        yield position, tensor[position]


def _named(axis: str, label: int | str, tokens: tuple[str, ...] | None) -> Row:
    """A place on an axis, with the token that stands there."""
    if tokens is None or not isinstance(label, int):
        return {axis: label}
    place, word = ("position", "token") if axis == "token" else (axis, f"{axis}_token")
    return {place: label, word: tokens[label]}


def _largest(leaf: Leaf, scores: Tensor, tokens: dict[str, tuple[str, ...]]) -> Row:
    """The entry of a map with the largest absolute value, and where it stands."""
    flat = int(to_float64(scores).nan_to_num().abs().argmax())
    places = dict(zip(leaf.dims[-2:], divmod(flat, scores.shape[-1]), strict=True))
    between = {
        f"{leaf.field}_{axis}": tokens[axis][place] if axis in tokens else place
        for axis, place in places.items()
    }
    return {f"{leaf.field}_largest": scores.flatten()[flat].item(), **between}


def _rectangular(rows: Iterable[Row]) -> Rows:
    """The rows that hold a number, all with the same columns; what one of them lacks is None."""
    columns: Row = {}
    full = []
    for row in rows:
        floats = [cell for cell in row.values() if isinstance(cell, float)]
        if not floats or not all(map(math.isnan, floats)):
            full.append(row)
            columns |= dict.fromkeys(row)
    return [columns | row for row in full]


def _weight(row: Row) -> float:
    """The absolute value of the first number that is not a position."""
    numbers = [abs(cell) for cell in row.values() if isinstance(cell, float)]
    return numbers[0] if numbers and not math.isnan(numbers[0]) else 0.0


def _values(result: Result) -> tuple[Rows, int]:
    rows: Rows = [
        {"what": name, "value": value}
        for name, value in vars(result).items()
        if isinstance(value, str | int | float | bool)
    ]
    return rows, len(rows)
