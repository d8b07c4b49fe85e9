"""What a corpus keeps of a trial: the same columns, whatever could be asked of a text."""

from dataclasses import replace
from math import isnan

import pytest
from support.cases import large_trial

from exhibit_a.corpus.summaries import joined, summary_of
from exhibit_a.trials.verdict import WORDS


@pytest.fixture(scope="module")
def trial():
    return large_trial(tokens=12, layers=2, heads=4, width=8)


def test_a_trial_keeps_its_word_its_advice_and_what_the_answer_rests_on(trial):
    numbers = summary_of(trial).numbers
    assert numbers["word"] == trial.word
    assert numbers["advice"] == trial.advice
    assert numbers["margin"] == trial.reliance.margin
    assert numbers["baseline_margin"] == trial.reliance.baseline_margin
    assert numbers["carriers"] == 2
    assert numbers["heat map raw"] == "show"
    assert numbers["heat map rollout"] == ""  # was not drawn
    assert sum(numbers[f"heads {word}"] for word in WORDS) == len(trial.verdicts)
    assert [word for word in WORDS if numbers[f"text {word}"]] == [trial.word]
    assert numbers["show raw"] == 1
    assert isnan(numbers["show rollout"])
    advices = ("do not show", *trial.heat_maps.advices[1:])
    not_shown = replace(trial, heat_maps=replace(trial.heat_maps, advices=advices))
    assert summary_of(not_shown).numbers[f"show {trial.heat_maps.names[0]}"] == 0


def test_texts_of_which_less_could_be_asked_have_the_same_columns(trial):
    less = replace(trial, reliance=None, carriers=None, heat_maps=None)
    summaries = [summary_of(trial), summary_of(less)]
    assert list(summaries[0].numbers) == list(summaries[1].numbers)
    kinds = [[type(value) for value in each.numbers.values()] for each in summaries]
    assert kinds[0] == kinds[1]  # a column has one kind
    findings = joined(summaries, dense=False)
    assert findings.numbers["heat map raw"] == ["show", ""]
    assert str(findings.numbers["margin"][1]) == "nan"
