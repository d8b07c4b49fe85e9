"""The page of attacks says what was counted, and what was counted is still what happens."""

import importlib.util
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from support.every_method import same
from support.fuzz.damage import damaged
from support.fuzz.outcomes import BAD, outcome_of

import exhibit_a as xa

ROOT = Path(__file__).parents[2]


def script():
    spec = importlib.util.spec_from_file_location("trust", ROOT / "docs/making/trust.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = script()


def test_what_must_be_shown_is_shown():
    counts = {name: row["outcomes"] for name, row in MADE.recorded().items()}
    total = {}
    for entry in MADE.attempts():
        total[entry.kind] = total.get(entry.kind, 0) + sum(counts[entry.name].values())
    assert set(counts) == {entry.name for entry in MADE.attempts()}
    assert not set(MADE.BAD) & {kind for outcomes in counts.values() for kind in outcomes}
    assert total["bad inputs"] >= 400
    assert total["flips"] >= 2000
    assert total["faults"] >= 100


def test_the_page_says_what_was_attacked():
    rows = MADE.recorded()
    assert all(row["package"] and row["version"] and row["date"] for row in rows.values())
    one = {"outcomes": {"refused": 3}, "package": "1a2b", "version": "1", "date": "2026-01-02"}
    other = {**one, "package": "3c4d"}
    assert MADE.state({"a": one, "b": one}) == "version 1 as of 2026-01-02 (source `1a2b`)"
    assert MADE.state({"a": one, "b": other}).endswith(
        "(source `1a2b`): a; version 1 as of 2026-01-02 (source `3c4d`): b"
    )


def test_a_changed_count_changes_the_table():
    rows = MADE.recorded()
    worse = {**rows, "run folders": {**rows["run folders"], "outcomes": {"different": 1}}}
    words = {"run folders": "A file of a run folder damaged"}
    assert "1 different" in MADE.table(worse, words)
    assert "1 different" not in MADE.table(rows, words)


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in MADE.attempts()])
def test_a_few_attempts_end_as_they_did(name):
    entry = next(entry for entry in MADE.attempts() if entry.name == name)
    outcomes = entry.outcomes(10**4, entry.few)  # another seed than those of the page
    assert sum(outcomes.values()) >= entry.few
    assert not set(outcomes) & set(MADE.BAD)
    assert set(outcomes) <= set(MADE.recorded()[name]["outcomes"])


def test_a_row_goes_on_where_it_was(tmp_path, monkeypatch):
    seeds = []

    def outcomes(seed, count):
        seeds.append(seed)
        if len(seeds) == 2:
            raise KeyboardInterrupt
        return Counter(refused=count)

    entry = MADE.Attempts("a row", "kind", 2 * MADE.PART + 50, 1, outcomes)
    monkeypatch.setattr(MADE, "PARTS", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        MADE.tried(entry, 0)
    assert MADE.tried(entry, 0) == {"refused": 2 * MADE.PART + 50}
    assert seeds == [0, 1, 1, 2]


def test_the_attacks_notice_what_must_not_be():
    """Otherwise the counts could not be bad."""

    def failing(problem):
        def work():
            raise problem

        return work

    assert outcome_of(failing(RuntimeError("anything")))[0] == "traceback"
    assert outcome_of(failing(xa.BadRequestError("two\nlines")))[0] == "many lines"
    assert outcome_of(failing(xa.BadRequestError("one line")))[0] == "refused"
    assert set(BAD) <= set(MADE.BAD)
    content = bytes(range(200))
    chance = random.Random(0)
    assert all(damaged(content, chance)[0] != content for _ in range(200))
    assert same({"a": torch.ones(2)}, {"a": torch.ones(2)})
    assert not same({"a": torch.ones(2)}, {"a": torch.ones(2).double()})
    assert not same({"a": torch.ones(2)}, {"a": torch.tensor([1.0, 1.0000001])})
    assert not same({"a": 1}, {"a": 1, "b": 2})
