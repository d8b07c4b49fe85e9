"""A trial takes as many forward passes as is promised, in layers and in processor time."""

import time
from statistics import median

import pytest
import torch
from support.passes import counting

import exhibit_a as xa
from exhibit_a.numerics.parallel import one_thread

WORDS = "the film is slow but the acting is superb and nobody will look at a watch before the end"
SHORT, LONGER = (12,), (24, 37, 128, 510)
LENGTHS = [*SHORT, *(pytest.param(tokens, marks=pytest.mark.slow) for tokens in LONGER)]


def text_of(tokens):
    return " ".join((WORDS.split() * tokens)[: tokens - 2])


@pytest.mark.parametrize("tokens", LENGTHS)
def test_a_trial_takes_at_most_150_passes(tokens):
    subject = xa.load("sentiment")
    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]
    with counting(modules) as rows:
        trial = xa.trial(subject, text_of(tokens), heat_maps=False)
    assert len(trial.tokens) == tokens
    assert sum(rows) / len(modules) <= 150


@torch.no_grad()
def seconds_of_a_pass(subject, given):
    spent = []
    for _ in range(9):
        start = time.process_time()
        subject.model(**given)
        spent.append(time.process_time() - start)
    return median(spent)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [*SHORT, *LONGER])
def test_a_trial_takes_the_processor_time_of_as_many(tokens):
    """150 on a quiet machine (docs/speed.md); here others run, and a fifth is allowed for them.

    The best of three attempts: what others do in the caches counts as time of ours.
    """
    subject = xa.load("sentiment")
    given = subject.tokenizer(text_of(tokens), return_tensors="pt")
    taken = []
    with one_thread():
        xa.trial(subject, "a warm film", heat_maps=False)  # what is only done once
        while not taken or (min(taken) > 150 and len(taken) < 3):
            before, start = seconds_of_a_pass(subject, given), time.process_time()
            xa.trial(subject, text_of(tokens), heat_maps=False)
            spent = time.process_time() - start
            taken.append(2 * spent / (before + seconds_of_a_pass(subject, given)))
    assert min(taken) <= 1.2 * 150
