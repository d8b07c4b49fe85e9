"""Which title and which rows does the command line print for this result?

``top`` limits the rows where a result ranks them: attention edges, heads, patterns, tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.any_rows import any_rows
from exhibit_a.report.table import Cell, Rows
from exhibit_a.results.result import Result
from exhibit_a.shapes import SiteHeads
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.site_names import layer_number

TOP = 12  # edges and heads

Head = tuple[int, int]  # site, head
Columns = dict[str, Iterable[Cell] | Tensor]  # by their headings


@dataclass(frozen=True)
class Summary:
    """What stands above a table, and its rows: a value for every column."""

    title: str
    rows: Rows


@singledispatch
def summary_rows(result: Result, top: int | None = None) -> Summary:
    """The title and the rows that the command line prints for a result."""
    rows, total = any_rows(result, top)
    title = f"{result.provenance.method.replace('_', ' ')} of {result.provenance.model}"
    return Summary(title if len(rows) == total else f"{title}, {len(rows)} of {total} rows", rows)


def from_columns(columns: Columns) -> Rows:
    """A row for each entry that all columns have; pairs of numbers are one cell.

    >>> from_columns({"shuffled": ["layer 0"], "interval": torch.tensor([[0.25, 0.5]])})
    [{'shuffled': 'layer 0', 'interval': (0.25, 0.5)}]
    """
    cells = [_cells(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def columns_of(result: Result, headings: str) -> Columns:
    """Fields of a result as columns: ``accuracy``, or ``p=p_value`` under a heading of its own."""
    pairs = [heading.partition("=") for heading in headings.split()]
    return {heading: getattr(result, field or heading) for heading, _, field in pairs}


def of_heads(
    sites: Sequence[Site], heads: Iterable[Head], columns: Mapping[str, Sequence[Tensor] | Tensor]
) -> Rows:
    """A row for each head, with its number in every column; nothing where it was not measured."""
    return [
        {"layer": layer_number(sites[site], sites), "head": head}
        | {name: known(numbers[site][head]) for name, numbers in columns.items()}
        for site, head in heads
    ]


def means(tensors: Iterable[Tensor]) -> list[float]:
    """The mean of each."""
    return [float(numbers.mean()) for numbers in tensors]


def known_means(tensors: Iterable[Tensor]) -> list[float]:
    """The mean of each, over the numbers that there are."""
    return [float(numbers.nanmean()) for numbers in tensors]


def strongest_heads(numbers: tuple[SiteHeads, ...], top: int | None) -> list[Head]:
    """The heads with the largest numbers, the largest first."""
    places = [(site, head) for site, heads in enumerate(numbers) for head in range(len(heads))]
    size = torch.cat([to_float64(heads).nan_to_num().abs() for heads in numbers])
    ranked = size.argsort(descending=True, stable=True).tolist()
    return [places[place] for place in ranked[: TOP if top is None else top]]


def known(number: Tensor) -> float | None:
    """A number, or nothing where it was not measured."""
    return None if bool(number.isnan()) else float(number)


def _cells(column: Iterable[Cell] | Tensor) -> Iterable[Cell]:
    if not isinstance(column, Tensor):
        return column
    cells: list[Cell] = [tuple(row.tolist()) if row.ndim else row.item() for row in column]
    return cells
