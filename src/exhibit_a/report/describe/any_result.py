"""Describes any result by its fields: maps, and a table for each set of axes that fields share.

1. The first field whose tensors have rows and columns becomes maps, and so does every later field
   with the same shapes: each is one mode of the same maps.
2. The first axes decide what a row of a table is: a token, a head, a layer … Every field with the
   same axes is a column. Of a map, the largest entry is a cell, and the tokens between which it
   stands.
3. Plain values are a table of their own.
"""

import math
from collections.abc import Iterator
from itertools import groupby, islice, product

from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.blocks import Blocks, Maps, MapSite, Mode, Row, Rows, Table, Texts
from exhibit_a.report.describe.parts import OnSites, column
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.subject.anatomy import layer_name

LONGEST = 40  # rows of a table, where no number of them is requested
MOST = 100_000  # rows that are made of any field
SMALLEST = 4  # rows and columns from which numbers are better seen as a map

Place = tuple[int | str, ...]


def any_result(result: Result) -> Blocks:
    """Tables and maps of any result; the first table sums it up."""
    tables, facts = _tables(result), _facts(result)
    return (*tables, *([facts] if facts.rows else []), *maps_of(result))


def maps_of(result: Result) -> Blocks:
    """The first field with rows and columns as maps, with all fields of the same shapes."""
    fields = {name: list(group) for name, group in groupby(leaves(result), lambda leaf: leaf.field)}
    sizes = {
        name: [leaf.tensor.shape[-2:] if leaf.tensor.ndim >= 2 else (0,) for leaf in found]
        for name, found in fields.items()
    }
    mapped = [name for name, each in sizes.items() if each and min(map(min, each)) >= SMALLEST]
    if not mapped:
        return ()
    first = fields[mapped[0]]
    alike = [
        name
        for name in mapped
        if [leaf.tensor.shape for leaf in fields[name]] == [leaf.tensor.shape for leaf in first]
    ]
    sequences: dict[str, tuple[str, ...]] = {}
    sites = tuple(_site(result, leaf, place, sequences) for place, leaf in enumerate(first))
    modes = tuple(
        Mode(
            name,
            name.replace("_", " "),
            tuple(_numbers(leaf).reshape(-1, *leaf.tensor.shape[-2:]) for leaf in fields[name]),
        )
        for name in alike
    )
    return Texts(sequences), Maps(modes, sites)


def _site(result: Result, leaf: Leaf, place: int, sequences: dict[str, tuple[str, ...]]) -> MapSite:
    """Where a tensor stands; the tokens along its axes are added to ``sequences``."""
    tokens = result.tokens_along(leaf)
    along, names = [], []
    for axis, size in zip(leaf.dims[-2:], leaf.tensor.shape[-2:], strict=True):
        known = tokens.get(axis)
        names.append(known or tuple(map(str, range(size))))
        along.append(_sequence_name(sequences, known))
    where = ", ".join(_place(result, axis, label) for axis, label in leaf.where.items())
    name = where or leaf.field.replace("_", " ")
    return MapSite(name, str(place), along[0], along[1], names=(names[0], names[1]))


def _place(result: Result, axis: str, label: int | str) -> str:
    """Where a tensor stands: a site is called by its layer, as everywhere."""
    if axis != "site":
        return f"{axis} {label}"
    if isinstance(result, OnSites) and isinstance(label, int):
        return layer_name(result.sites[label], result.sites)
    return f"layer {label}"


def _sequence_name(sequences: dict[str, tuple[str, ...]], tokens: tuple[str, ...] | None) -> str:
    """The name of these tokens, which are added where they are new; "" if there are none."""
    if tokens is None:
        return ""
    for name, known in sequences.items():
        if known == tokens:
            return name
    name = f"tokens {len(sequences)}"
    sequences[name] = tokens
    return name


def _facts(result: Result) -> Table:
    rows: Rows = [
        {"what": name, "value": value}
        for name, value in vars(result).items()
        if isinstance(value, str | int | float | bool)
    ]
    return Table("In short", (column("what"), column("value")), rows)


def _tables(result: Result) -> list[Table]:
    """A table for each set of axes."""
    by_axes: dict[tuple[str, ...], dict[Place, Row]] = {}
    for leaf in leaves(result):
        if leaf.tensor.numel():
            _enter(by_axes.setdefault(_row_axes(leaf), {}), result, leaf)
    title = f"{result.provenance.method.replace('_', ' ')} of {result.provenance.model}"
    tables = list[Table]()
    for axes, table in by_axes.items():
        # The rows that hold a number, all with the same columns; what one of them lacks is None.
        every: Row = {}
        full = []
        for row in table.values():
            floats = [cell for cell in row.values() if isinstance(cell, float)]
            if not floats or not all(map(math.isnan, floats)):
                full.append(row)
                every |= dict.fromkeys(row)
        rows = [every | row for row in full]
        if rows:
            name = title if not tables else f"For each {', '.join(axes) or 'text'}"
            columns = tuple(map(column, rows[0]))
            tables.append(Table(name, columns, rows, shown=LONGEST, rank=_size))
    return tables


def _row_axes(leaf: Leaf) -> tuple[str, ...]:
    is_map = leaf.tensor.ndim >= 2 and leaf.dims[-2:] in (("query", "key"), ("target", "source"))
    return leaf.axes[:-2] if is_map else leaf.axes


def _enter(table: dict[Place, Row], result: Result, leaf: Leaf) -> None:
    """Add a tensor's numbers to the rows of their places; rows that are missing are begun."""
    tokens = result.tokens_along(leaf)
    names = _row_axes(leaf)[len(leaf.where) :]
    for position, numbers in islice(_entries(leaf, len(names)), MOST):
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


def _size(row: Row) -> float:
    """The absolute value of the first number that is not a position."""
    numbers = [abs(cell) for cell in row.values() if isinstance(cell, float)]
    return numbers[0] if numbers and not math.isnan(numbers[0]) else 0.0


def _numbers(leaf: Leaf) -> Tensor:
    return leaf.tensor.detach().cpu().float()
