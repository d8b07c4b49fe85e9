"""What a person who decides reads: probabilities for log-odds, and claims that the numbers make."""

from dataclasses import replace

import pytest
import torch
from support.cases import large_trial

from exhibit_a.report.sentences import (
    carriers_sentence,
    foretells,
    p_text,
    reliance_sentences,
)
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
    assert reliance_sentences(number, {"output": 1.4})[:2] == [
        "The model answers 1.4.",
        "If no head could choose where to look, it would answer -0.8.",
    ]


def test_another_answer_is_named_only_where_there_is_one_other_and_the_answer_turns(trial):
    reliance = trial.reliance  # 1.4 and, with every head even, -0.8: from .80 to .31
    answer = {"bad": 0.2, "good": 0.8}
    assert reliance_sentences(reliance, answer)[:2] == [
        "The model says good with probability .80.",
        "If no head could choose where to look, it would say bad (good: .31).",
    ]
    three = {"bad": 0.1, "odd": 0.1, "good": 0.8}
    assert reliance_sentences(reliance, three)[1].endswith("look, good would have .31.")
    stays = replace(reliance, even_margin=1.3)
    assert reliance_sentences(stays, answer)[1].endswith("look, good would still have .79.")
    other = {"bad": 0.9, "good": 0.1}
    assert reliance_sentences(reliance, other)[0] == "The model gives good the probability .80."


def test_a_fall_is_told_from_a_rise_and_from_nothing(trial):
    reliance = trial.reliance
    assert describe_change(reliance, -0.8) == "its probability would fall from .80 to .31"
    assert describe_change(reliance, 2.8) == (
        "its probability would rise from .80 to .94 (its odds 4.06 times larger)"
    )
    assert describe_change(reliance, 1.4) == "its probability would stay at .80"


def test_odds_stand_beside_probabilities_that_hardly_move(trial):
    sure = replace(trial.reliance, margin=30.0)
    assert describe_change(sure, 12.0) == (
        "its probability would stay at more than .9999 (its odds 6.6 × 10⁷ times smaller)"
    )
    assert (
        describe_change(trial.reliance, 1.38)
        == "its probability would stay at .80 (its odds 2% smaller)"
    )
    number = replace(trial.reliance, target="logit of output")
    assert describe_change(number, 1.0) == "it would fall from 1.4 to 1"


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
    said = carriers_sentence(trial)
    assert said == (
        "These 2 heads carry it: head 1 of layer 0, head 2 of layer 1. If they looked evenly, good "
        "would have .35; if 2 other heads did, .79 (12 random draws). As it is, good has .80."
    )
    weak = replace(trial, carriers=MinimalHeadSet(((0, 1),), 0.1, 0.79, 0.1, 0.05, 12))
    assert carriers_sentence(weak).startswith(
        "This head carries it: head 1 of layer 0. If it looked evenly, good would have"
    )
    assert carriers_sentence(weak).endswith("no more than random heads do.")
    idle = tuple(torch.zeros_like(site) for site in trial.reliance.heads)
    none = replace(trial, reliance=replace(trial.reliance, even_margin=1.39, heads=idle))
    assert carriers_sentence(none).startswith("No head carries the answer: it stays")
    both = tuple(torch.tensor([0.5, -0.5, 0.0, 0.0]) for _ in idle)
    cancelling = replace(trial, reliance=replace(none.reliance, heads=both))
    assert carriers_sentence(cancelling) == (
        "No small set of heads carries the answer: what some heads add, others take."
    )
    assert carriers_sentence(replace(trial, reliance=None)) == ""
