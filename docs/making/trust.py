"""Write the table of docs/trust.md: what was tried, how often, and what happened.

``make trust`` really tries it all (an hour on two cores) and keeps the counts in ``trust.json``;
without ``--try`` the page is written from them. A test sees that the page is what the counts say,
and tries a part of it again.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE, COUNTS = ROOT / "docs/trust.md", ROOT / "docs/making/trust.json"
BETWEEN = re.compile(r"(<!-- attempts -->\n).*?(<!-- /attempts -->)", re.S)
BAD = ("traceback", "many lines", "different", "hung", "lost")  # what must never happen
INPUTS = "bad inputs"  # the kind of attempts whose input is bad

Counts = dict[str, int]


@dataclass(frozen=True)
class Attempts:
    """Something that is tried: in words, how often, and by which function."""

    name: str
    kind: str
    words: str
    count: int
    few: int  # so many are tried again by a test
    outcomes: Callable[[int, int], Counter[str]]


def attempts() -> list[Attempts]:
    """Everything that is tried."""
    from support.fuzz import TARGETS
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
            "that writes fails with each of three errors", 10**6, 1, _faults,
        ),
        Attempts(
            "modes of torch", "modes", "Every method inside inference mode, autocast, no_grad, "
            "another default type or device, deterministic algorithms", 10**6, 1,
            lambda seed, count: _told(under_modes(seed, count)),
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


def table(counts: dict[str, Counts]) -> str:
    """One row for each thing that was tried, and what they come to."""
    rows = ["| what was tried | how often | what happened |", "|---|---:|---|"]
    for entry in attempts():
        outcomes = counts[entry.name]
        happened = ", ".join(f"{number:,} {kind}" for kind, number in sorted(outcomes.items()))
        rows.append(f"| {entry.words} | {sum(outcomes.values()):,} | {happened} |")
    return "\n".join([*rows, "", _total(counts), ""])


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


def page(counts: dict[str, Counts]) -> str:
    """The page with the table of these counts."""
    text = PAGE.read_text("utf-8")
    return BETWEEN.sub(lambda marks: marks[1] + "\n" + table(counts) + "\n" + marks[2], text)


def recorded() -> dict[str, Counts]:
    """What happened when it was tried."""
    return json.loads(COUNTS.read_text("utf-8")) if COUNTS.exists() else {}


def main() -> None:
    """Try what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--try", dest="trying", action="store_true", help="really try it")
    parser.add_argument("--only", action="append", help="only this one; give it again for more")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for entry in attempts() if asked.trying else []:
        if asked.only and entry.name not in asked.only:
            continue
        start = time.perf_counter()
        outcomes = entry.outcomes(asked.seed, entry.count)
        sys.stdout.write(f"{entry.name}: {dict(outcomes)} ({time.perf_counter() - start:.0f} s)\n")
        counts = recorded() | {entry.name: dict(sorted(outcomes.items()))}
        COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", "utf-8")
    PAGE.write_text(page(recorded()), "utf-8")


if __name__ == "__main__":
    main()
