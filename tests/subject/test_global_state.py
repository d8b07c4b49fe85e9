"""What belongs to the process is left as it was: random streams, warnings, the registry."""

import warnings

import numpy
import pytest
import torch
from support.subjects import opinionated
from support.words import NUMBERED, save_tokenizer
from support.zoo import FAMILIES

import exhibit_a as xa

TEXTS = [" ".join(NUMBERED[n : n + 6]) for n in range(0, 48, 3)]


def examples(subject):
    labels = (subject.labels[:2] * len(TEXTS))[: len(TEXTS)]
    return [xa.Example(str(n), text, None, labels[n]) for n, text in enumerate(TEXTS)]


def streams():
    """Of torch and numpy; from Python's own, beartype draws what it looks at in these tests."""
    return torch.get_rng_state().tolist(), str(numpy.random.get_state())


def on_trace(function, **options):
    return lambda subject: function(xa.capture(subject, TEXTS[0]), **options)


def on_data(function, **options):
    return lambda subject: function(subject, examples(subject), **options)


ASKED = {
    "capture": on_trace(lambda trace: trace),
    "effective_attention": on_trace(xa.effective_attention),
    "alternative_attention": on_trace(xa.alternative_attention, site=0, head=0),
    "attention_identifiability": on_trace(xa.attention_identifiability),
    "hidden_attribution": on_trace(xa.hidden_attribution, probes=2),
    "head_mixing": on_trace(xa.head_mixing, probes=2),
    "self_attribution": on_trace(xa.self_attribution),
    "adversarial_attention": on_trace(xa.adversarial_attention),
    "companions": on_trace(xa.companions),
    "trial": lambda subject: xa.trial(subject, TEXTS[0]),
    "head_importance": on_data(xa.head_importance),
    "permutation_test": on_data(xa.permutation_test, repeats=2),
    "faithfulness": on_data(xa.faithfulness, attribution="raw"),
    "adversarial_keys": on_data(xa.adversarial_keys, hidden=4, epochs=1),
    "find_triggers": on_data(xa.find_triggers),
}


@pytest.mark.parametrize("name", ASKED)
def test_no_method_draws_from_a_stream_of_the_caller(name):
    subject = opinionated()
    before, filters = streams(), list(warnings.filters)
    ASKED[name](subject)
    assert streams() == before
    assert warnings.filters == filters


def test_loading_draws_nothing(tmp_path):
    FAMILIES["bert"].build().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    before = streams()
    xa.load(tmp_path)
    assert streams() == before
