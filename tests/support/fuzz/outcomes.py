"""How attempts ended, counted; and of the bad ones, what exactly was tried."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from exhibit_a.errors import ExhibitError

BAD = ("traceback", "many lines", "different", "hung")
SHOWN = 12  # attempts that went wrong, told in full


@dataclass
class Outcomes:
    """How often each outcome came."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def bad(self) -> int:
        return sum(self.counts[kind] for kind in BAD)

    def add(self, outcome: str, attempt: object, problem: object = "") -> None:
        self.counts[outcome] += 1
        if outcome in BAD and len(self.examples) < SHOWN:
            self.examples.append(f"{outcome}: {attempt!r} {problem}"[:600])


def outcome_of(work: Callable[[], str]) -> tuple[str, str]:
    """How a piece of work ends, and what is wrong with the way: its own word, or a refusal."""
    try:
        return work(), ""
    except ExhibitError as problem:
        lines = str(problem).strip().splitlines()
        return ("refused", "") if len(lines) == 1 else ("many lines", str(problem))
    except Exception as problem:  # what an attack is looking for
        place = traceback.extract_tb(problem.__traceback__)[-1]
        return "traceback", f"{type(problem).__name__}: {problem} ({place.filename}:{place.lineno})"
