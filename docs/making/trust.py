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
import time
import tomllib
from collections import Counter
from collections.abc import Callable
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

Counts = dict[str, int]


class Row(TypedDict):
    """What is kept of a row: how often each outcome came, and what was attacked when."""

    outcomes: Counts
    package: str
    version: str
    date: str


class Attempts(NamedTuple):
    """Something that is tried: in words, how often, and by which function."""

    name: str
    kind: str
    words: str
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

    def counted(name: str) -> Callable[[int, int], Counter[str]]:
        return lambda seed, count: _told(TARGETS[name](seed, count))

    return [
        Attempts(
            "command lines", INPUTS, "Hostile values for the options of every verb", 250, 10,
            counted("command lines"),
        ),
        Attempts(
            "calls of methods", INPUTS, "Numbers and words without sense for the options of every "
            "method", 200, 10, counted("calls of methods"),
        ),
        Attempts(
            "values given to functions", INPUTS, "Rows, spans, answers, conversations, passages, "
            "pictures, pairs to translate, options of a training, results to compare, functions of "
            "one's own: values and files that make no sense there", ALL, 20,
            counted("values given to functions"),
        ),
        Attempts(
            "result files", INPUTS, "Saved results with flipped, lost, added and exchanged bytes",
            500, 20, counted("result files"),
        ),
        Attempts(
            "hostile texts", INPUTS, "Texts with surrogates, control characters, endless words, "
            "right-to-left and combining characters, emoji sequences", 120, 10,
            counted("hostile texts"),
        ),
        Attempts(
            "requests to the server", "requests", "Requests that no browser sends, raw on the wire",
            500, 20, counted("requests to the server"),
        ),
        Attempts(
            "run folders", "run folders", "A file of a run folder damaged, cut, deleted or replaced "
            "by a folder", 150, 10, counted("run folders"),
        ),
        Attempts(
            "flips in run folders", "flips", "One bit flipped in a run folder, then all read in "
            "every way", 2000, 10, _flips,
        ),
        Attempts(
            "faults of the disk", "faults", "Each open, write, fsync, rename and mkdir of everything "
            "that writes fails with each of three errors", ALL, 1, _faults,
        ),
        Attempts(
            "modes of torch", "modes", "Every method inside inference mode, autocast, no_grad, "
            "another default type or device, deterministic algorithms", ALL, 1,
            lambda seed, count: _told(under_modes(seed, count)),
        ),
        Attempts(
            "interrupts", "interrupts", "Ctrl-C during `explain`: four in five at a random moment, "
            "the others in a finaliser or a callback, where Python drops the exception", 250, 5,
            lambda seed, count: _told(interrupts(seed, count)),
        ),
    ]  # fmt: skip


def _told(outcomes) -> Counter[str]:
    for example in outcomes.examples:
        sys.stderr.write(f"    {example}\n")
    return outcomes.counts


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
    outcomes: Counter[str] = Counter()
    for counted in by_scenario.values():
        outcomes += counted
    del outcomes["calls"]
    return outcomes


def table(rows_by_name: dict[str, Row]) -> str:
    """One row for each thing that was tried, what they come to, and what was attacked."""
    counts = {name: row["outcomes"] for name, row in rows_by_name.items()}
    rows = ["| what was tried | how often | what happened |", "|---|---:|---|"]
    for entry in attempts():
        outcomes = counts.get(entry.name, {})  # a row that is new has not been tried
        happened = ", ".join(f"{number:,} {kind}" for kind, number in sorted(outcomes.items()))
        rows.append(f"| {entry.words} | {sum(outcomes.values()):,} | {happened} |")
    return "\n".join([*rows, "", _total(counts), "", state(rows_by_name), ""])


def state(rows: dict[str, Row]) -> str:
    """Which state of the package was attacked; one for all rows, or each with its rows."""
    named: dict[str, list[str]] = {}
    for name, row in rows.items():
        said = "an earlier state, which was not recorded"
        if row["package"]:
            said = f"version {row['version']} as of {row['date']} (source `{row['package']}`)"
        named.setdefault(said, []).append(name)
    tried = list(named)
    if len(tried) > 1:
        tried = [f"{said}: {', '.join(sorted(names))}" for said, names in named.items()]
    return (
        f"Attacked was {'; '.join(tried)}. What changed since is attacked by `make slow`, which "
        "tries a part of every row again, with another seed, on the package as it is."
    )


def _total(counts: dict[str, Counts]) -> str:
    """What the attempts come to, in a sentence each."""
    kinds = {entry.name: entry.kind for entry in attempts()}

    def all_and_bad(kind: str, *bad: str) -> tuple[str, str]:
        chosen = [counts[name] for name in counts if kinds[name] == kind]
        total = sum(sum(outcomes.values()) for outcomes in chosen)
        return f"{total:,}", f"{sum(outcomes.get(b, 0) for outcomes in chosen for b in bad):,}"

    inputs, tracebacks = all_and_bad(INPUTS, *BAD)
    flips, differences = all_and_bad("flips", *BAD)
    faults, losses = all_and_bad("faults", *BAD)
    return (
        f"**{tracebacks} tracebacks over {inputs} bad inputs, {differences} silent differences over "
        f"{flips} flips in run folders, {losses} losses over {faults} injected faults (three errors "
        "at each point where something is written).**"
    )


def parts() -> dict[str, str]:
    """The table, from what was recorded."""
    return {"attempts": table(recorded())}


def recorded() -> dict[str, Row]:
    """What happened when it was tried, and to which state of the package."""
    rows: dict[str, Row] = json.loads(COUNTS.read_text("utf-8")) if COUNTS.exists() else {}
    return rows


def older() -> list[str]:
    """The rows that were counted on another state of the package."""
    rows, now = recorded(), digest()
    return [entry.name for entry in attempts() if rows.get(entry.name, {}).get("package") != now]


def digest() -> str:
    """What tells the package from itself after a change."""
    files = sorted((ROOT / "src").rglob("*.py"))
    lines = [
        f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def tried(entry: Attempts, seed: int) -> Counts:
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
    """Try what is asked for, and keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--try", dest="trying", action="store_true", help="really try it")
    parser.add_argument("--only", action="append", help="only this one; give it again for more")
    parser.add_argument("--again", action="store_true", help="also rows of the package as it is")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    due = [entry.name for entry in attempts()] if asked.again else older()
    for entry in attempts() if asked.trying else []:
        if entry.name not in (asked.only or due) or entry.name not in due:
            continue
        start, package = (time.process_time(), time.perf_counter()), digest()
        outcomes = tried(entry, asked.seed)
        spent = time.process_time() - start[0], time.perf_counter() - start[1]
        sys.stdout.write(f"{entry.name}: {outcomes} ({spent[0]:.0f} s of {spent[1]:.0f} s)\n")
        row = Row(outcomes=outcomes, package=package, version=_version(), date=f"{date.today()}")
        rows = recorded() | {entry.name: row}
        COUNTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    sys.stdout.write(f"of an older state: {', '.join(older()) or 'no row'}\n")


if __name__ == "__main__":
    main()
