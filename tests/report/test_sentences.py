"""What a person who decides reads: probabilities for log-odds, and claims that the numbers make."""

from dataclasses import replace

import pytest
from support.cases import large_trial

from exhibit_a.report.sentences import p_text, reliance_sentences
from exhibit_a.trials.sentences import format_margin, probability_text


@pytest.fixture(scope="module")
def trial():
    return large_trial(tokens=12, layers=2, heads=4, width=8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, ".50"),
        (0.954, ".95"),
        (0.996, ".996"),
        (0.99961, ".9996"),
        (0.031, ".031"),
        (0.0004, ".00040"),
        (0.00001, "less than .0001"),
        (0.99999, "more than .9999"),
    ],
)
def test_a_probability_is_never_rounded_to_certainty(value, text):
    assert probability_text(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.036, ".036"), (1e-6, "<.001")])
def test_p_values(value, text):
    assert p_text(value) == text


def test_log_odds_are_said_as_probabilities_and_numbers_as_numbers(trial):
    assert format_margin(trial.reliance, 0.0) == ".50"
    assert format_margin(trial.reliance, -1e6) == "less than .0001"
    number = replace(trial.reliance, target="logit of output")
    assert format_margin(number, -1.25) == "-1.25"
    now, even, _ = reliance_sentences(number, {"output": 1.4})
    assert "1.4" in now
    assert "-0.8" in even
