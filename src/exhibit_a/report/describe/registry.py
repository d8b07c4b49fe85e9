"""Finds the function that describes a result: by its class, or the nearest one it extends."""

from dataclasses import replace
from functools import singledispatch

from exhibit_a.report.blocks import Blocks, Table, main_table
from exhibit_a.report.describe.any_result import any_result
from exhibit_a.results.result import Result


@singledispatch
def describe(result: Result) -> Blocks:
    """The blocks of a result; kinds with a description of their own are registered with this."""
    return any_result(result)


def summary_table(result: Result, top: int | None = None) -> Table:
    """The table that sums a result up, with the ``top`` rows of a ranking, or as many as usual."""
    table = main_table(describe(result)) or Table("", (), [])
    rows, title = table.first(top), table.title
    if table.rank is not None and isinstance(table.rows, list) and len(rows) < len(table.rows):
        title = f"{title}, {len(rows)} of {len(table.rows)} rows"
    return replace(table, title=title, rows=rows, shown=None, heads=())
