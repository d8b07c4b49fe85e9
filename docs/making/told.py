"""What pages of measured numbers share: how kept data are read, and how numbers are written.

``tasks.py``, ``gold.py`` and ``sizes.py`` beside this file write their pages with it. A number on
such a page stands in docs/data; what has not been measured yet is named as such.
"""

import ast
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy import stats

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "studies"))  # behind: its names may be those of scripts here

from study import Measurement, kept  # noqa: E402

DATA, FIGURES = ROOT / "docs/data", ROOT / "docs/figures"
MISSING = "*Not measured yet.*"
NONE = "–"
Known = Mapping[str, Measurement]
Rows = list[dict[str, Any]]


def ledger() -> Known:
    """The last measurement of every id."""
    return kept(DATA / "claims.jsonl")


def lines(name: str) -> Rows:
    """The lines of a data file; none if it is not there."""
    file = DATA / name
    return (
        [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    )


def numbers(name: str) -> dict[str, Any]:
    """The parts of a data file; none if it is not there."""
    file = DATA / name
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table, or that there is nothing to put into it."""
    if not body:
        return MISSING
    written = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in written)


def cell(id: str, known: Known, digits: int = 3, signed: bool = False) -> str:
    """A measurement with its interval, as a cell of a table."""
    return ranged(known[id].value, known[id].interval, digits, signed) if id in known else NONE


def ranged(value: float, ends: Sequence[float], digits: int = 3, signed: bool = False) -> str:
    """A number with its 95 % interval; without, where the interval is the number itself."""
    shape = f"{{:{'+' if signed else ''}.{digits}f}}"
    middle, low, high = (shape.format(one) for one in (value, *ends))
    said = middle if low == middle == high else f"{middle} ({low} – {high})"
    return said.replace("-", "−")


def share(value: float, ends: Sequence[float] | None = None) -> str:
    """A part of a whole in per cent."""
    if ends is None or tuple(ends) == (value, value):
        return f"{value:.1%}".replace("%", " %")
    return f"{value:.1%} ({ends[0]:.1%} – {ends[1]:.1%})".replace("%", " %")


def paired(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """A mean of differences with its 95 % interval, by Student's t."""
    middle = mean(values)
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return middle, (middle - half, middle + half)


def told_apart(ends: Mapping[str, Sequence[float]], above: str, below: str, open_: str) -> str:
    """A sentence about differences: where the whole interval is above 0, below it, or neither."""
    words = {above: [], below: [], open_: []}
    for name, (low, high) in ends.items():
        words[above if low > 0 else below if high < 0 else open_].append(name)
    return " ".join(f"{said}: {listed(names)}." for said, names in words.items() if names)


def listed(names: Iterable[str]) -> str:
    """Names in a row."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def pictures(start: str, captions: Mapping[str, str], but: Sequence[str] = ()) -> str:
    """Every figure there is whose name begins so; nothing where there is none."""
    there = sorted(path.stem for path in FIGURES.glob(f"{start}*.svg"))
    shown = [name for name in there if not any(name.startswith(other) for other in but)]
    return "\n\n".join(
        f"![{captions.get(name, name.replace('-', ' '))}](figures/{name}.svg)" for name in shown
    )


def commands(known: Known, *starts: str) -> list[str]:
    """What measured the numbers whose ids begin so."""
    used = [one.command for id, one in known.items() if id.startswith(starts)]
    return list(dict.fromkeys(used))


def usage(study: str) -> str:
    """The calls that the first lines of a study name."""
    said = ast.get_docstring(ast.parse((ROOT / "studies" / study).read_text("utf-8"))) or ""
    calls = [line.strip() for line in said.splitlines() if line.strip().startswith("python ")]
    return "\n".join(["```", *calls, "```"])


def fill(text: str, parts: Mapping[str, str]) -> str:
    """A page with every mark replaced; two blank lines where a part is empty become one."""
    for mark, part in parts.items():
        text = text.replace("{" + mark + "}", part)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip() + "\n"
