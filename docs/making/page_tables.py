"""What tables and sentences of pages are made with: kept data, numbers with intervals, Markdown.

Data stand in docs/data; a file that is not there is an error. Cog blocks may call all of this.
"""

import ast
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from scipy import stats

from exhibit_a.numerics import intervals

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "studies"))  # behind: its names may be those of scripts here

from study import Measurement, kept  # noqa: E402

DATA, FIGURES = ROOT / "docs/data", ROOT / "docs/figures"
NONE = "–"
Interval = Sequence[float]


@cache
def read(name: str) -> Any:
    """A file of docs/data: all of a .json, the list of the lines of a .jsonl."""
    text = (DATA / name).read_text("utf-8")
    return (
        [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
    )


@cache
def ledger() -> dict[str, Measurement]:
    """The last measurement of every id."""
    return kept(DATA / "claims.jsonl")


def table(
    head: Sequence[object], body: Iterable[Sequence[object]], right: Sequence[int] = ()
) -> str:
    """A Markdown table, some of its columns aligned to the right."""
    rule = ["---:" if place in right else "---" for place in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *body))


def columns(rows: Iterable[Mapping[str, Any]], shown: Mapping[str, str]) -> str:
    """A table with a line for each row; what a column shows is a format of the row's fields."""
    return table([*shown], [[cell.format_map(row) for cell in shown.values()] for row in rows])


def cell(id: str, digits: int = 3, signed: bool = False) -> str:
    """A measurement of the ledger with its interval; a dash where it was not asked."""
    one = ledger().get(id)
    return ranged(one.value, one.interval, digits, signed) if one else NONE


def ranged(value: float, ends: Interval, digits: int = 3, signed: bool = False) -> str:
    """A number with its 95 % interval; without, where the interval is the number itself."""
    shape = f"{{:{'+' if signed else ''}.{digits}f}}"
    middle, low, high = (shape.format(one) for one in (value, *ends))
    return (middle if low == middle == high else f"{middle} ({low} – {high})").replace("-", "−")


def share(value: float, ends: Interval | None = None) -> str:
    """A part of a whole in per cent."""
    known = ends is not None and tuple(ends) != (value, value)
    said = f"{value:.1%} ({ends[0]:.1%} – {ends[1]:.1%})" if known else f"{value:.1%}"
    return said.replace("%", " %")


def wilson(value: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many."""
    low, high = intervals.wilson(torch.tensor(value), count).tolist()
    return low, high


def paired(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """A mean of differences with its 95 % interval, by Student's t."""
    middle = mean(values)
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return middle, (middle - half, middle + half)


def told_apart(ends: Mapping[str, Interval], above: str, below: str, open_: str) -> str:
    """A sentence about differences: where the whole interval is above 0, below it, or neither."""
    words: dict[str, list[str]] = {above: [], below: [], open_: []}
    for name, (low, high) in ends.items():
        words[above if low > 0 else below if high < 0 else open_].append(name)
    return " ".join(f"{said}: {listed(names)}." for said, names in words.items() if names)


def listed(names: Iterable[str]) -> str:
    """Names in a row."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def commands(ids: Iterable[str]) -> str:
    """What measured these, as a block of code."""
    used = dict.fromkeys(ledger()[id].command for id in ids)
    return "\n".join(["```", *used, "```"])


def usage(study: str) -> str:
    """The calls that the first lines of a study name, as a block of code."""
    said = ast.get_docstring(ast.parse((ROOT / "studies" / study).read_text("utf-8"))) or ""
    calls = [line.strip() for line in said.splitlines() if line.strip().startswith("python ")]
    return "\n".join(["```", *calls, "```"])
