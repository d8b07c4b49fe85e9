"""What several descriptions share: tables from columns, a row for each head, and sites.

A column is written as a ``Column``, or by its key where the key says everything.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.blocks import Cell, Column, Head, MapSite, Point, Row, Rows, SiteMaps, Table
from exhibit_a.shapes import SiteHeads
from exhibit_a.subject import anatomy
from exhibit_a.subject.anatomy import key_stack, layer_name, layer_number

TOP = 12  # edges and heads

Columns = Mapping[Any, Iterable[Cell] | Tensor]  # by Column, or by key
HeadColumns = Mapping[Any, Sequence[Tensor] | Tensor]


@runtime_checkable
class OnSites(Protocol):
    """A result about the attention sites of one text."""

    @property
    def sites(self) -> tuple[anatomy.Site, ...]:
        """The sites, in the order the model calls them."""

    @property
    def sequences(self) -> dict[str, tuple[str, ...]]:
        """The tokens of each stack."""


def column(given: str | Column) -> Column:
    """A column, from its key where that is its name, too."""
    return given if isinstance(given, Column) else Column(given, given.replace("_", " "))


def from_rows(title: str, rows: Rows, caption: str = "", **columns: Column) -> Table:
    """A table of rows by key; ``columns`` describes those whose key is not their name."""
    known = tuple(columns.get(key, column(key)) for key in (rows[0] if rows else ()))
    return Table(title, known, rows, caption)


def from_columns(title: str, columns: Columns, caption: str = "") -> Table:
    """A table with a row for each entry that all columns have; pairs of numbers are one cell.

    >>> shuffled = {"shuffled": ["layer 0"], "interval": torch.tensor([[0.25, 0.5]])}
    >>> from_columns("accuracy", shuffled).rows
    [{'shuffled': 'layer 0', 'interval': (0.25, 0.5)}]
    """
    known = [column(given) for given in columns]
    cells = [_cells(values) for values in columns.values()]
    keys = [each.key for each in known]
    rows: Rows = [dict(zip(keys, row, strict=True)) for row in zip(*cells, strict=True)]
    return Table(title, tuple(known), rows, caption)


def of_heads(
    title: str, sites: Sequence[anatomy.Site], columns: HeadColumns, by: Sequence[SiteHeads]
) -> Table:
    """A row for each head with its number in every column; those with the largest ``by`` first."""
    heads = strongest_heads(by)
    known_columns = [column("layer"), column("head"), *map(column, columns)]
    rows: Rows = [
        {"layer": layer_number(sites[site], sites), "head": head}
        | {column(given).key: known(numbers[site][head]) for given, numbers in columns.items()}
        for site, head in heads
    ]
    return Table(title, tuple(known_columns), rows, shown=TOP, heads=tuple(heads))


def strongest_heads(numbers: Sequence[SiteHeads]) -> list[Head]:
    """All heads, those with the largest numbers first."""
    places = [(site, head) for site, heads in enumerate(numbers) for head in range(len(heads))]
    size = torch.cat([to_float64(heads).nan_to_num().abs() for heads in numbers])
    return [places[place] for place in size.argsort(descending=True, stable=True).tolist()]


def by_layer(numbers: Sequence[SiteHeads], sites: Sequence[anatomy.Site]) -> Tensor:
    """Sites by heads; nothing where a site has fewer heads than others."""
    heads = max(site.heads for site in sites)
    table = torch.full((len(numbers), heads), torch.nan, dtype=torch.double)
    for row, site in zip(table, numbers, strict=True):
        row[: len(site)] = to_float64(site)
    return table


def layers(sites: Sequence[anatomy.Site]) -> tuple[str, ...]:
    """The names of all sites."""
    return tuple(layer_name(site, sites) for site in sites)


def head_numbers(sites: Sequence[anatomy.Site]) -> tuple[str, ...]:
    """The numbers of the heads, as many as any site has."""
    return tuple(map(str, range(max(site.heads for site in sites))))


def sites_of(result: OnSites, maps: SiteMaps) -> tuple[MapSite, ...]:
    """The sites of a result, with the tokens along the axes of their maps where these are known."""
    found = []
    for site, scores in zip(result.sites, maps, strict=True):
        name, keys = layer_name(site, result.sites), key_stack(site, result.sequences)
        names = (result.sequences[site.stack], result.sequences[keys])
        if hasattr(result, "tokens_of"):
            names = result.tokens_of(site.index)
        queries, looked_at = (
            tokens if len(tokens) == size else tuple(map(str, range(size)))
            for tokens, size in zip(names, scores.shape[1:], strict=True)
        )
        found.append(MapSite(name.capitalize(), name, site.stack, keys, names=(queries, looked_at)))
    return tuple(found)


def means(tensors: Iterable[Tensor]) -> list[float]:
    """The mean of each."""
    return [float(numbers.mean()) for numbers in tensors]


def known_means(tensors: Iterable[Tensor]) -> list[float]:
    """The mean of each, over the numbers that there are."""
    return [float(numbers.nanmean()) for numbers in tensors]


def known(number: Tensor) -> float | None:
    """A number, or nothing where it was not measured."""
    return None if bool(number.isnan()) else float(number)


def points(numbers: Iterable[object], places: Iterable[float] | None = None) -> tuple[Point, ...]:
    """Numbers over their places, or over 0, 1, 2 …"""
    heights = [float(number) for number in numbers]  # type: ignore[arg-type]
    return tuple(
        zip(range(len(heights)) if places is None else map(float, places), heights, strict=False)
    )


def pairs(ends: Tensor) -> tuple[Point, ...]:
    """The low and high end of every interval."""
    return tuple((low, high) for low, high in ends.tolist())


def size_of(key: str) -> Callable[[Row], float]:
    """Ranks rows by the absolute value of one number; what was not measured counts as 0."""

    def size(row: Row) -> float:
        value = row.get(key)
        known_value = isinstance(value, int | float) and not math.isnan(value)
        return abs(value) if known_value else 0.0  # type: ignore[arg-type]

    return size


def _cells(values: Iterable[Cell] | Tensor) -> Iterable[Cell]:
    if not isinstance(values, Tensor):
        return values
    cells: list[Cell] = [tuple(row.tolist()) if row.ndim else row.item() for row in values]
    return cells
