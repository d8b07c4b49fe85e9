"""Options of the right kind and of no sense are refused in one line."""

import math

import pytest
from support.every_method import OPTIONS, TEXT, call
from support.fuzz.given import given_apart
from support.subjects import opinionated

import exhibit_a as xa
from exhibit_a.errors import BadRequestError


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adversarial_keys", {"learning_rate": math.nan}, "learning rate of nan"),
        ("adversarial_keys", {"learning_rate": 0.0}, "give a number above 0"),
        ("adversarial_keys", {"learning_rate": 1e300}, "too large"),
        ("adversarial_attention", {"restarts": 2**64}, "too large"),
        ("adversarial_keys", {"hidden": 0}, "hidden"),
        ("attack", {"count": 0}, "0 patterns"),
        ("faithfulness", {"rankings": 2**70}, "rankings"),
        ("token_identifiability", {"top": 2**70}, "candidates"),
        ("lime", {"samples": 0}, "0 samples"),
        ("kernel_shap", {"samples": -1}, "-1 samples"),
    ],
)
def test_an_option_without_sense_is_refused(name, options, words):
    trace = xa.capture(opinionated(), TEXT)
    with pytest.raises(BadRequestError, match=words):
        call(name, opinionated(), trace, {**OPTIONS.get(name, {}), **options})


@pytest.mark.slow
def test_every_bad_value_gets_one_line():
    """Rows, spans, answers, passages, heat_maps, pairs, options of a training, own functions."""
    outcomes = given_apart(0, 10**6)
    assert outcomes.total > 500
    assert outcomes.bad == 0, outcomes.examples
