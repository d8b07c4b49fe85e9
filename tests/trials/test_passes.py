"""A trial takes as many forward passes as is promised, counted in the layers."""

import pytest
from support.passes import counting

import exhibit_a as xa

WORDS = "the film is slow but the acting is superb and nobody will look at a watch before the end"


@pytest.mark.parametrize(
    "tokens", [12, *(pytest.param(count, marks=pytest.mark.slow) for count in (37, 128, 510))]
)
def test_a_trial_takes_at_most_150_passes(tokens):
    subject = xa.load("sentiment")
    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]
    with counting(modules) as rows:
        trial = xa.trial(subject, " ".join((WORDS.split() * tokens)[: tokens - 2]), pictures=False)
    assert len(trial.tokens) == tokens
    assert sum(rows) / len(modules) <= 150
