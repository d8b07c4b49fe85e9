"""What was tried to break the package, how often, and what happened: the table of docs/trust.md.

``make trust`` really tries it all (some minutes of one core) and keeps the counts in
``trust.json``, row by row, each with a digest of the package as it was attacked. Rows whose digest
is that of the package as it is are not tried again, and a long row goes on where it was, so that
the same command can be given again after a kill. A test tries a part of it again.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple, TypedDict

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "docs/making/trust.json"
PARTS = ROOT / "build/trust"  # of rows that are not finished
PART = 125  # attempts after which the counts of a row are kept
BAD = ("traceback", "many lines", "different", "hung", "lost")  # what must never happen
INPUTS = "bad inputs"  # the kind of attempts whose input is bad
ALL = 10**6  # more than there are


class Row(TypedDict):
    """What is kept of a row: how often each outcome came, and what was attacked when."""

    outcomes: dict[str, int]
    package: str
    version: str
    date: str


class Attempts(NamedTuple):
    """Something that is tried, how often, and by which function."""

    name: str
    kind: str
    count: int
    few: int  # so many are tried again by a test
    outcomes: Callable[[int, int], Counter[str]]  # from a seed and a count

    @property
    def parts(self) -> int:
        """In how many pieces it is tried, each with a seed of its own; what is counted out, in one."""
        return 1 if self.count == ALL else -(-self.count // PART)


def attempts() -> list[Attempts]:
    """Everything that is tried."""
    from support.fuzz import TARGETS
    from support.fuzz.interrupts import interrupts
    from support.modes import under_modes

    def told(attack: Callable) -> Callable[[int, int], Counter[str]]:
        def outcomes(seed: int, count: int) -> Counter[str]:
            found = attack(seed, count)
            sys.stderr.writelines(f"    {example}\n" for example in found.examples)
            return found.counts

        return outcomes

    def fuzzed(name: str, kind: str, count: int, few: int) -> Attempts:
        return Attempts(name, kind, count, few, told(TARGETS[name]))

    return [
        fuzzed("command lines", INPUTS, 250, 10),
        fuzzed("calls of methods", INPUTS, 200, 10),
        fuzzed("values given to functions", INPUTS, ALL, 20),
        fuzzed("result files", INPUTS, 500, 20),
        fuzzed("hostile texts", INPUTS, 120, 10),
        fuzzed("requests to the server", "requests", 500, 20),
        fuzzed("run folders", "run folders", 150, 10),
        Attempts("flips in run folders", "flips", 2000, 10, _flips),
        Attempts("faults of the disk", "faults", ALL, 1, _faults),
        Attempts("modes of torch", "modes", ALL, 1, told(under_modes)),
        Attempts("interrupts", "interrupts", 250, 5, told(interrupts)),
    ]


def _flips(seed: int, count: int) -> Counter[str]:
    from support.corpora import examples
    from support.flips import flip_outcomes
    from support.subjects import speaker

    from exhibit_a import corpus

    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        corpus.run(speaker(), examples(3), "effective_attention", run, window=2, dense=True)
        return flip_outcomes(run, seed=seed, count=count)


def _faults(seed: int, count: int) -> Counter[str]:
    from support.scenarios import fault_outcomes

    with tempfile.TemporaryDirectory() as place:
        by_scenario = fault_outcomes(Path(place), seed=seed, count=count)
    outcomes = sum(by_scenario.values(), Counter[str]())
    del outcomes["calls"]
    return outcomes


def table(rows: Mapping[str, Row], words: Mapping[str, str]) -> str:
    """One row for each thing that was tried, in words."""
    lines = ["| what was tried | how often | what happened |", "|---|---:|---|"]
    for name, said in words.items():
        outcomes = rows[name]["outcomes"] if name in rows else {}  # what is new was not tried
        happened = ", ".join(f"{number:,} {kind}" for kind, number in sorted(outcomes.items()))
        lines.append(f"| {said} | {sum(outcomes.values()):,} | {happened} |")
    return "\n".join(lines)


def state(rows: Mapping[str, Row]) -> str:
    """Which state of the package was attacked; one for all rows, or each with its rows."""
    named: dict[str, list[str]] = {}
    for name, row in sorted(rows.items()):
        said = f"version {row['version']} as of {row['date']} (source `{row['package']}`)"
        named.setdefault(said, []).append(name)
    each = [f"{said}: {', '.join(names)}" for said, names in named.items()]
    return "; ".join(each if len(each) > 1 else named)


def counted() -> dict[str, dict[str, int]]:
    """What the attempts of each kind come to, and how many of them went as must never happen."""
    found: dict[str, dict[str, int]] = {}
    for entry in attempts():
        total = found.setdefault(entry.kind, {"all": 0, "bad": 0})
        for outcome, number in recorded()[entry.name]["outcomes"].items():
            total["all"] += number
            total["bad"] += number if outcome in BAD else 0
    return found


def recorded() -> dict[str, Row]:
    """What happened when it was tried, and to which state of the package."""
    rows: dict[str, Row] = json.loads(COUNTS.read_text("utf-8"))
    return rows


def older() -> list[str]:
    """The rows that were counted on another state of the package."""
    rows, now = recorded(), digest()
    return [
        one.name for one in attempts() if one.name not in rows or rows[one.name]["package"] != now
    ]


def digest() -> str:
    """What tells the package from itself after a change."""
    files = sorted((ROOT / "src").rglob("*.py"))
    own = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    lines = [f"{path.relative_to(ROOT)} {one}" for path, one in zip(files, own, strict=True)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def tried(entry: Attempts, seed: int) -> dict[str, int]:
    """Try one row, part by part; parts that were counted before a kill are not tried again."""
    PARTS.mkdir(parents=True, exist_ok=True)
    total: Counter[str] = Counter()
    for part in range(entry.parts):
        kept = PARTS / f"{entry.name.replace(' ', '-')}-{seed}-{part}-{digest()}.json"
        if not kept.exists():
            count = min(PART, entry.count - part * PART) if entry.parts > 1 else entry.count
            outcomes = entry.outcomes(entry.parts * seed + part, count)
            kept.write_text(json.dumps(outcomes), "utf-8")
        total += Counter(json.loads(kept.read_text("utf-8")))
    return dict(sorted(total.items()))


def main() -> None:
    """Try what is requested, and keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--try", dest="trying", action="store_true", help="really try it")
    parser.add_argument("--only", action="append", help="only this one; give it again for more")
    parser.add_argument("--again", action="store_true", help="also rows of the package as it is")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    due = {entry.name for entry in attempts()} if given.again else set(older())
    due = due & set(given.only or due) if given.trying else set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for entry in (entry for entry in attempts() if entry.name in due):
        state = {"package": digest(), "version": project["version"], "date": f"{date.today()}"}
        row = {"outcomes": tried(entry, given.seed), **state}
        sys.stdout.write(f"{entry.name}: {row['outcomes']}\n")
        rows = recorded() | {entry.name: row}
        COUNTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    sys.stdout.write(f"of an older state: {', '.join(older()) or 'no row'}\n")


if __name__ == "__main__":
    main()
