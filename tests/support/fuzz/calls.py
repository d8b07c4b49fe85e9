"""Calls of every method with options of the right kind and of no sense: answered or refused."""

import random
from collections.abc import Callable
from typing import Any, get_args

import exhibit_a as xa
from exhibit_a.methods.options import Option
from exhibit_a.methods.registry import methods
from support.every_method import OPTIONS, TEXT, call
from support.fuzz import hostile
from support.fuzz.outcomes import Outcomes, outcome_of
from support.subjects import opinionated

INTEGERS = (-(2**70), -(2**31), -1, 0, 1, 2, 10**6, 2**31, 2**63, 2**70)
FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e-300, 1.0, 1.5, 1e300)
# Large values of these are a wish for long work, and no mistake.
COUNTS = ("samples", "restarts", "steps", "epochs", "hidden", "repeats", "width", "probes", "limit")


def calls(seed: int, attempts: int) -> Outcomes:
    """Call methods with one hostile option each."""
    chance, outcomes = random.Random(seed), Outcomes()
    subject = opinionated()
    trace = xa.capture(subject, TEXT, keep=("attention", "values", "hidden", "queries", "keys"))
    entries = {
        name: {word: pool for word, option in entry.options.items() if (pool := _pool(option))}
        for name, entry in methods().items()
    }
    named = sorted(name for name, pools in entries.items() if pools)
    for _ in range(attempts):
        name = chance.choice(named)
        word = chance.choice(sorted(entries[name]))
        given = {word: chance.choice(entries[name][word])}
        options = {**OPTIONS.get(name, {}), **given}
        outcome, problem = outcome_of(
            lambda name=name, options=options: _answered(
                lambda: call(name, subject, trace, options)
            )
        )
        outcomes.add(outcome, (name, given), problem)
    return outcomes


def _answered(work: Callable[[], Any]) -> str:
    work()
    return "answered"


def _pool(option: Option) -> tuple[Any, ...]:
    """Values of the kinds that an option takes; none where it takes things of ours."""
    kinds = {option.type, *get_args(option.type)}
    pool: list[Any] = []
    if int in kinds:
        largest = 4 if option.name in COUNTS else 2**80
        pool += [number for number in INTEGERS if number <= largest]
    if float in kinds:
        pool += FLOATS
    if str in kinds or option.choices:
        pool += hostile.WORDS
    return tuple(pool)
