"""What a person who decides reads: probabilities for log-odds, and claims that the numbers make."""

from dataclasses import replace

import pytest
import torch
from support.cases import large_trial

from exhibit_a.report.sentences import carriers_sentence, foretells, p_text, reliance_sentences
from exhibit_a.trials.carriers import MinimalHeadSet
from exhibit_a.trials.sentences import describe_change, format_margin, probability_text


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


def test_another_answer_is_named_only_where_there_is_one_other_and_the_answer_turns(trial):
    reliance = trial.reliance  # 1.4 and, with every head even, -0.8: from .80 to .31
    now, even, _ = reliance_sentences(reliance, {"bad": 0.2, "good": 0.8})
    assert "good" in now
    assert ".80" in now
    assert "bad" in even
    assert ".31" in even
    for answer, known in (
        ({"bad": 0.1, "odd": 0.1, "good": 0.8}, reliance),
        ({"bad": 0.2, "good": 0.8}, replace(reliance, even_margin=1.3)),
    ):
        assert "bad" not in reliance_sentences(known, answer)[1]


@pytest.mark.parametrize(
    ("now", "after", "words"),
    [
        (1.4, -0.8, ("fall", ".80", ".31")),
        (1.4, 2.8, ("rise", ".94", "times larger")),
        (1.4, 1.4, ("stay at .80",)),
        (30.0, 12.0, ("stay", "times smaller")),  # odds, where probabilities hardly move
        (1.4, 1.38, ("stay", "2% smaller")),
    ],
)
def test_a_fall_is_told_from_a_rise_and_from_nothing(trial, now, after, words):
    change = describe_change(replace(trial.reliance, margin=now), after)
    assert all(word in change for word in words)


def test_rows_of_a_language_model_serve_the_next_word_and_those_of_a_classifier_do_not(trial):
    assert not foretells(trial, trial.sites[0])
    sites = tuple(replace(site, causal=True) for site in trial.sites)
    causal = replace(trial, sites=sites)
    assert not foretells(causal, sites[0])  # it tells a class
    assert foretells(replace(causal, target="log probability of 'a' at position 3"), sites[0])
    assert foretells(
        replace(causal, target="log probability of the answer 'a' (3 tokens)"), sites[0]
    )


def test_heads_that_carry_are_named_with_what_random_ones_do(trial):
    sentence = carriers_sentence(trial)
    for words in ("head 1 of layer 0", "head 2 of layer 1", ".35", ".79", "12 random"):
        assert words in sentence
    weak = replace(trial, carriers=MinimalHeadSet(((0, 1),), 0.1, 0.79, 0.1, 0.05, 12))
    assert "no more than random heads" in carriers_sentence(weak)
    assert "random heads" not in sentence
    idle = tuple(torch.zeros_like(site) for site in trial.reliance.heads)
    none = replace(trial, reliance=replace(trial.reliance, even_margin=1.39, heads=idle))
    both = tuple(torch.tensor([0.5, -0.5, 0.0, 0.0]) for _ in idle)
    cancelling = replace(trial, reliance=replace(none.reliance, heads=both))
    assert carriers_sentence(none).startswith("No head")
    assert carriers_sentence(cancelling).startswith("No small set")
    assert carriers_sentence(replace(trial, reliance=None)) == ""
